"""Judging a result by all its evidence, through the public face of the postprocessor."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log, nextafter
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from knowledge_lookup.postprocessors import (
    Evidence,
    EvidencePostprocessor,
    EvidenceProfile,
    EvidenceWeights,
    RelevanceLevel,
    RelevancePostprocessor,
    completeness_hint,
    evidence_of,
    relevance_level_of,
)
from knowledge_lookup.retrievers import Bm25Index, MilvusChunkStore, MilvusVectorRetriever
from knowledge_lookup.retrievers import metadata as keys
from tests.postprocessors.nodes import Counted, distance_of, exact, passage
from tests.retrievers.chunks import MODEL, ChosenVectors, chunk, event_loop_stays_free, paths_of, vector_at

QUERY = "Redis 淘汰"
CORPUS = Counted(100, {"redis": 50, "淘汰": 30})
REDIS, EVICTION = log(1 + 50.5 / 50.5), log(1 + 70.5 / 30.5)
NO_WEIGHT = EvidenceWeights(intercept=0.0, lift=0.0, coverage=0.0, unknown=0.0, information=0.0)
WEIGHTS = replace(NO_WEIGHT, intercept=-3.0, lift=5.0, coverage=6.0)
PROFILE = EvidenceProfile(WEIGHTS, WEIGHTS, highly_relevant_threshold=0.8, reference_threshold=0.3)
KEEP_ALL = replace(PROFILE, reference_threshold=0.0)


def logistic(log_odds: float) -> float:
    return 1.0 / (1.0 + exp(-log_odds))


def judge(**options: Any) -> EvidencePostprocessor:
    return EvidencePostprocessor(**{"statistics": CORPUS, "profile": PROFILE, **options})


def judged(nodes: list[NodeWithScore], *, query: str = QUERY, **options: Any) -> list[NodeWithScore]:
    return judge(**options).postprocess_nodes(nodes, query_str=query)


def text(words: str, similarity: float, *, path: str | None = None, **marks: Any) -> NodeWithScore:
    """Make a passage of a document of its own, unless a path is given."""
    document = words if path is None else path
    node = TextNode(id_=f"{document} {words}", text=words, metadata={keys.FILE_PATH: document})
    own = {keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE}
    return keys.annotate(NodeWithScore(node=node), score=distance_of(similarity), annotations={**own, **marks})


def seen(nodes: list[NodeWithScore]) -> list[tuple[str, float | None, dict[str, Any]]]:
    return [(scored.node.node_id, scored.score, scored.node.metadata) for scored in nodes]


def evidence(scored: NodeWithScore) -> Evidence:
    found = evidence_of(scored)
    assert found is not None
    return found


# Probabilities


def test_the_score_is_the_probability_that_the_profile_makes_of_the_evidence() -> None:
    (both, one) = judged([text("Redis 集群", 0.9), text("Redis 的淘汰策略", 0.7)])
    assert paths_of([both, one]) == ["Redis 的淘汰策略", "Redis 集群"]
    coverage = REDIS / (REDIS + EVICTION)
    assert both.score == pytest.approx(logistic(-3.0 + 5.0 * (0.7 - 0.9) + 6.0))
    assert one.score == pytest.approx(logistic(-3.0 + 5.0 * (0.9 - 0.7) + 6.0 * coverage))
    assert evidence(both).coverage == 1.0
    assert evidence(one).coverage == pytest.approx(coverage)


def test_distance_similarity_and_features_stay_beside_the_probability() -> None:
    (node,) = judged([text("Redis 的淘汰策略", 0.7)])
    metadata = node.node.metadata
    assert metadata[keys.SCORE_KIND] == keys.PROBABILITY
    assert metadata[keys.DISTANCE] == pytest.approx(0.6)
    assert metadata[keys.SIMILARITY_SCORE] == pytest.approx(0.7)
    assert evidence(node).similarity == pytest.approx(0.7)


def test_title_and_section_count_among_the_words() -> None:
    given = text("取值有八种", 0.8)
    given.node.metadata |= {keys.TITLE: "Redis", keys.SECTION: "淘汰"}
    (node,) = judged([given])
    assert evidence(node).coverage == 1.0


def test_a_question_in_another_script_is_judged_by_the_other_weights() -> None:
    profile = replace(PROFILE, other_script_weights=replace(NO_WEIGHT, intercept=2.0))
    chinese, english = text("淘汰策略", 0.6), text("eviction of keys", 0.6)
    nodes = judged([chinese, english], query="eviction policy", profile=profile)
    by_text = {scored.node.get_content(): scored.score for scored in nodes}
    assert by_text["淘汰策略"] == pytest.approx(logistic(2.0))
    # of the query's two words, both unknown and so of equal weight, the English passage has one
    assert by_text["eviction of keys"] == pytest.approx(logistic(-3.0 + 6.0 * 0.5))


def test_a_distance_of_zero_is_the_nearest_and_not_a_miss() -> None:
    (node,) = judged([text("网关", 1.0), text("支付", 0.0)])
    assert paths_of([node]) == ["网关"]
    assert node.node.metadata[keys.DISTANCE] == 0.0
    assert node.node.metadata[keys.SIMILARITY_SCORE] == 1.0
    assert node.score == pytest.approx(logistic(-3.0 + 5.0))


def test_the_maximum_distance_is_the_profiles() -> None:
    postprocessor = judge(profile=replace(PROFILE, max_l2_distance=4.0))
    assert postprocessor.max_l2_distance == 4.0
    (node,) = postprocessor.postprocess_nodes([text("Redis 的淘汰策略", 0.5)], query_str=QUERY)
    assert node.node.metadata[keys.SIMILARITY_SCORE] == pytest.approx(0.75)


def test_a_node_without_a_score_is_dropped_and_is_no_evidence_for_its_document() -> None:
    nodes = judged([passage("Redis 淘汰", None), text("网关", 0.9, path="Redis 淘汰")], profile=KEEP_ALL)
    assert [scored.score for scored in nodes] == [pytest.approx(logistic(-3.0))]
    assert judged([passage("Redis 淘汰", None)], profile=KEEP_ALL) == []


# A document's passages together


def test_the_best_passage_has_the_nearest_ones_similarity_and_the_best_coverage_of_its_document() -> None:
    nearest, wordy = text("集群", 0.9, path="a.md"), text("Redis 的淘汰策略", 0.8, path="a.md")
    best, other = judged([nearest, wordy], profile=KEEP_ALL)
    # By itself the passage with the words is the better one, log odds 3 against -2.5: it speaks for the document.
    assert best.node.get_content() == "Redis 的淘汰策略"
    assert (evidence(best).similarity, evidence(best).coverage) == (pytest.approx(0.9), 1.0)
    assert best.score == pytest.approx(logistic(-3.0 + 5.0 * 0.1 + 6.0))
    assert best.node.metadata[keys.SIMILARITY_SCORE] == pytest.approx(0.8)
    # The other one keeps its own, as far as it's worth returning at all.
    assert (evidence(other).similarity, evidence(other).coverage) == (pytest.approx(0.9), 0.0)
    assert other.score == pytest.approx(logistic(-3.0 + 5.0 * 0.1))


def test_passages_of_other_documents_are_no_evidence() -> None:
    nodes = judged([text("集群", 0.95, path="a.md"), text("Redis 的淘汰策略", 0.8, path="b.md")], profile=KEEP_ALL)
    assert [(path, evidence(scored).coverage) for path, scored in zip(paths_of(nodes), nodes, strict=True)] == [
        ("b.md", 1.0),
        ("a.md", 0.0),
    ]


def test_nodes_that_belong_to_no_document_are_judged_one_by_one() -> None:
    nodes = [
        NodeWithScore(node=TextNode(id_="near", text="集群"), score=0.95),
        NodeWithScore(node=TextNode(id_="wordy", text="Redis 的淘汰策略"), score=0.8),
    ]
    found = judged(nodes, unmarked_scores="similarity", profile=KEEP_ALL)
    assert {s.node.node_id: evidence(s).similarity for s in found} == {"near": 0.95, "wordy": 0.8}


# How similar other documents are

LIFT = replace(NO_WEIGHT, lift=10.0)
LIFT_ONLY = replace(KEEP_ALL, weights=LIFT, other_script_weights=LIFT)


def lifts(nodes: list[NodeWithScore]) -> dict[str, float]:
    return {scored.node.get_content(): evidence(scored).lift for scored in judged(nodes, profile=LIFT_ONLY)}


def test_a_passage_is_compared_with_other_documents_and_not_with_its_own() -> None:
    nodes = [text("near", 0.9, path="a.md"), text("own", 0.88, path="a.md"), text("b", 0.7), text("c", 0.5)]
    assert lifts(nodes) == pytest.approx(
        {"near": 0.9 - (0.7 + 0.5) / 2, "own": 0.88 - (0.7 + 0.5) / 2, "b": 0.7 - (0.9 + 0.5) / 2, "c": 0.5 - 0.8}
    )
    first = judged(nodes, profile=LIFT_ONLY)[0]
    assert first.score == pytest.approx(logistic(10.0 * 0.3))


def test_of_one_document_alone_the_weaker_half_is_what_a_passage_is_compared_with() -> None:
    nodes = [text(str(value), value, path="a.md") for value in (0.7, 0.9, 0.6, 0.8)]
    assert lifts(nodes)["0.9"] == pytest.approx(0.9 - (0.7 + 0.6) / 2)
    assert lifts([text("a", 0.9)]) == {"a": 0.0}


def test_neither_keyword_matches_nor_nodes_without_a_score_count_for_the_comparison() -> None:
    nodes = [exact("m.md", score=0.0), passage("none.md", None), text("a", 0.9), text("b", 0.7)]
    found = {scored.node.get_content(): evidence_of(scored) for scored in judged(nodes, profile=LIFT_ONLY)}
    assert found["m.md"] is None
    assert found["a"] is not None
    assert found["a"].lift == pytest.approx(0.2)
    assert "none.md" not in found


# Levels, thresholds, order


@pytest.mark.parametrize(
    ("probability", "level"),
    [
        (0.8, RelevanceLevel.HIGHLY_RELEVANT),
        (nextafter(0.8, 0.0), RelevanceLevel.REFERENCE),
        (0.3, RelevanceLevel.REFERENCE),
        (nextafter(0.3, 0.0), None),
        (0.0, None),
        (1.0, RelevanceLevel.HIGHLY_RELEVANT),
    ],
)
def test_thresholds_are_inclusive(probability: float, level: RelevanceLevel | None) -> None:
    already = keys.annotate(text("a", 0.9), score=probability, annotations={keys.SCORE_KIND: keys.PROBABILITY})
    nodes = judge().postprocess_nodes([already])
    assert relevance_level_of(nodes) is level
    assert len(nodes) == (level is not None)


def test_a_threshold_may_equal_a_probability_of_the_profile_itself() -> None:
    certain = judged([text("Redis 的淘汰策略", 0.7)])[0].score
    assert certain is not None
    at = replace(PROFILE, highly_relevant_threshold=certain)
    above = replace(PROFILE, highly_relevant_threshold=nextafter(certain, 1.0))
    levels = [relevance_level_of(judged([text("Redis 的淘汰策略", 0.7)], profile=profile)) for profile in (at, above)]
    assert levels == [RelevanceLevel.HIGHLY_RELEVANT, RelevanceLevel.REFERENCE]


def test_what_is_not_relevant_is_dropped_and_the_rest_comes_best_first() -> None:
    nodes = judged([text("网关", 0.8), text("Redis 集群", 0.9), text("Redis 的淘汰策略", 0.7)])
    assert paths_of(nodes) == ["Redis 的淘汰策略", "Redis 集群"]
    assert judged([text("网关", 0.8)]) == []
    assert judged([]) == []


def test_keyword_matches_stay_first_and_are_never_dropped() -> None:
    nodes = judged(
        [text("Redis 的淘汰策略", 0.9), exact("far.md"), text("网关", 0.1), exact("b.md")],
    )
    assert paths_of(nodes) == ["far.md", "b.md", "Redis 的淘汰策略"]
    assert relevance_level_of(nodes) is RelevanceLevel.HIGHLY_RELEVANT
    only_matches = judged([exact("a.md"), exact("b.md"), text("网关", 0.1)])
    assert paths_of(only_matches) == ["a.md", "b.md"]
    assert relevance_level_of(only_matches) is RelevanceLevel.REFERENCE


def test_a_decisive_match_is_precise_and_keeps_its_score() -> None:
    decisive = exact("a.md", score=1.0, decisive=True)
    for nodes in (judged([decisive]), judge().postprocess_nodes([decisive])):
        assert [scored.score for scored in nodes] == [1.0]
        assert relevance_level_of(nodes) is RelevanceLevel.PRECISE
    assert relevance_level_of(judged([exact("a.md", decisive=False), text("网关", 0.1)])) is RelevanceLevel.REFERENCE


def test_a_match_scored_by_a_distance_gets_its_documents_probability() -> None:
    def matched(path: str, distance: float) -> NodeWithScore:
        marks = {keys.SCORE_KIND: keys.L2_DISTANCE}
        return keys.annotate(exact(path, decisive=False), score=distance, annotations=marks)

    nodes = judged(
        [matched("a.md", distance_of(0.9)), matched("b.md", 0.0), text("Redis 的淘汰策略", 0.9, path="a.md")]
    )
    assert paths_of(nodes) == ["a.md", "b.md", "a.md"]
    assert nodes[0].score == nodes[2].score == pytest.approx(logistic(-3.0 + 6.0))
    # no passage of this one was found: nothing but the match speaks for it
    assert nodes[1].score == 0.0
    assert nodes[1].node.metadata[keys.DISTANCE] == 0.0
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in nodes} == {keys.PROBABILITY}


def test_a_passage_that_speaks_for_a_further_match_stays_below_the_threshold() -> None:
    speaking = text("网关", 0.1, **{keys.MATCHED_TERMS: ["网关"]})
    nodes = judged([exact("a.md"), exact("b.md"), speaking, text("支付", 0.1)])
    assert paths_of(nodes) == ["a.md", "b.md", "网关"]


def test_the_hint_comes_in_the_chosen_language() -> None:
    for locale in ("zh", "en"):
        (node,) = judged([text("Redis 的淘汰策略", 0.9)], locale=locale)
        hint = node.node.metadata[keys.COMPLETENESS_HINT]
        assert hint == completeness_hint(RelevanceLevel.HIGHLY_RELEVANT, locale)


def test_neither_llm_nor_embedding_model_sees_the_judgement() -> None:
    (node,) = judged([text("Redis 的淘汰策略", 0.9)])
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "kl_" not in node.node.get_content(metadata_mode=mode)


# Once, twice, and with other judges

MIXED = [
    exact("m.md"),
    exact("n.md"),
    text("集群", 0.9, path="a.md"),
    text("Redis 的淘汰策略", 0.8, path="a.md"),
    text("Redis 集群", 0.85),
    text("网关", 0.2, **{keys.MATCHED_TERMS: ["网关"]}),
]


def test_running_it_twice_changes_nothing() -> None:
    once = judged(MIXED)
    assert len(once) == 5
    assert seen(judged(once)) == seen(once)
    assert seen(judge().postprocess_nodes(once)) == seen(once)
    assert seen(judged(once, query="something else altogether")) == seen(once)


def test_input_nodes_stay_as_they_were() -> None:
    before = seen([node.model_copy(deep=True) for node in MIXED])
    judged(MIXED)
    assert seen(MIXED) == before


def test_judged_passages_keep_their_probability_beside_new_ones() -> None:
    known = judged([text("Redis 集群", 0.9)])
    nodes = judged([text("网关", 0.99), *known, text("Redis 的淘汰策略", 0.7)])
    assert paths_of(nodes) == ["Redis 的淘汰策略", "Redis 集群"]
    assert nodes[1].score == known[0].score


def test_async_twin_judges_the_same() -> None:
    nodes = asyncio.run(judge().apostprocess_nodes(MIXED, query_str=QUERY))
    assert seen(nodes) == seen(judged(MIXED))


def test_a_query_is_needed() -> None:
    with pytest.raises(ValueError, match="evidence is judged against a query: give query_bundle or query_str"):
        judge().postprocess_nodes([text("a", 0.9)])
    assert judge().postprocess_nodes([]) == []


def test_similarities_of_a_relevance_postprocessor_are_taken_as_such() -> None:
    normalized = RelevancePostprocessor().postprocess_nodes([text("Redis 的淘汰策略", 0.7)])
    (node,) = judged(normalized)
    assert node.node.metadata[keys.SIMILARITY_SCORE] == pytest.approx(0.7)
    assert node.node.metadata[keys.DISTANCE] == pytest.approx(0.6)


def test_a_relevance_postprocessor_behind_it_leaves_probabilities_as_they_are() -> None:
    once = judged([text("Redis 的淘汰策略", 0.9), text("Redis 集群", 0.9)])
    twice = RelevancePostprocessor(reference_threshold=0.3).postprocess_nodes(once)
    assert [scored.score for scored in twice] == [scored.score for scored in once]
    assert len(twice) == 2


def test_nodes_that_were_not_judged_have_no_evidence() -> None:
    assert evidence_of(text("a", 0.9)) is None
    assert evidence_of(judged([exact("a.md")])[0]) is None


def test_statistics_that_cannot_count_are_refused() -> None:
    with pytest.raises(ValueError, match="statistics"):
        judge(statistics=object())


def test_llamaindex_can_serialize_it() -> None:
    serialized = judge().to_dict()
    assert serialized["class_name"] == "EvidencePostprocessor"
    assert "statistics" not in serialized


# Behind real retrievers


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    folder: Path = tmp_path_factory.mktemp("evidence")
    store = MilvusChunkStore(uri=str(folder / "milvus.db"), embedding_model=MODEL, timeout=10)
    store.upsert(
        [
            chunk("near.md", vector=vector_at(1.0), text="网关限流"),
            chunk("words.md", vector=vector_at(0.8), text="Redis 的淘汰策略"),
            chunk("far.md", vector=vector_at(0.1), text="团建安排"),
        ]
    )
    yield store
    store.close()


async def test_behind_a_plain_vector_retriever_words_lift_a_passage_over_a_nearer_one(store: MilvusChunkStore) -> None:
    postprocessor = judge(statistics=Bm25Index(store))
    retriever = MilvusVectorRetriever(store, ChosenVectors(), similarity_top_k=20)
    assert paths_of(retriever.retrieve(QUERY)) == ["near.md", "words.md", "far.md"]
    engine = RetrieverQueryEngine.from_args(retriever, MockLLM(), node_postprocessors=[postprocessor])
    answers = [engine.query(QUERY)]
    async with event_loop_stays_free():
        answers.append(await engine.aquery(QUERY))
    for answer in answers:
        words, near = answer.source_nodes
        assert paths_of([words, near]) == ["words.md", "near.md"]
        assert words.score == pytest.approx(logistic(-3.0 + 5.0 * (0.8 - (1.0 + 0.1) / 2) + 6.0), abs=1e-5)
        assert near.score == pytest.approx(logistic(-3.0 + 5.0 * (1.0 - (0.8 + 0.1) / 2)), abs=1e-5)
        assert evidence(near).similarity == 1.0


def test_a_similarity_cut_off_behind_it_keeps_the_better_ones(store: MilvusChunkStore) -> None:
    retriever = MilvusVectorRetriever(store, ChosenVectors(), similarity_top_k=20)
    cut_off = SimilarityPostprocessor(similarity_cutoff=0.9)
    engine = RetrieverQueryEngine.from_args(retriever, MockLLM(), node_postprocessors=[judge(), cut_off])
    assert paths_of(engine.query(QUERY).source_nodes) == ["words.md"]


def test_behind_a_foreign_retriever_the_scores_are_similarities_if_said_so() -> None:
    def theirs(document: str, words: str) -> TextNode:
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
        return TextNode(id_=f"{document} {words}", text=words, relationships=source, embedding=[1.0, 1.0])

    index = VectorStoreIndex(
        [theirs("a", "集群"), theirs("a", "Redis 的淘汰策略"), theirs("b", "网关")],
        embed_model=MockEmbedding(embed_dim=2),
    )
    nodes = index.as_retriever(similarity_top_k=3).retrieve(QUERY)
    assert [scored.score for scored in nodes] == pytest.approx([1.0, 1.0, 1.0])  # all the same vector
    found = judged(nodes, unmarked_scores="similarity", profile=KEEP_ALL)
    assert found[0].node.get_content() == "Redis 的淘汰策略"
    assert found[0].score == pytest.approx(logistic(-3.0 + 6.0))
    assert [scored.score for scored in found[1:]] == pytest.approx([logistic(-3.0)] * 2)
    assert keys.DISTANCE not in found[0].node.metadata
    # read as distances, the same scores are those of passages far away
    assert judged(nodes)[0].node.metadata[keys.SIMILARITY_SCORE] == pytest.approx(0.5)
