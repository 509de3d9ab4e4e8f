"""What every judge of a result does once its passages have scores: level, selection, order, marks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.postprocessors.completeness_hints import Locale, completeness_hint
from knowledge_lookup.postprocessors.relevance_level import RelevanceLevel, judge
from knowledge_lookup.retrievers import metadata as keys


def _nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Judged:
    """A node with the score that it is to get; copied only if it stays.

    :param scored: The node as it came.
    :param score: From 0 to 1, higher is better; None for a node that can't be judged.
    :param annotations: Gives the hidden metadata that says where the score comes from.
    """

    scored: NodeWithScore
    score: float | None
    annotations: Callable[[], Mapping[str, Any]] = _nothing


def mark_level(
    exact: Sequence[Judged],
    passages: Sequence[Judged],
    *,
    highly_relevant_threshold: float,
    reference_threshold: float,
    locale: Locale,
) -> list[NodeWithScore]:
    """Judge a result, drop what isn't worth returning, and mark every node left with the level and its hint.

    :param exact: Nodes of a keyword match, best first; none is dropped.
    :param passages: The passages, in any order.
    :param highly_relevant_threshold: Least score of a highly relevant passage, inclusive.
    :param reference_threshold: Least score of a passage worth returning, inclusive; a passage that
        ``KnowledgeRetriever`` marked as speaking for a further keyword match stays below it as well.
    :param locale: Language of the hint.
    :returns: Copies: keyword matches in their order, then passages best first; none when there's no level.
    """
    matched = [judged.scored for judged in exact]
    level = judge(
        match_count=_match_count(matched),
        decisive=_is_decisive(matched),
        best_score=max((judged.score for judged in passages if judged.score is not None), default=None),
        highly_relevant_threshold=highly_relevant_threshold,
        reference_threshold=reference_threshold,
    )
    if level is None:
        return []
    relevant = [judged for judged in passages if _is_relevant(judged, reference_threshold)]
    relevant.sort(key=lambda judged: -(judged.score if judged.score is not None else 0.0))
    judgement = {keys.RELEVANCE_LEVEL: level.value, keys.COMPLETENESS_HINT: completeness_hint(level, locale)}
    return [
        keys.annotate(judged.scored, score=judged.score, annotations={**judged.annotations(), **judgement})
        for judged in [*exact, *relevant]
    ]


def relevance_level_of(nodes: Sequence[NodeWithScore]) -> RelevanceLevel | None:
    """Read the level that a ``RelevancePostprocessor`` or an ``EvidencePostprocessor`` gave a result.

    :param nodes: The postprocessor's output.
    :returns: The level; None for an empty result.
    :raises ValueError: If there are nodes, but no postprocessor has judged them.
    """
    if not nodes:
        return None
    level = nodes[0].node.metadata.get(keys.RELEVANCE_LEVEL)
    if level is None:
        raise ValueError("these nodes carry no relevance level: run a RelevancePostprocessor over them first")
    return RelevanceLevel(level)


def _is_relevant(judged: Judged, reference_threshold: float) -> bool:
    if judged.score is None:
        return False
    return judged.score >= reference_threshold or keys.MATCHED_TERMS in judged.scored.node.metadata


def _match_count(exact: Sequence[NodeWithScore]) -> int:
    return max((int(scored.node.metadata.get(keys.MATCH_COUNT, len(exact))) for scored in exact), default=0)


def _is_decisive(exact: Sequence[NodeWithScore]) -> bool:
    if not exact:
        return False
    said = [scored.node.metadata[keys.DECISIVE] for scored in exact if keys.DECISIVE in scored.node.metadata]
    return all(said) if said else _match_count(exact) == 1
