"""What every judge of a result does once its passages have scores: level, selection, order, marks."""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.postprocessors.completeness_hints import Locale, completeness_hint
from knowledge_lookup.postprocessors.relevance_level import RelevanceLevel, judge
from knowledge_lookup.retrievers import metadata as keys


def mark_level(
    exact: Sequence[NodeWithScore],
    passages: Sequence[NodeWithScore],
    *,
    highly_relevant_threshold: float,
    reference_threshold: float,
    locale: Locale,
) -> list[NodeWithScore]:
    """Judge a result, drop what isn't worth returning, and mark every node left with the level and its hint.

    :param exact: Nodes of a keyword match, best first; none is dropped.
    :param passages: Passages with scores from 0 to 1, higher is better.
    :param highly_relevant_threshold: Least score of a highly relevant passage, inclusive.
    :param reference_threshold: Least score of a passage worth returning, inclusive; a passage that
        ``KnowledgeRetriever`` marked as speaking for a further keyword match stays below it as well.
    :param locale: Language of the hint.
    :returns: Copies: keyword matches in their order, then passages best first; none when there's no level.
    """
    level = judge(
        match_count=_match_count(exact),
        decisive=_is_decisive(exact),
        best_score=max((scored.score for scored in passages if scored.score is not None), default=None),
        highly_relevant_threshold=highly_relevant_threshold,
        reference_threshold=reference_threshold,
    )
    if level is None:
        return []
    relevant = [scored for scored in passages if _is_relevant(scored, reference_threshold)]
    relevant.sort(key=lambda scored: -(scored.score if scored.score is not None else 0.0))
    judgement = {keys.RELEVANCE_LEVEL: level.value, keys.COMPLETENESS_HINT: completeness_hint(level, locale)}
    return [keys.annotate(scored, score=scored.score, annotations=judgement) for scored in [*exact, *relevant]]


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


def _is_relevant(scored: NodeWithScore, reference_threshold: float) -> bool:
    if scored.score is None:
        return False
    return scored.score >= reference_threshold or keys.MATCHED_TERMS in scored.node.metadata


def _match_count(exact: Sequence[NodeWithScore]) -> int:
    return max((int(scored.node.metadata.get(keys.MATCH_COUNT, len(exact))) for scored in exact), default=0)


def _is_decisive(exact: Sequence[NodeWithScore]) -> bool:
    if not exact:
        return False
    said = [scored.node.metadata[keys.DECISIVE] for scored in exact if keys.DECISIVE in scored.node.metadata]
    return all(said) if said else _match_count(exact) == 1
