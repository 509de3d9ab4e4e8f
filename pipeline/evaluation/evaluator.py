"""Running labelled queries through a knowledge base."""

from collections.abc import Callable, Sequence

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.pipeline.evaluation.report import RECALL_AT, EvaluationReport, Outcome
from knowledge_lookup.postprocessors import evidence_of
from knowledge_lookup.postprocessors.evidence import FEATURES
from knowledge_lookup.retrievers import KnowledgeRetriever, ScopedQueryBundle
from knowledge_lookup.retrievers.metadata import MATCHED_TERMS, document_of, is_exact

_PASSAGES_A_DOCUMENT = 4


def evaluate(
    lookup: KnowledgeLookup,
    ranking: KnowledgeRetriever,
    queries: Sequence[LabelledQuery],
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> EvaluationReport:
    """Look up each query without a session, and compare with the labels.

    :param lookup: The look-up to measure; records go where it sends them.
    :param ranking: Retrieves without dropping what is below the thresholds: gives the ranking of documents.
    :param queries: The labelled queries, at least one.
    :param progress: Called with the number of queries done, their total, and the next query.
    :returns: The outcomes and their figures.
    :raises ValueError: If there are no queries.
    :raises KnowledgeLookupError: If semantic search is needed and can't be used.
    """
    if not queries:
        raise ValueError("queries is empty; at least one labelled query is needed")
    outcomes: list[Outcome] = []
    for done, query in enumerate(queries):
        if progress is not None:
            progress(done, len(queries), query.query)
        preview = lookup.preview(query.query)
        considered = _considered(ranking, query.query)
        outcomes.append(
            Outcome(
                query=query,
                ranked=tuple(dict.fromkeys(document_of(scored) for scored in considered))[: max(RECALL_AT)],
                delivered=preview.delivered,
                level=preview.level,
                latency_ms=preview.latency_ms,
                evidence=_evidence(considered),
            )
        )
    if progress is not None:
        progress(len(queries), len(queries), "")
    return EvaluationReport(tuple(outcomes))


def _considered(ranking: KnowledgeRetriever, query: str) -> list[NodeWithScore]:
    # Several passages may belong to one document: a ranking of documents needs more of them.
    return ranking.retrieve(ScopedQueryBundle(query, similarity_top_k=_PASSAGES_A_DOCUMENT * max(RECALL_AT)))


def _evidence(considered: Sequence[NodeWithScore]) -> str:
    """Say by what the best match and the best passage were judged."""
    exact = next((scored for scored in considered if is_exact(scored)), None)
    passage = next((scored for scored in considered if not is_exact(scored)), None)
    parts = []
    if exact is not None:
        parts.append(f"keyword {', '.join(exact.node.metadata[MATCHED_TERMS])} in {document_of(exact)}")
    if passage is not None and passage.score is not None:
        features = evidence_of(passage)
        named = "" if features is None else ", ".join(f"{name} {getattr(features, name):.3g}" for name in FEATURES)
        parts.append(f"{document_of(passage)} {passage.score:.3f}" + (f" ({named})" if named else ""))
    return "; ".join(parts)
