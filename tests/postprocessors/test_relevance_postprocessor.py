"""FS-2: levels and hints, through the public face of the postprocessor."""

import asyncio

import pytest
from llama_index.core.schema import MetadataMode, NodeWithScore

from knowledge_lookup.postprocessors import (
    RelevanceLevel,
    RelevancePostprocessor,
    completeness_hint,
    relevance_level_of,
)
from knowledge_lookup.retrievers import metadata as keys
from tests.postprocessors.nodes import distance_of, exact, passage

PRECISE = RelevanceLevel.PRECISE
HIGHLY_RELEVANT = RelevanceLevel.HIGHLY_RELEVANT
REFERENCE = RelevanceLevel.REFERENCE


def result(match_count: int, similarity: float | None, *, decisive: bool | None = None) -> list[NodeWithScore]:
    nodes = [exact(f"m{number}.md", decisive=decisive) for number in range(match_count)]
    if similarity is not None:
        nodes.append(passage("p.md", distance_of(similarity)))
    return nodes


# The table of design and specification: L0 match count, best L1 similarity, level.
LEVELS = [
    (1, None, PRECISE),
    (2, 0.8, HIGHLY_RELEVANT),
    (0, 0.8, HIGHLY_RELEVANT),
    (3, 0.6, REFERENCE),
    (0, 0.6, REFERENCE),
    (0, 0.4, None),
    (0, None, None),
    (2, None, REFERENCE),
    (2, 0.4, REFERENCE),
    # both bounds are inclusive
    (0, 0.75, HIGHLY_RELEVANT),
    (0, 0.75 - 1e-6, REFERENCE),
    (0, 0.5, REFERENCE),
    (0, 0.5 - 1e-6, None),
    (0, 1.0, HIGHLY_RELEVANT),
]


@pytest.mark.parametrize(("match_count", "similarity", "level"), LEVELS)
def test_level_follows_match_count_and_similarity(
    match_count: int, similarity: float | None, level: RelevanceLevel | None
) -> None:
    nodes = RelevancePostprocessor().postprocess_nodes(result(match_count, similarity))
    assert relevance_level_of(nodes) is level


@pytest.mark.parametrize(("match_count", "similarity", "level"), LEVELS)
def test_async_twin_judges_the_same(match_count: int, similarity: float | None, level: RelevanceLevel | None) -> None:
    nodes = asyncio.run(RelevancePostprocessor().apostprocess_nodes(result(match_count, similarity)))
    assert relevance_level_of(nodes) is level


def test_one_match_that_is_said_not_to_be_decisive_is_not_precise() -> None:
    nodes = RelevancePostprocessor().postprocess_nodes(result(1, 0.6, decisive=False))
    assert relevance_level_of(nodes) is REFERENCE


def test_exact_passage_at_distance_zero_is_the_best_possible_hit() -> None:
    (node,) = RelevancePostprocessor().postprocess_nodes([passage("a.md", 0.0)])
    assert node.score == 1.0
    assert node.node.metadata[keys.DISTANCE] == 0.0
    assert relevance_level_of([node]) is HIGHLY_RELEVANT


def test_passages_come_best_first_and_higher_is_better() -> None:
    nodes = RelevancePostprocessor().postprocess_nodes([passage("far.md", 0.9), passage("near.md", 0.1)])
    assert [(node.node.metadata[keys.FILE_PATH], node.score) for node in nodes] == [
        ("near.md", pytest.approx(0.95)),
        ("far.md", pytest.approx(0.55)),
    ]


def test_passage_below_the_reference_threshold_is_dropped_beside_a_match() -> None:
    nodes = RelevancePostprocessor().postprocess_nodes([exact("m.md"), exact("n.md"), passage("p.md", 1.2)])
    assert [node.node.metadata[keys.FILE_PATH] for node in nodes] == ["m.md", "n.md"]


def test_running_it_twice_changes_nothing() -> None:
    once = RelevancePostprocessor().postprocess_nodes([exact("m.md"), exact("n.md"), passage("p.md", 0.4)])
    twice = RelevancePostprocessor().postprocess_nodes(once)
    assert [(n.node.node_id, n.score, n.node.metadata) for n in twice] == [
        (n.node.node_id, n.score, n.node.metadata) for n in once
    ]


def test_input_nodes_stay_as_they_were() -> None:
    given = passage("p.md", 0.4)
    RelevancePostprocessor().postprocess_nodes([given])
    assert given.score == 0.4
    assert keys.RELEVANCE_LEVEL not in given.node.metadata


def test_unmarked_scores_are_distances_unless_said_otherwise() -> None:
    (as_distance,) = RelevancePostprocessor().postprocess_nodes([passage("p.md", 0.4, marked=False)])
    (as_similarity,) = RelevancePostprocessor(unmarked_scores="similarity").postprocess_nodes(
        [passage("p.md", 0.9, marked=False)]
    )
    assert as_distance.score == pytest.approx(0.8)
    assert as_similarity.score == pytest.approx(0.9)


def test_node_without_a_score_is_dropped() -> None:
    nodes = RelevancePostprocessor().postprocess_nodes([passage("none.md", None), passage("p.md", 0.2)])
    assert [node.node.metadata[keys.FILE_PATH] for node in nodes] == ["p.md"]


def test_neither_llm_nor_embedding_model_sees_the_judgement() -> None:
    (node,) = RelevancePostprocessor().postprocess_nodes([passage("p.md", 0.4)])
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "kl_" not in node.node.get_content(metadata_mode=mode)


@pytest.mark.parametrize(
    ("level", "hint"),
    [
        (PRECISE, "知识库中不存在比上述结果更精准的文档"),
        (HIGHLY_RELEVANT, "当前结果已高度相关，继续检索不太可能找到更精准的文档"),
        (REFERENCE, "当前结果为相关参考，如需更精准信息请明确缺少的具体维度"),
    ],
)
def test_each_level_has_its_hint_word_for_word(level: RelevanceLevel, hint: str) -> None:
    assert completeness_hint(level) == hint


def test_hint_travels_with_the_nodes_in_the_chosen_language() -> None:
    (zh,) = RelevancePostprocessor().postprocess_nodes(result(1, None))
    (en,) = RelevancePostprocessor(locale="en").postprocess_nodes(result(1, None))
    assert zh.node.metadata[keys.COMPLETENESS_HINT] == completeness_hint(PRECISE, "zh")
    assert en.node.metadata[keys.COMPLETENESS_HINT] == completeness_hint(PRECISE, "en")
    assert completeness_hint(PRECISE, "zh") != completeness_hint(PRECISE, "en")


def test_thresholds_can_be_set() -> None:
    strict = RelevancePostprocessor(highly_relevant_threshold=0.904, reference_threshold=0.876)
    assert strict.postprocess_nodes(result(0, 0.87)) == []
    assert relevance_level_of(strict.postprocess_nodes(result(0, 0.88))) is REFERENCE


def test_maximum_distance_can_be_set() -> None:
    (node,) = RelevancePostprocessor(max_l2_distance=4.0).postprocess_nodes([passage("p.md", 1.0)])
    assert node.score == pytest.approx(0.75)


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="thresholds must satisfy"):
        RelevancePostprocessor(highly_relevant_threshold=0.5, reference_threshold=0.6)


def test_asking_unjudged_nodes_for_their_level_is_an_error() -> None:
    with pytest.raises(ValueError, match="run a RelevancePostprocessor over them first"):
        relevance_level_of([passage("p.md", 0.4)])
