"""Retrieval by meaning and by words, by itself and inside LlamaIndex."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Collection, Iterator, Sequence
from math import log1p
from typing import Any

import pytest
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from knowledge_lookup.postprocessors import EvidencePostprocessor, EvidenceProfile, EvidenceWeights, relevance_level_of
from knowledge_lookup.retrievers import (
    Bm25Index,
    EmbeddingError,
    HybridRetriever,
    KnowledgeLookupError,
    MilvusChunkStore,
    MilvusVectorRetriever,
    ScopedQueryBundle,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.milvus_rows import FetchedRow
from knowledge_lookup.retrievers.passage import Passage
from tests.retrievers.chunks import (
    ACROSS,
    AHEAD,
    BEHIND,
    MODEL,
    ChosenVectors,
    chunk,
    event_loop_stays_free,
    paths_of,
    vector_at,
)

DEPTH = 20
"""Candidates of each search."""
NEAR = [f"near/{number:02}.md" for number in range(DEPTH + 5)]
"""Documents so near to ``AHEAD`` that no other one is among the candidates of the search by meaning."""
SAME = [f"same/{number:02}.md" for number in range(DEPTH + 1)]
"""One document more than the search by meaning returns, all at the same place."""


def similarity_of(path: str) -> float:
    return 0.95 - 0.01 * NEAR.index(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    """Give a store in which a test that changes something mends it."""
    store = MilvusChunkStore(
        uri=str(tmp_path_factory.mktemp("hybrid") / "milvus.db"), embedding_model=MODEL, timeout=10
    )
    store.upsert(
        [
            chunk(NEAR[0], vector=vector_at(similarity_of(NEAR[0])), text="网关重启"),
            *(chunk(path, vector=vector_at(similarity_of(path)), text="网关重启的步骤") for path in NEAR[1:-1]),
            chunk(NEAR[-1], vector=vector_at(similarity_of(NEAR[-1])), text="网关重启的步骤，见 gateway 手册"),
            *(
                chunk(path, vector=(0.0, 0.0, 1.0, 0.0), text=f"参数 same_key_{number:02} 的含义")
                for number, path in enumerate(SAME)
            ),
            chunk("oracle.md", vector=ACROSS, text="ORA-12541：监听程序未启动"),
            chunk("oracle.md", 1, vector=BEHIND, text="ORA-12514：监听程序不认识服务名"),
            chunk(
                "quo'te\".md",
                vector=BEHIND,
                text="ORA-00600: internal error code, for what it means see the trace file",
            ),
        ]
    )
    yield store
    store.close()


@pytest.fixture(scope="module")
def index(store: MilvusChunkStore) -> Bm25Index:
    return Bm25Index(store)


@pytest.fixture
def model() -> ChosenVectors:
    sames = {f"same_key_{number:02}": (0.0, 0.0, 1.0, 0.0) for number in range(len(SAME))}
    return ChosenVectors({**sames, "zero": (0.0, 0.0, 0.0, 0.0)})


@pytest.fixture
def retriever(store: MilvusChunkStore, index: Bm25Index, model: ChosenVectors) -> HybridRetriever:
    return HybridRetriever(MilvusVectorRetriever(store, model), index)


def ranks(scored: NodeWithScore) -> tuple[int | None, int | None]:
    """Give the dense and the sparse rank."""
    return scored.node.metadata.get(keys.DENSE_RANK), scored.node.metadata.get(keys.SPARSE_RANK)


def retrieved(retriever: HybridRetriever, query: str, **scope: Any) -> list[NodeWithScore]:
    return retriever.retrieve(ScopedQueryBundle(query, **scope))


# What is found, in which order, with which score


def test_a_search_for_another_retriever_finds_what_retrieving_finds(retriever: HybridRetriever) -> None:
    for query in ("ORA-12541 怎么处理", "kafka 积压", " "):
        bundle = ScopedQueryBundle(query, similarity_top_k=30)
        found = retriever.search(bundle)
        assert found == retriever.retrieve(bundle)
        known = {scored.node.node_id for scored in found[::2]}
        assert retriever.search(bundle, known=known) == found[1::2]
    assert retriever.search(ScopedQueryBundle(" ")) == []


def test_the_words_are_searched_while_the_query_is_embedded(store: MilvusChunkStore) -> None:
    searched = threading.Event()

    class WaitingModel(ChosenVectors):
        def _get_query_embedding(self, query: str) -> list[float]:
            assert searched.wait(10), "nobody searched by words meanwhile"
            return super()._get_query_embedding(query)

    class TellingStore(MilvusVectorRetriever):
        def fetch(self, node_ids: Sequence[str]) -> dict[str, FetchedRow]:
            rows = super().fetch(node_ids)
            searched.set()
            return rows

    retriever = HybridRetriever(TellingStore(store, WaitingModel()), Bm25Index(store))
    found = retriever.retrieve("ORA-12541 怎么处理")
    assert found[0].node.metadata[keys.FILE_PATH] == "oracle.md"
    # Another time the embedding is known.
    assert retriever.retrieve("ORA-12541 怎么处理") == found


def test_a_failure_of_the_search_by_words_is_the_retrievers(store: MilvusChunkStore) -> None:
    class NoPassages:
        def passages(self, file_paths: Collection[str] | None = None) -> Iterator[Passage]:
            raise VectorStoreUnavailableError("Milvus doesn't answer")

    retriever = HybridRetriever(MilvusVectorRetriever(store, ChosenVectors()), Bm25Index(NoPassages()))
    for _ in range(2):  # with an embedding made, and with one that is known
        with pytest.raises(VectorStoreUnavailableError, match="doesn't answer"):
            retriever.retrieve("ORA-12541 怎么处理")


def test_an_exact_identifier_comes_before_nearer_passages_with_its_own_distance(retriever: HybridRetriever) -> None:
    first, second, third = retriever.retrieve("ORA-12541 怎么处理")
    # By meaning both come behind 46 other passages; what was found by words alone is measured, not guessed.
    assert [first.node.get_content(), second.node.get_content()] == [
        "ORA-12541：监听程序未启动",
        "ORA-12514：监听程序不认识服务名",
    ]
    assert [first.score, second.score] == pytest.approx([2.0, 4.0], abs=1e-5)
    assert [ranks(first), ranks(second)] == [(None, 1), (None, 2)]
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in (first, second, third)} == {keys.L2_DISTANCE}


def test_without_a_common_word_the_order_is_that_of_the_search_by_meaning(retriever: HybridRetriever) -> None:
    nodes = retrieved(retriever, "kafka 积压", similarity_top_k=5)
    assert paths_of(nodes) == NEAR[:5]
    assert [ranks(scored) for scored in nodes] == [(rank, None) for rank in range(1, 6)]
    assert [scored.score for scored in nodes] == pytest.approx(
        [2.0 - 2.0 * similarity_of(path) for path in NEAR[:5]], abs=1e-5
    )


def test_a_distance_of_zero_stays_zero_however_the_passage_was_found(retriever: HybridRetriever) -> None:
    found_by = []
    for number, path in enumerate(SAME):
        nodes = retrieved(retriever, f"same_key_{number:02}", similarity_top_k=DEPTH)
        assert {scored.score for scored in nodes} == {0.0}
        [own] = [scored for scored in nodes if scored.node.metadata[keys.FILE_PATH] == path]
        found_by.append(ranks(own)[0] is None)
        assert ranks(own)[1] == 1
    # of 21 passages at one place the search by meaning returns 20: the other one is found by its words alone
    assert found_by.count(True) == 1


def test_the_fused_order_is_that_of_the_weighted_reciprocal_ranks(retriever: HybridRetriever, index: Bm25Index) -> None:
    # All near documents have a word of it; the last of them has two, but isn't found by meaning.
    nodes = retrieved(retriever, "gateway 重启 kafka", similarity_top_k=DEPTH)
    weights = {"gateway": rarity(index, "gateway"), "重启": rarity(index, "重启"), "kafka": rarity(index, "kafka")}
    coverage = 1.0 - weights["kafka"] / sum(weights.values())  # of the best by words, which has two of the three

    def fused(scored: NodeWithScore) -> float:
        dense_rank, sparse_rank = ranks(scored)
        by_meaning = 0.0 if dense_rank is None else 1.0 / (10 + dense_rank)
        return by_meaning + (0.0 if sparse_rank is None else (1.0 + 3.0 * coverage) / (10 + sparse_rank))

    place = paths_of(nodes).index(NEAR[-1])
    assert ranks(nodes[place]) == (None, 1)
    assert 0 < place < DEPTH - 1
    scores = [fused(scored) for scored in nodes]
    assert scores == sorted(scores, reverse=True)
    assert len({ranks(scored) for scored in nodes}) == len(nodes) == DEPTH


def test_who_asks_for_one_passage_gets_the_first_of_many(retriever: HybridRetriever) -> None:
    query = "gateway 重启 kafka"
    # first by meaning and second by words: one candidate of each search wouldn't show it
    [first] = retrieved(retriever, query, similarity_top_k=1)
    assert ranks(first) == (1, 2)
    assert paths_of([first]) == paths_of(retrieved(retriever, query, similarity_top_k=DEPTH))[:1]


def rarity(index: Bm25Index, term: str) -> float:
    total, containing = max(index.passage_count(), 100), index.passage_frequency(term)
    return log1p((total - containing + 0.5) / (containing + 0.5))


def test_a_question_in_another_script_is_not_led_astray_by_a_stray_latin_word(retriever: HybridRetriever) -> None:
    english = retriever.retrieve("how can I upgrade the gateway")
    assert paths_of(english)[0] == NEAR[0]
    # in a question in the passages' own script the same word counts
    chinese = retriever.retrieve("gateway 怎么升级")
    assert paths_of(chinese)[0] == NEAR[-1]


def test_an_identifier_by_itself_counts_in_a_text_of_another_script(retriever: HybridRetriever) -> None:
    assert paths_of(retriever.retrieve("ORA-12541"))[:2] == ["oracle.md", "oracle.md"]


def test_what_the_ranks_say_is_hidden_from_llm_and_embedding_model(retriever: HybridRetriever) -> None:
    for scored in retriever.retrieve("ORA-12541"):
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert "kl_" not in scored.node.get_content(metadata_mode=mode)


def test_a_passage_that_is_deleted_but_still_in_the_index_of_words_is_left_out(
    retriever: HybridRetriever, store: MilvusChunkStore, index: Bm25Index
) -> None:
    store.upsert([chunk("gone.md", vector=BEHIND, text="ORA-12541 ORA-12541")])
    index.mark_changed("gone.md")
    assert paths_of(retriever.retrieve("ORA-12541"))[0] == "gone.md"
    store.delete_documents(["gone.md"])
    try:
        nodes = retriever.retrieve("ORA-12541")
    finally:
        index.mark_changed("gone.md")
    assert paths_of(nodes)[:2] == ["oracle.md", "oracle.md"]
    assert [ranks(scored) for scored in nodes[:2]] == [(None, 1), (None, 2)]


# Scope and number


def test_the_number_is_the_vector_retrievers_the_own_one_or_the_querys(
    store: MilvusChunkStore, index: Bm25Index, model: ChosenVectors
) -> None:
    by_meaning = MilvusVectorRetriever(store, model, similarity_top_k=4)
    assert len(HybridRetriever(by_meaning, index).retrieve("网关")) == 4
    own = HybridRetriever(by_meaning, index, similarity_top_k=2)
    assert len(own.retrieve("网关")) == 2
    assert len(retrieved(own, "网关", similarity_top_k=1)) == 1
    more = retrieved(own, "kafka", similarity_top_k=DEPTH + 7)
    assert [ranks(scored) for scored in more] == [(rank, None) for rank in range(1, DEPTH + 8)]
    with pytest.raises(ValueError, match="similarity_top_k must be at least 1, got 0"):
        HybridRetriever(by_meaning, index, similarity_top_k=0)


def test_excluded_documents_come_from_neither_search(retriever: HybridRetriever) -> None:
    nodes = retrieved(
        retriever, "ORA-12541", exclude_documents=frozenset({"oracle.md", NEAR[0]}), similarity_top_k=DEPTH
    )
    assert not {"oracle.md", NEAR[0]} & set(paths_of(nodes))
    # what is left has the first places: another passage with the prefix, and the next by meaning
    by_rank = {ranks(scored): path for scored, path in zip(nodes, paths_of(nodes), strict=True)}
    assert by_rank[None, 1] == "quo'te\".md"
    assert by_rank[1, None] == NEAR[1]


def test_only_the_documents_of_the_scope_come_from_both_searches(retriever: HybridRetriever) -> None:
    scope = frozenset({"quo'te\".md", NEAR[3], SAME[0]})
    nodes = retrieved(retriever, "ORA-12541", only_documents=scope, similarity_top_k=50)
    assert {path: ranks(scored) for scored, path in zip(nodes, paths_of(nodes), strict=True)} == {
        "quo'te\".md": (3, 1),
        NEAR[3]: (1, None),
        SAME[0]: (2, None),
    }
    assert retrieved(retriever, "ORA-12541", only_documents=frozenset()) == []


def test_a_plain_bundle_is_unrestricted_and_its_embedding_is_taken(store: MilvusChunkStore, index: Bm25Index) -> None:
    retriever = HybridRetriever(MilvusVectorRetriever(store, _no_model), index)
    nodes = retriever.retrieve(QueryBundle("kafka", embedding=list(ACROSS)))
    assert paths_of(nodes)[0] == "oracle.md"
    assert nodes[0].score == 0.0
    # without a query text there is nothing to search by words, but the vector is
    nodes = retriever.retrieve(QueryBundle("", embedding=list(ACROSS)))
    assert [ranks(scored) for scored in nodes] == [(1, None), (2, None), (3, None)]
    assert nodes[0].score == 0.0


def _no_model() -> ChosenVectors:
    raise AssertionError("the model isn't needed")


def test_a_query_is_embedded_once_and_the_callers_bundle_stays_as_it_is(
    retriever: HybridRetriever, model: ChosenVectors
) -> None:
    bundle = QueryBundle("ORA-12541")
    retriever.retrieve(bundle)
    assert model.asked == ["ORA-12541"]
    assert bundle == QueryBundle("ORA-12541")


async def test_it_embeds_as_the_vector_retriever_does(retriever: HybridRetriever) -> None:
    assert retriever.embed(QueryBundle("kafka")) == list(AHEAD)
    assert await retriever.aembed(QueryBundle("kafka")) == list(AHEAD)


# Both ways to call it

CASES: list[Any] = [
    "ORA-12541",
    "网关怎么重启",
    "kafka",
    "怎么办",
    "?!",
    QueryBundle("ORA-12541", embedding=list(BEHIND)),
    QueryBundle("ORA-12541", custom_embedding_strs=["same_key_01"]),
    QueryBundle("ORA-12541", custom_embedding_strs=[]),
    ScopedQueryBundle("ORA-12541", similarity_top_k=1),
    ScopedQueryBundle("ORA-12541", exclude_documents=frozenset({"oracle.md"})),
    ScopedQueryBundle("ORA-12541", only_documents=frozenset({NEAR[2]})),
    ScopedQueryBundle("ORA-12541", only_documents=frozenset()),
    "",
    " \n",
    "zero",
]


@pytest.mark.parametrize("query", CASES, ids=str)
async def test_async_and_sync_find_and_fail_alike(retriever: HybridRetriever, query: Any) -> None:
    async def settled(answer: Awaitable[list[NodeWithScore]]) -> object:
        try:
            return [(scored.node.node_id, scored.score, scored.node.metadata) for scored in await answer]
        except KnowledgeLookupError as error:
            return type(error), str(error)

    synchronous = await settled(asyncio.to_thread(retriever.retrieve, query))
    assert await settled(retriever.aretrieve(query)) == synchronous


def test_an_empty_query_finds_nothing_and_asks_no_model(retriever: HybridRetriever, model: ChosenVectors) -> None:
    for query in ["", "  \n", QueryBundle("ORA-12541", custom_embedding_strs=[])]:
        assert retriever.retrieve(query) == []
    assert model.asked == []


def test_a_useless_vector_is_an_error_that_names_the_model(retriever: HybridRetriever) -> None:
    with pytest.raises(EmbeddingError, match=r"^embedding model 'model-a' returned a vector of length 0\.0; .*$"):
        retriever.retrieve("zero")


async def test_the_event_loop_is_free_while_the_model_embeds_and_the_words_are_read(
    store: MilvusChunkStore,
) -> None:
    class Slow(ChosenVectors):
        def _get_query_embedding(self, query: str) -> list[float]:
            time.sleep(0.4)
            return super()._get_query_embedding(query)

    class SlowSource:
        def passages(self, file_paths: object = None) -> Any:
            time.sleep(0.4)
            return store.passages()

    retriever = HybridRetriever(MilvusVectorRetriever(store, Slow()), Bm25Index(SlowSource()))
    async with event_loop_stays_free():
        assert paths_of(await retriever.aretrieve("ORA-12541"))[0] == "oracle.md"


async def test_it_works_many_times_at_once(retriever: HybridRetriever) -> None:
    queries = ["ORA-12541", "same_key_07", "kafka"] * 5
    answers = await asyncio.gather(*(retriever.aretrieve(query) for query in queries))
    assert [paths_of(nodes)[0] for nodes in answers] == ["oracle.md", SAME[7], NEAR[0]] * 5


# Inside LlamaIndex


async def test_a_query_engine_gets_probabilities_that_a_similarity_cut_off_understands(
    retriever: HybridRetriever, index: Bm25Index
) -> None:
    weights = EvidenceWeights(intercept=-4.0, lift=0.0, coverage=8.0, unknown=0.0, information=0.0)
    profile = EvidenceProfile(weights, weights, highly_relevant_threshold=0.9, reference_threshold=0.01)
    evidence = EvidencePostprocessor(statistics=index, profile=profile)
    engine = RetrieverQueryEngine.from_args(
        retriever, MockLLM(), node_postprocessors=[evidence, SimilarityPostprocessor(similarity_cutoff=0.5)]
    )
    for response in (engine.query("ORA-12541"), await engine.aquery("ORA-12541")):
        # the identifier's passage at similarity 0 against ones at 0.95 without the word
        [kept] = response.source_nodes
        assert kept.node.get_content() == "ORA-12541：监听程序未启动"
        assert kept.score == pytest.approx(0.982, abs=0.001)  # 1 / (1 + e**-4)
        assert relevance_level_of([kept]) == "HIGHLY_RELEVANT"
    assert len(evidence.postprocess_nodes(retriever.retrieve("ORA-12541"), query_str="ORA-12541")) == 3
