"""One call of a retrieval tool as it is kept for later questions: what was asked, what came back, how long it took.

The tools build a :class:`ToolInvocation` after each call and hand it to an :class:`InvocationRecorder`.
Where it goes from there (a table, a list in a test) is not their business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4


def _new_id() -> str:
    return str(uuid4())


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class ToolInvocation:
    """One finished call of a tool.

    :param id: A UUID; writing the same invocation twice leaves one row.
    :param request_id: The id that the log lines of this call carry (eight hex digits).
    :param session_id: The session the call belongs to; None outside any session.
    :param tool_name: Name of the tool as the LLM knows it, such as ``lookup_knowledge``.
    :param query: The query as it came in.
    :param found: Whether anything was delivered.
    :param confidence: ``high`` when the exact match was decisive, otherwise what the result said, or None.
    :param latency_ms: Duration of the call in milliseconds.
    :param relevance_level: ``PRECISE``, ``HIGHLY_RELEVANT`` or ``REFERENCE``; None when nothing was found.
    :param dedup_reason: Why results were held back; None when none were.
    :param retrieval_details: Scores and steps of the call, of JSON types.
    :param created_at: When the call ended; a time zone is required.
    """

    id: str = field(default_factory=_new_id)
    request_id: str
    session_id: str | None
    tool_name: str
    query: str
    found: bool
    confidence: str | None
    latency_ms: float
    relevance_level: str | None
    dedup_reason: str | None
    retrieval_details: Mapping[str, Any]
    created_at: datetime = field(default_factory=_now)

    def __post_init__(self) -> None:
        """Refuse a time without a zone: read back as UTC it would be another moment."""
        if self.created_at.tzinfo is None:
            raise ValueError(f"created_at is {self.created_at.isoformat()} without a time zone; pass an aware datetime")


class InvocationRecorder(Protocol):
    """Takes finished invocations."""

    def record(self, invocation: ToolInvocation) -> None:
        """Keep one invocation. Never raises and never waits: a look-up must not suffer from its own record.

        :param invocation: The finished call.
        """
        ...
