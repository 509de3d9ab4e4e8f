"""What a look-up leaves behind: log lines with a request id, and one record."""

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from knowledge_lookup.agents.lookup_events import LookupEndEvent
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.messages import Messages
from knowledge_lookup.agents.tool_invocation import InvocationRecorder, ToolInvocation
from knowledge_lookup.postprocessors import normalize_l2
from knowledge_lookup.retrievers.keyword_match import KeywordMatches
from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.tracing import is_traced, report, traced

_LOGGED_QUERY_CHARACTERS = 200


@dataclass(frozen=True)
class LookupCall:
    """One call of a look-up.

    :param query: The query as it came in.
    :param session_id: The session; None for none.
    :param section_title: The section that is asked for; None for none.
    :param id: A UUID, that of the record.
    :param created_at: When the call began.
    :param started: The same moment on the clock that measures.
    """

    query: str
    session_id: str | None
    section_title: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.perf_counter)

    @property
    def request_id(self) -> str:
        """Eight hex digits, in each log line and in the record."""
        return self.id[:8]

    @cached_property
    def normal_query(self) -> str:
        """The query in normal form."""
        return normal_form(self.query)

    def elapsed_ms(self) -> float:
        """Return the milliseconds since the call began."""
        return (time.perf_counter() - self.started) * 1000.0


class LookupJournal:
    """Writes the log lines and the record of each look-up.

    :param tool_name: The name that goes into the record.
    :param messages: The language of the log lines.
    :param max_l2_distance: Of the normalization profile; makes the similarity of a raw distance.
    :param recorder: Gets the records; None records nothing.
    :param logger: Gets the lines.
    :param l0_error: Gives the error for which the keyword index isn't what the database says; None while it is.
    """

    def __init__(
        self,
        *,
        tool_name: str,
        messages: Messages,
        max_l2_distance: float,
        recorder: InvocationRecorder | None,
        logger: logging.Logger,
        l0_error: Callable[[], Exception | None],
    ) -> None:
        self._tool_name = tool_name
        self._messages = messages
        self._max_l2_distance = max_l2_distance
        self._recorder = recorder
        self._logger = logger
        self._l0_error = l0_error

    def received(self, call: LookupCall) -> None:
        """Note that a query came in.

        :param call: The call.
        """
        self._log(call, self._messages.log_received, query=_for_log(call.query))

    def retrieved(self, call: LookupCall, retrieval: KnowledgeRetrieval) -> None:
        """Note what was retrieved, and how.

        :param call: The call.
        :param retrieval: What the retriever found.
        """
        matches = retrieval.matches
        self._log(call, self._messages.log_matched, matches=matches.match_count, time=retrieval.l0_ms)
        high = str(matches.decisive).lower()
        self._log(call, self._messages.log_confidence, high=high, reason=self._reason(matches))
        if retrieval.l1_ms is None:
            self._log(call, self._messages.log_skipped)
        elif retrieval.l1_error is not None:
            said = self._messages.log_outage.format(error=retrieval.l1_error, time=retrieval.l1_ms)
            self._logger.warning("[%s] %s", call.request_id, said)
        else:
            similarity = self._top_similarity(retrieval)
            self._log(call, self._messages.log_semantic, similarity=similarity, time=retrieval.l1_ms)

    def done(
        self, call: LookupCall, retrieval: KnowledgeRetrieval | None, result: LookupResult, dedup_reason: str | None
    ) -> None:
        """Note the end of a call, and record it.

        :param call: The call.
        :param retrieval: What the retriever found; None if it wasn't asked.
        :param result: What is delivered.
        :param dedup_reason: Why something was held back; None if nothing was.
        """
        level = result.relevance_level.value if result.relevance_level is not None else None
        confidence = _confidence(result)
        self._log(
            call,
            self._messages.log_done,
            found=str(result.found).lower(),
            confidence=confidence,
            level=level,
            dedup=dedup_reason,
            time=call.elapsed_ms(),
        )
        details: dict[str, Any] = {
            "l0_match_count": 0,
            "l0_ms": None,
            "l1_ms": None,
            "l1_top_l2": None,
            "l1_top_similarity": None,
            "relevance_level": level,
            "completeness_hint": result.completeness_hint,
            "retrieved_domains": list(result.retrieved_domains_this_session),
            "dedup_reason": dedup_reason,
            "sources": list(result.sources),
        }
        if call.section_title is not None:
            details["by_section"] = True
        if retrieval is not None:
            details |= {
                "l0_match_count": retrieval.matches.match_count,
                "l0_ms": retrieval.l0_ms,
                "l1_ms": retrieval.l1_ms,
                "l1_top_l2": retrieval.top_distance,
                "l1_top_similarity": self._top_similarity(retrieval),
            }
            if retrieval.l1_error is not None:
                details["l1_error"] = _named(retrieval.l1_error)
        l0_error = self._l0_error()
        if l0_error is not None:
            details["l0_error"] = _named(l0_error)
        self._record(
            call, found=result.found, confidence=confidence, level=level, dedup_reason=dedup_reason, details=details
        )

    def failed(self, call: LookupCall, error: Exception) -> None:
        """Note that a call failed, and record it as nothing found.

        :param call: The call.
        :param error: What went wrong.
        """
        self._logger.error("[%s] %s", call.request_id, self._messages.log_failed.format(error=error))
        details = {"error": _named(error)}
        self._record(call, found=False, confidence=None, level=None, dedup_reason=None, details=details)

    def _record(
        self,
        call: LookupCall,
        *,
        found: bool,
        confidence: str | None,
        level: str | None,
        dedup_reason: str | None,
        details: dict[str, Any],
    ) -> None:
        if self._recorder is None and not is_traced():
            return
        invocation = ToolInvocation(
            id=call.id,
            request_id=call.request_id,
            session_id=call.session_id,
            tool_name=self._tool_name,
            query=call.query,
            found=found,
            confidence=confidence,
            latency_ms=call.elapsed_ms(),
            relevance_level=level,
            dedup_reason=dedup_reason,
            retrieval_details=details,
            created_at=call.created_at,
        )
        report(lambda: LookupEndEvent.of(invocation))
        if self._recorder is not None:
            self._hand_over(self._recorder, invocation)

    @traced
    def _hand_over(self, recorder: InvocationRecorder, invocation: ToolInvocation) -> None:
        recorder.record(invocation)

    def _log(self, call: LookupCall, template: str, **values: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info("[%s] %s", call.request_id, template.format(**values))

    def _reason(self, matches: KeywordMatches) -> str:
        if matches.decisive:
            return self._messages.log_unique
        if matches.match_count == 0:
            return self._messages.log_nothing_matched
        return self._messages.log_ambiguous if matches.match_count > 1 else self._messages.log_unaccounted

    def _top_similarity(self, retrieval: KnowledgeRetrieval) -> float | None:
        if retrieval.top_distance is None:
            return None
        return round(normalize_l2(retrieval.top_distance, self._max_l2_distance), 6)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _confidence(result: LookupResult) -> str | None:
    if not result.found:
        return None
    return result.primary.confidence if result.primary is not None else "low"


def _for_log(query: str) -> str:
    one_line = " ".join(query.split())
    shown = one_line[:_LOGGED_QUERY_CHARACTERS]
    return shown if len(shown) == len(one_line) else f"{shown}… ({len(query)} characters)"
