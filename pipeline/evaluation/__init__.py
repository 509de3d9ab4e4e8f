"""Measuring a knowledge base with labelled queries."""

from knowledge_lookup.pipeline.evaluation.evaluator import evaluate
from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery, LabelledQueryError, read_queries
from knowledge_lookup.pipeline.evaluation.report import EvaluationReport, Outcome, Share

__all__ = [
    "EvaluationReport",
    "LabelledQuery",
    "LabelledQueryError",
    "Outcome",
    "Share",
    "evaluate",
    "read_queries",
]
