"""Records of calls as tests need them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.statistics import CallStatistics, StatisticsReader
from knowledge_lookup.pipeline.storage import Database, InvocationRepository

NOW = datetime(2025, 3, 4, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def call(
    query: str = "q",
    *,
    minutes_ago: float = 1.0,
    session: str | None = None,
    tool: str = "lookup_knowledge",
    found: bool = True,
    level: str | None = "REFERENCE",
    confidence: str | None = "low",
    reason: str | None = None,
    total_ms: float = 10.0,
    **details: Any,
) -> ToolInvocation:
    """Make the record of a call that asked exact match and semantic search."""
    return ToolInvocation(
        request_id="0a1b2c3d",
        session_id=session,
        tool_name=tool,
        query=query,
        found=found,
        confidence=confidence if found else None,
        latency_ms=total_ms,
        relevance_level=level if found else None,
        dedup_reason=reason,
        retrieval_details={"l0_match_count": 1, "l0_ms": 1.0, "l1_ms": 5.0, "sources": []} | details,
        created_at=NOW - timedelta(minutes=minutes_ago),
    )


def nothing(query: str, **changes: Any) -> ToolInvocation:
    """Make the record of a call that found nothing."""
    return call(query, found=False, **changes)


def figures(database: Database, *calls: ToolInvocation, window: timedelta = DAY) -> CallStatistics:
    """Record calls, and compute the figures of the window that ends at ``NOW``."""
    InvocationRepository(database).insert_many(calls)
    return StatisticsReader(database).read(window, now=NOW)
