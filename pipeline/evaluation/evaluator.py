"""Running labelled queries through a knowledge base."""

from collections.abc import Callable, Sequence

from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.pipeline.evaluation.report import RECALL_AT, EvaluationReport, Outcome


def evaluate(
    lookup: KnowledgeLookup,
    queries: Sequence[LabelledQuery],
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> EvaluationReport:
    """Look up each query without a session, and compare with the labels.

    :param lookup: The look-up to measure; records go where it sends them.
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
        preview = lookup.preview(query.query, most_documents=max(RECALL_AT))
        outcomes.append(
            Outcome(
                query=query,
                ranked=preview.ranked,
                delivered=preview.delivered,
                level=preview.level,
                latency_ms=preview.latency_ms,
            )
        )
    if progress is not None:
        progress(len(queries), len(queries), "")
    return EvaluationReport(tuple(outcomes))
