"""Why a look-up judged a query as it did; for people, never for an LLM."""

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.postprocessors import (
    Evidence,
    EvidencePostprocessor,
    EvidenceProfile,
    RelevancePostprocessor,
    evidence_of,
)
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.keyword_match import KeywordMatches
from knowledge_lookup.retrievers.search_terms import query_terms


@dataclass(frozen=True, slots=True)
class ExplainedPassage:
    """A passage that was considered.

    :param file_path: Its document.
    :param section: Its section path; empty for the lead.
    :param score: Probability or similarity, 0 to 1.
    :param distance: Squared L2 distance, 0 to 4.
    :param dense_rank: Rank in the search by meaning, from 1; None if it wasn't among the first there.
    :param sparse_rank: Rank in the search by words; likewise.
    :param evidence: The features; None where similarity alone was judged.
    """

    file_path: str
    section: str
    score: float
    distance: float
    dense_rank: int | None
    sparse_rank: int | None
    evidence: Evidence | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a query was judged by.

    :param matches: Outcome of the keyword match.
    :param passages: Passages that were considered, best first; none if the keyword match settled the query.
    :param terms: Terms of the query, with the number of passages that contain each; none where words weren't searched.
    :param highly_relevant_threshold: Least score of a highly relevant result.
    :param reference_threshold: Least score of a passage that is returned.
    """

    matches: KeywordMatches
    passages: tuple[ExplainedPassage, ...]
    terms: tuple[tuple[str, int], ...]
    highly_relevant_threshold: float
    reference_threshold: float


def explain(
    query: str,
    *,
    matches: KeywordMatches,
    nodes: Sequence[NodeWithScore],
    judge: RelevancePostprocessor | EvidencePostprocessor,
) -> Explanation:
    """Put an explanation together.

    :param query: The query.
    :param matches: Outcome of the keyword match.
    :param nodes: What was retrieved and judged, nothing dropped.
    :param judge: What judged it, with its thresholds.
    :returns: The explanation.
    """
    terms: tuple[tuple[str, int], ...] = ()
    limits: EvidenceProfile | RelevancePostprocessor
    if isinstance(judge, EvidencePostprocessor):
        limits = judge.profile
        if not matches.decisive:
            terms = tuple((term, judge.statistics.passage_frequency(term)) for term in query_terms(query))
    else:
        limits = judge
    return Explanation(
        matches=matches,
        passages=tuple(_passage(scored) for scored in nodes if not keys.is_exact(scored)),
        terms=terms,
        highly_relevant_threshold=limits.highly_relevant_threshold,
        reference_threshold=limits.reference_threshold,
    )


def _passage(scored: NodeWithScore) -> ExplainedPassage:
    metadata = scored.node.metadata
    return ExplainedPassage(
        file_path=keys.document_of(scored),
        section=str(metadata.get(keys.SECTION, "")),
        score=0.0 if scored.score is None else scored.score,
        distance=float(metadata.get(keys.DISTANCE, 0.0)),
        dense_rank=metadata.get(keys.DENSE_RANK),
        sparse_rank=metadata.get(keys.SPARSE_RANK),
        evidence=evidence_of(scored),
    )
