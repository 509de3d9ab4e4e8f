"""Measuring a knowledge base with labelled queries."""

from knowledge_lookup.pipeline.evaluation.comparison import Comparison, Disagreement, PairedMean, PairedShare, compare
from knowledge_lookup.pipeline.evaluation.evaluator import evaluate
from knowledge_lookup.pipeline.evaluation.labelled_queries import (
    LabelledQuery,
    LabelledQueryError,
    read_queries,
    require_documents,
)
from knowledge_lookup.pipeline.evaluation.report import EvaluationReport, Outcome, Share

__all__ = [
    "Comparison",
    "Disagreement",
    "EvaluationReport",
    "LabelledQuery",
    "LabelledQueryError",
    "Outcome",
    "PairedMean",
    "PairedShare",
    "Share",
    "compare",
    "evaluate",
    "read_queries",
    "require_documents",
]
