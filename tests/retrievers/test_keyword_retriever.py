"""Exact match as a LlamaIndex retriever: what its nodes hold and how they are scored."""

import logging
from pathlib import Path

import pytest
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore

from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.retrievers import KeywordEntry, KeywordIndex, KeywordRetriever
from knowledge_lookup.retrievers import metadata as keys
from tests.knowledge_bases import document, write_documents
from tests.retrievers.chunks import paths_of

LONG = "# 错误码\n\n开头。\n\n" + "## 其他\n\n无关的说明。\n\n" * 200 + "## ERR_DEEP\n\n埋得很深的一节。\n"
DOCUMENTS = {
    "api/timeout.md": "# 超时\n\n网关超时说明。",
    "api/codes.md": LONG,
    "infra/cluster.md": "# Redis 集群\n\n集群说明。",
    "infra/sentinel.md": "# Redis 哨兵\n\n哨兵说明。",
}
ENTRIES = [
    KeywordEntry("api/timeout.md", "超时", "api", ("ERR_TIMEOUT", "支付网关")),
    KeywordEntry("api/codes.md", "错误码", "api", ("ERR_DEEP",)),
    KeywordEntry("infra/cluster.md", "Redis 集群", "infra", ("Redis",)),
    KeywordEntry("infra/sentinel.md", "Redis 哨兵", "infra", ("Redis",)),
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_documents(
        tmp_path / "docs", {path: document(text, keywords="[x]") for path, text in DOCUMENTS.items()}
    )


@pytest.fixture
def index() -> KeywordIndex:
    index = KeywordIndex()
    for entry in ENTRIES:
        index.add(entry)
    return index


@pytest.fixture
def retriever(index: KeywordIndex, base: Path) -> KeywordRetriever:
    return KeywordRetriever(index, KnowledgeFiles(base))


def test_a_decisive_match_has_score_one_and_the_evidence(retriever: KeywordRetriever) -> None:
    [found] = retriever.retrieve("ERR_TIMEOUT 怎么处理")
    assert found.score == 1.0
    assert found.node.get_content() == "# 超时\n\n网关超时说明。"
    assert found.node.ref_doc_id == "api/timeout.md"
    assert found.node.metadata == {
        keys.FILE_PATH: "api/timeout.md",
        keys.TITLE: "超时",
        keys.DOMAIN: "api",
        keys.MATCH_TYPE: keys.EXACT_L0,
        keys.MATCH_COUNT: 1,
        keys.DECISIVE: True,
        keys.MATCHED_TERMS: ["err_timeout"],
        keys.SCORE_KIND: keys.SIMILARITY,
        keys.TEXT_SPANS: [(1, 14)],
    }


def test_what_this_package_notes_on_a_node_stays_out_of_prompts(retriever: KeywordRetriever) -> None:
    [found] = retriever.retrieve("ERR_TIMEOUT")
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "kl_" not in found.node.get_content(metadata_mode=mode)
    assert "api/timeout.md" in found.node.get_content(metadata_mode=MetadataMode.LLM)


def test_the_text_is_the_part_of_the_document_with_the_term(retriever: KeywordRetriever) -> None:
    [found] = retriever.retrieve("ERR_DEEP")
    text = found.node.get_content()
    assert len(text) <= 2000 < len(LONG)
    assert text.startswith("# 错误码")
    assert "## ERR_DEEP\n\n埋得很深的一节。" in text


def test_a_match_that_is_not_decisive_is_scored_by_the_share_of_the_query_that_it_covers(
    retriever: KeywordRetriever,
) -> None:
    nodes = retriever.retrieve("Redis")
    assert paths_of(nodes) == ["infra/cluster.md", "infra/sentinel.md"]
    assert [scored.score for scored in nodes] == [1.0, 1.0]
    assert [scored.node.metadata[keys.DECISIVE] for scored in nodes] == [False, False]
    assert {scored.node.metadata[keys.MATCH_COUNT] for scored in nodes} == {2}
    [found] = retriever.retrieve("ERR_TIMEOUT E17")
    assert found.node.metadata[keys.DECISIVE] is False
    assert found.score == pytest.approx(11 / 15)


def test_the_score_is_the_distance_where_semantic_search_gave_one(retriever: KeywordRetriever) -> None:
    matches = retriever.match("Redis")
    nodes = retriever.to_nodes(matches, matches.matches, distances={"infra/sentinel.md": 0.0, "api/codes.md": 1.0})
    assert [(scored.score, scored.node.metadata[keys.SCORE_KIND]) for scored in nodes] == [
        (0.0, keys.SIMILARITY),
        (0.0, keys.L2_DISTANCE),
    ]
    decisive = retriever.match("ERR_TIMEOUT")
    [found] = retriever.to_nodes(decisive, decisive.matches, distances={"api/timeout.md": 1.5})
    assert (found.score, found.node.metadata[keys.SCORE_KIND]) == (1.0, keys.SIMILARITY)


def test_no_match_is_no_node(retriever: KeywordRetriever) -> None:
    assert retriever.retrieve("今天中午吃什么") == []
    assert retriever.retrieve("") == []


def test_no_more_documents_come_back_than_asked_for_but_all_are_counted(index: KeywordIndex, base: Path) -> None:
    [found] = KeywordRetriever(index, KnowledgeFiles(base), similarity_top_k=1).retrieve("Redis")
    assert found.node.metadata[keys.FILE_PATH] == "infra/cluster.md"
    assert found.node.metadata[keys.MATCH_COUNT] == 2
    with pytest.raises(ValueError, match="similarity_top_k must be at least 1, got 0"):
        KeywordRetriever(index, KnowledgeFiles(base), similarity_top_k=0)


def test_a_document_that_is_gone_is_left_out_with_a_warning(
    retriever: KeywordRetriever, base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (base / "infra/cluster.md").unlink()
    with caplog.at_level(logging.WARNING, logger="knowledge_lookup"):
        assert paths_of(retriever.retrieve("Redis")) == ["infra/sentinel.md"]
    [record] = caplog.records
    assert "infra/cluster.md" in record.getMessage()
    assert "left out of the result" in record.getMessage()


def test_what_is_added_and_removed_later_counts_at_once(
    retriever: KeywordRetriever, index: KeywordIndex, base: Path
) -> None:
    write_documents(base, {"new.md": document("新文档。")})
    index.add(KeywordEntry("new.md", "新", "general", ("ERR_NEW",)))
    assert paths_of(retriever.retrieve("ERR_NEW")) == ["new.md"]
    index.remove("new.md")
    assert retriever.retrieve("ERR_NEW") == []


@pytest.mark.parametrize(
    "query", ["ERR_TIMEOUT", "ERR_TIMEOUT E17", "Redis", "支付网关超时", "ERR_DEEP和ERR_TIMEOUT的区别", "无关", ""]
)
async def test_async_and_sync_find_alike(retriever: KeywordRetriever, query: str) -> None:
    def evidence(nodes: list[NodeWithScore]) -> list[object]:
        return [
            (scored.node.node_id, scored.score, scored.node.metadata, scored.node.get_content()) for scored in nodes
        ]

    assert evidence(await retriever.aretrieve(query)) == evidence(retriever.retrieve(query))


async def test_llamaindex_keeps_a_decisive_hit_behind_its_own_similarity_filter(retriever: KeywordRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(
        retriever, MockLLM(), node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.99)]
    )
    for response in (engine.query("ERR_TIMEOUT"), await engine.aquery("ERR_TIMEOUT")):
        assert paths_of(response.source_nodes) == ["api/timeout.md"]
    assert engine.query("ERR_TIMEOUT E17").source_nodes == []


def test_the_same_document_has_the_same_node_id_in_every_result(retriever: KeywordRetriever) -> None:
    ids = {retriever.retrieve(query)[0].node.node_id for query in ["ERR_TIMEOUT", "支付网关", "ERR_TIMEOUT E17"]}
    assert len(ids) == 1
