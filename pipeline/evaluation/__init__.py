"""Measuring a knowledge base with labelled queries, and with sessions of scripted agents."""

from knowledge_lookup.pipeline.evaluation.comparison import Comparison, Disagreement, PairedMean, PairedShare, compare
from knowledge_lookup.pipeline.evaluation.evaluator import evaluate
from knowledge_lookup.pipeline.evaluation.labelled_queries import (
    LabelledQuery,
    LabelledQueryError,
    read_queries,
    require_documents,
)
from knowledge_lookup.pipeline.evaluation.report import EvaluationReport, Outcome, Share
from knowledge_lookup.pipeline.evaluation.session_report import (
    AgentFigures,
    Repetition,
    SessionReport,
    Spread,
    repetition,
)
from knowledge_lookup.pipeline.evaluation.sessions import (
    Agent,
    Ask,
    OpenSession,
    QuerySession,
    SessionRun,
    Signal,
    ToolAnswer,
    ask_with,
    converse,
    read_sessions,
    require_gold_documents,
    run_sessions,
    sessions_of,
)

__all__ = [
    "Agent",
    "AgentFigures",
    "Ask",
    "Comparison",
    "Disagreement",
    "EvaluationReport",
    "LabelledQuery",
    "LabelledQueryError",
    "OpenSession",
    "Outcome",
    "PairedMean",
    "PairedShare",
    "QuerySession",
    "Repetition",
    "SessionReport",
    "SessionRun",
    "Share",
    "Signal",
    "Spread",
    "ToolAnswer",
    "ask_with",
    "compare",
    "converse",
    "evaluate",
    "read_queries",
    "read_sessions",
    "repetition",
    "require_documents",
    "require_gold_documents",
    "run_sessions",
    "sessions_of",
]
