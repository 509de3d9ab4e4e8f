"""Semantic retrieval with raw distances, by itself and inside LlamaIndex."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index_instrumentation import get_dispatcher

from knowledge_lookup.postprocessors import RelevancePostprocessor, relevance_level_of
from knowledge_lookup.retrievers import (
    EmbeddingError,
    KnowledgeLookupError,
    MilvusChunkStore,
    MilvusVectorRetriever,
    ScopedQueryBundle,
    VectorStoreError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers import metadata as keys
from tests.retrievers.broken_connections import black_hole
from tests.retrievers.chunks import (
    ACROSS,
    AHEAD,
    ASIDE,
    BEHIND,
    MODEL,
    ChosenVectors,
    chunk,
    event_loop_stays_free,
    paths_of,
)

QUERIES = {"ahead": AHEAD, "across": ACROSS, "long": (3.0, 3.0, 0.0, 0.0), "zero": (0.0, 0.0, 0.0, 0.0)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    store = MilvusChunkStore(
        uri=str(tmp_path_factory.mktemp("retriever") / "milvus.db"), embedding_model=MODEL, timeout=10
    )
    store.upsert(
        [
            chunk("behind.md", vector=BEHIND),
            chunk("ahead.md", vector=AHEAD),
            chunk("ahead.md", 1, vector=ASIDE),
            chunk("across.md", vector=ACROSS),
        ]
    )
    yield store
    store.close()


@pytest.fixture
def model() -> ChosenVectors:
    return ChosenVectors(QUERIES)


@pytest.fixture
def retriever(store: MilvusChunkStore, model: ChosenVectors) -> MilvusVectorRetriever:
    return MilvusVectorRetriever(store, model)


def test_the_score_is_the_raw_squared_distance_and_says_so(retriever: MilvusVectorRetriever) -> None:
    nodes = retriever.retrieve("ahead")
    assert paths_of(nodes) == ["ahead.md", "ahead.md", "across.md"]
    assert nodes[0].score == 0.0
    assert [scored.score for scored in nodes] == pytest.approx([0.0, 0.586, 2.0], abs=0.001)
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in nodes} == {keys.L2_DISTANCE}
    assert {scored.node.metadata[keys.MATCH_TYPE] for scored in nodes} == {keys.SEMANTIC_L1}


def test_a_perfect_hit_at_distance_zero_becomes_similarity_one(retriever: MilvusVectorRetriever) -> None:
    nodes = RelevancePostprocessor().postprocess_nodes(retriever.retrieve("ahead"))
    assert nodes[0].score == 1.0
    assert nodes[0].node.metadata[keys.DISTANCE] == 0.0
    assert relevance_level_of(nodes) == "HIGHLY_RELEVANT"


CASES: list[Any] = [
    "ahead",
    "across",
    "long",
    "a query that the table doesn't have",
    QueryBundle("ahead", embedding=list(BEHIND)),
    QueryBundle("ahead", custom_embedding_strs=["ahead", "across"]),
    ScopedQueryBundle("ahead", similarity_top_k=1),
    ScopedQueryBundle("ahead", exclude_documents=frozenset({"ahead.md"})),
    ScopedQueryBundle("ahead", only_documents=frozenset({"behind.md", "across.md"})),
    ScopedQueryBundle("ahead", only_documents=frozenset()),
    "",
    " \n",
    "zero",
]


@pytest.mark.parametrize("query", CASES, ids=str)
async def test_async_and_sync_find_and_fail_alike(retriever: MilvusVectorRetriever, query: Any) -> None:
    async def settled(answer: Awaitable[list[NodeWithScore]]) -> object:
        try:
            return [(scored.node.node_id, scored.score) for scored in await answer]
        except KnowledgeLookupError as error:
            return type(error), str(error)

    synchronous = await settled(asyncio.to_thread(retriever.retrieve, query))
    assert await settled(retriever.aretrieve(query)) == synchronous


def test_a_scope_restricts_the_search(retriever: MilvusVectorRetriever) -> None:
    def found(**scope: Any) -> list[str]:
        return paths_of(retriever.retrieve(ScopedQueryBundle("ahead", **scope)))

    assert found(similarity_top_k=1) == ["ahead.md"]
    assert found(exclude_documents=frozenset({"ahead.md"})) == ["across.md", "behind.md"]
    assert found(only_documents=frozenset({"behind.md"})) == ["behind.md"]
    assert found(only_documents=frozenset()) == []


@pytest.mark.parametrize("top_k", [0, -1])
def test_fewer_than_one_passage_cannot_be_asked_for(store: MilvusChunkStore, top_k: int) -> None:
    with pytest.raises(ValueError, match=f"similarity_top_k must be at least 1, got {top_k}"):
        ScopedQueryBundle("ahead", similarity_top_k=top_k)
    with pytest.raises(ValueError, match=f"similarity_top_k must be at least 1, got {top_k}"):
        MilvusVectorRetriever(store, ChosenVectors(), similarity_top_k=top_k)


# The embedding of the query


def test_a_bundle_with_an_embedding_is_not_embedded_again(store: MilvusChunkStore) -> None:
    def no_model() -> BaseEmbedding:
        raise AssertionError("the model isn't needed")

    retriever = MilvusVectorRetriever(store, no_model)
    assert paths_of(retriever.retrieve(QueryBundle("ahead", embedding=list(BEHIND))))[0] == "behind.md"


def test_a_model_given_as_a_function_is_asked_for_once_when_the_first_query_comes(store: MilvusChunkStore) -> None:
    built: list[ChosenVectors] = []

    def build() -> ChosenVectors:
        time.sleep(0.05)
        built.append(ChosenVectors(QUERIES))
        return built[-1]

    retriever = MilvusVectorRetriever(store, build)
    assert built == []
    barrier = Barrier(6)

    def retrieve() -> list[str]:
        barrier.wait()
        return paths_of(retriever.retrieve("ahead"))[:1]

    with ThreadPoolExecutor(6) as threads:
        assert [future.result() for future in [threads.submit(retrieve) for _ in range(6)]] == [["ahead.md"]] * 6
    assert len(built) == 1
    assert built[0].asked == ["ahead"] * 6


def test_a_vector_of_any_length_counts_by_its_direction(retriever: MilvusVectorRetriever) -> None:
    [nearest, *_] = retriever.retrieve("long")
    assert nearest.node.metadata[keys.CHUNK_INDEX] == 1
    assert nearest.score == pytest.approx(0.0, abs=1e-6)
    [nearest, *_] = retriever.retrieve(QueryBundle("", embedding=[0.0, 7.0, 0.0, 0.0]))
    assert paths_of([nearest]) == ["across.md"]
    assert nearest.score == pytest.approx(0.0, abs=1e-6)


def test_an_empty_query_finds_nothing_and_asks_no_model(retriever: MilvusVectorRetriever, model: ChosenVectors) -> None:
    for query in ["", "  \n", QueryBundle("ahead", custom_embedding_strs=[])]:
        assert retriever.retrieve(query) == []
    assert model.asked == []


def test_a_useless_vector_is_an_error_that_names_the_model(retriever: MilvusVectorRetriever) -> None:
    with pytest.raises(EmbeddingError, match=r"^embedding model 'model-a' returned a vector of length 0\.0; .*$"):
        retriever.retrieve("zero")


def test_a_failing_model_is_one_error_with_its_cause(store: MilvusChunkStore) -> None:
    class Failing(ChosenVectors):
        def _get_query_embedding(self, query: str) -> list[float]:
            raise ConnectionError("no route\nto host")

    with pytest.raises(
        EmbeddingError, match=r"^embedding model 'model-a' failed \(ConnectionError: no route to host\)"
    ):
        MilvusVectorRetriever(store, Failing()).retrieve("ahead")


def test_vectors_of_another_length_than_the_collections_are_refused(store: MilvusChunkStore) -> None:
    retriever = MilvusVectorRetriever(store, ChosenVectors({"ahead": (1.0, 0.0)}))
    with pytest.raises(VectorStoreError, match="holds vectors of length 4, the embedding model gives 2"):
        retriever.retrieve("ahead")


# Event loops


def test_it_works_in_one_event_loop_after_another(retriever: MilvusVectorRetriever) -> None:
    for _ in range(3):
        assert paths_of(asyncio.run(retriever.aretrieve("ahead")))[0] == "ahead.md"


async def test_it_works_many_times_at_once(retriever: MilvusVectorRetriever) -> None:
    answers = await asyncio.gather(*(retriever.aretrieve(query) for query in ["ahead", "across"] * 10))
    assert [paths_of(nodes)[0] for nodes in answers] == ["ahead.md", "across.md"] * 10


async def test_the_event_loop_is_free_while_milvus_is_waited_for(model: ChosenVectors) -> None:
    with black_hole() as port:
        silent = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.5)
        async with event_loop_stays_free():
            with pytest.raises(VectorStoreUnavailableError):
                await MilvusVectorRetriever(silent, model).aretrieve("ahead")


async def test_the_event_loop_is_free_while_the_model_loads_and_embeds(store: MilvusChunkStore) -> None:
    class Slow(ChosenVectors):
        def _get_query_embedding(self, query: str) -> list[float]:
            time.sleep(0.4)
            return super()._get_query_embedding(query)

    def load() -> BaseEmbedding:
        time.sleep(0.4)
        return Slow()

    async with event_loop_stays_free():
        assert await MilvusVectorRetriever(store, load).aretrieve("ahead")


# Inside LlamaIndex


class Events(BaseEventHandler):
    """Keeps the events of retrieval."""

    seen: list[BaseEvent] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Events"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        if isinstance(event, RetrievalStartEvent | RetrievalEndEvent):
            self.seen.append(event)


@pytest.fixture
def events() -> Iterator[Events]:
    dispatcher = get_dispatcher()
    handler = Events()
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.event_handlers.remove(handler)


async def test_llamaindex_is_told_of_each_retrieval(retriever: MilvusVectorRetriever, events: Events) -> None:
    retriever.retrieve("ahead")
    await retriever.aretrieve("across")
    started, ended, started_async, ended_async = events.seen
    assert isinstance(started, RetrievalStartEvent)
    assert isinstance(started_async, RetrievalStartEvent)
    assert [str(event.str_or_query_bundle) for event in (started, started_async)] == ["ahead", "across"]
    assert isinstance(ended, RetrievalEndEvent)
    assert isinstance(ended_async, RetrievalEndEvent)
    assert [paths_of(event.nodes)[0] for event in (ended, ended_async)] == ["ahead.md", "across.md"]


async def test_a_query_engine_gets_similarities_with_the_postprocessor(retriever: MilvusVectorRetriever) -> None:
    engine = RetrieverQueryEngine.from_args(retriever, MockLLM(), node_postprocessors=[RelevancePostprocessor()])
    for response in (engine.query("ahead"), await engine.aquery("ahead")):
        assert [scored.score for scored in response.source_nodes] == pytest.approx([1.0, 0.707], abs=0.001)


def test_a_vector_store_of_the_application_can_be_given(tmp_path: Path, model: ChosenVectors) -> None:
    def vector_store(metric: str) -> MilvusVectorStore:
        uri = str(tmp_path / "theirs.db")
        return MilvusVectorStore(
            uri=uri, collection_name=metric, dim=4, similarity_metric=metric, use_async_client=False
        )

    theirs = vector_store("L2")
    theirs.add([chunk("a.md", vector=ASIDE)])
    [found] = MilvusVectorRetriever(theirs, model).retrieve("ahead")
    assert paths_of([found]) == ["a.md"]
    assert found.score == pytest.approx(0.586, abs=0.001)
    with pytest.raises(VectorStoreError, match="build it with similarity_metric='L2'"):
        MilvusVectorRetriever(vector_store("IP"), model)
