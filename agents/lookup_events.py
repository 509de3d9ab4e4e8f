"""What a look-up tells a tracer about itself."""

from llama_index_instrumentation.base import BaseEvent

from knowledge_lookup.agents.tool_invocation import ToolInvocation


class LookupEndEvent(BaseEvent):
    """A look-up is done, or has failed; the same figures as in its record, without any text of documents.

    :param request_id: Eight hex digits, those of the log lines and of the record.
    :param tool_name: The tool.
    :param session_id: The session; None for none.
    :param found: Whether anything is delivered.
    :param relevance_level: ``PRECISE``, ``HIGHLY_RELEVANT`` or ``REFERENCE``; None when nothing was found.
    :param dedup_reason: Why something was held back; None if nothing was.
    :param sources: Documents whose text is delivered.
    :param match_count: Number of documents that matched exactly.
    :param l0_ms: Milliseconds of the exact match; None if there was none.
    :param l1_ms: Milliseconds of the semantic search; None if there was none.
    :param top_similarity: Similarity of the nearest passage, 0 to 1; None without one.
    :param latency_ms: Milliseconds of the look-up.
    :param error: Why it failed, or why a part of it did; None if all went well.
    """

    request_id: str
    tool_name: str
    session_id: str | None
    found: bool
    relevance_level: str | None
    dedup_reason: str | None
    sources: list[str]
    match_count: int
    l0_ms: float | None
    l1_ms: float | None
    top_similarity: float | None
    latency_ms: float
    error: str | None

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name in a trace."""
        return "LookupEndEvent"

    @classmethod
    def of(cls, invocation: ToolInvocation) -> "LookupEndEvent":
        """Make the event of a look-up's record.

        :param invocation: The record.
        :returns: The event.
        """
        details = invocation.retrieval_details
        errors = (details.get(key) for key in ("error", "l1_error", "l0_error"))
        return cls(
            request_id=invocation.request_id,
            tool_name=invocation.tool_name,
            session_id=invocation.session_id,
            found=invocation.found,
            relevance_level=invocation.relevance_level,
            dedup_reason=invocation.dedup_reason,
            sources=list(details.get("sources") or ()),
            match_count=details.get("l0_match_count") or 0,
            l0_ms=details.get("l0_ms"),
            l1_ms=details.get("l1_ms"),
            top_similarity=details.get("l1_top_similarity"),
            latency_ms=invocation.latency_ms,
            error=next((error for error in errors if error is not None), None),
        )
