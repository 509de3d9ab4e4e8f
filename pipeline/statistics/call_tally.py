"""Adds up records one by one, so that a million of them need no more memory than their times."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from knowledge_lookup.pipeline.evaluation.report import Share
from knowledge_lookup.pipeline.statistics.call_details import CallDetails, milliseconds
from knowledge_lookup.pipeline.statistics.call_statistics import (
    CallStatistics,
    Outcomes,
    SessionCalls,
    Sessions,
    TimeSlice,
)
from knowledge_lookup.pipeline.statistics.gap_list import GapList
from knowledge_lookup.pipeline.statistics.percentiles import Percentiles
from knowledge_lookup.postprocessors import RelevanceLevel

SEARCH_DOC = "search_doc"
"""The tool that asks semantic search alone."""
_NO_LEVEL = "none"
_MOST_DOMAINS = 10
_MOST_SESSIONS = 10
_SLICES = 24
_SESSION_SIZES = ((1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "5"), (10, "6-10"), (20, "11-20"))
_MORE = "21+"


class CallRow(NamedTuple):
    """The columns of ``tool_invocation`` that are needed; ``query`` only of calls that may be a gap."""

    session_id: str | None
    tool_name: str
    query: str | None
    found: bool
    confidence: str | None
    latency_ms: float
    retrieval_details: str
    created_at: datetime
    relevance_level: str | None
    dedup_reason: str | None


class CallTally:
    """The sums of a window.

    Needs 24 bytes a call for the times, 0.2 KB for each session, and what :class:`GapList` needs.

    :param since: The window's beginning.
    :param until: Its end; calls after it (another machine's clock may be ahead) count to the last part.
    :param domain_of: Tells the domain of a source.
    """

    def __init__(self, since: datetime, until: datetime, domain_of: Callable[[str], str]) -> None:
        self._since, self._until, self._domain_of = since, until, domain_of
        self._slice = max((until - since) / _SLICES, timedelta(microseconds=1))
        self._l0_ms, self._l1_ms, self._total_ms = array("d"), array("d"), array("d")
        self._total_slices = array("b")
        self._outcomes: Counter[str] = Counter()
        self._levels: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._domains: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()
        self._slice_calls: Counter[int] = Counter()
        self._slice_failed: Counter[int] = Counter()
        self._slice_degraded: Counter[int] = Counter()
        self._gaps = GapList()
        self._calls = self._without_l1 = self._without_l0 = self._unreadable = self._sessionless = 0
        self._asked_exact = self._needed_semantic = self._judged = self._high = 0

    def add(self, row: CallRow) -> None:
        """Count a call.

        :param row: Its record.
        """
        details = CallDetails.read(row.retrieval_details)
        outcome = _outcome(row, details)
        level = (row.relevance_level or details.level) if row.found else None
        part = self._part(row.created_at)
        self._calls += 1
        self._unreadable += not details.is_readable
        self._outcomes[outcome] += 1
        self._levels[_NO_LEVEL if level is None else level] += 1
        if row.dedup_reason:
            self._reasons[row.dedup_reason] += 1
        self._count_session(row.session_id)
        self._count_time(row, details, part)
        self._count_exact_match(row, details, outcome)
        self._slice_calls[part] += 1
        self._slice_failed[part] += outcome == "failed"
        if details.l1_error is not None:
            self._without_l1 += 1
            self._slice_degraded[part] += 1
        self._without_l0 += _lacked_keyword_index(details)
        for domain in {self._domain_of(source) for source in details.sources} if row.found else ():
            self._domains[domain] += 1
        # A section that isn't there is no gap of the knowledge base: its document was found.
        if outcome == "nothing_found" and row.query is not None and not details.by_section:
            self._gaps.add(row.query, row.created_at)

    def worst_sessions(self) -> list[str]:
        """Name the sessions with most calls.

        :returns: At most ten, most calls first.
        """
        ranked = sorted(self._sessions.items(), key=lambda item: (-item[1], item[0]))
        return [session for session, _ in ranked[:_MOST_SESSIONS]]

    def statistics(self, worst_sessions: Sequence[SessionCalls]) -> CallStatistics:
        """Compute the figures.

        :param worst_sessions: The sessions that :meth:`worst_sessions` names.
        :returns: The figures.
        """
        levels = [*(level.value for level in RelevanceLevel), _NO_LEVEL]
        return CallStatistics(
            since=self._since,
            until=self._until,
            calls=self._calls,
            without_semantic_search=self._without_l1,
            without_keyword_index=self._without_l0,
            unreadable=self._unreadable,
            outcomes=Outcomes(**self._outcomes),
            l0_ms=Percentiles.of(self._l0_ms),
            l1_ms=Percentiles.of(self._l1_ms),
            total_ms=Percentiles.of(self._total_ms),
            needed_semantic_search=Share(self._needed_semantic, self._asked_exact),
            high_confidence=Share(self._high, self._judged),
            levels={level: self._levels[level] for level in dict.fromkeys([*levels, *sorted(self._levels)])},
            dedup_reasons=_most(self._reasons),
            sessions=self._session_figures(worst_sessions),
            domains=_most(self._domains, _MOST_DOMAINS),
            gaps=self._gaps.gaps(),
            gap_queries=self._gaps.queries,
            gaps_are_complete=self._gaps.is_complete,
            timeline=self._timeline(),
        )

    def _part(self, at: datetime) -> int:
        return min(max((at - self._since) // self._slice, 0), _SLICES - 1)

    def _count_session(self, session_id: str | None) -> None:
        if session_id is None:
            self._sessionless += 1
        else:
            self._sessions[session_id] += 1

    def _count_time(self, row: CallRow, details: CallDetails, part: int) -> None:
        total = milliseconds(row.latency_ms)
        if total is not None:
            self._total_ms.append(total)
            self._total_slices.append(part)
        if details.l0_ms is not None and row.tool_name != SEARCH_DOC:
            self._l0_ms.append(details.l0_ms)
        if details.l1_ms is not None and details.l1_error is None:
            self._l1_ms.append(details.l1_ms)

    def _count_exact_match(self, row: CallRow, details: CallDetails, outcome: str) -> None:
        if details.l0_ms is None or row.tool_name == SEARCH_DOC:
            return
        self._asked_exact += 1
        self._needed_semantic += details.l1_ms is not None or details.l1_error is not None
        if outcome not in ("held_back", "failed"):
            self._judged += 1
            self._high += bool(row.found) and row.confidence == "high"

    def _session_figures(self, worst: Sequence[SessionCalls]) -> Sessions:
        distribution = Counter(_session_size(calls) for calls in self._sessions.values())
        return Sessions(
            count=len(self._sessions),
            calls_without_session=self._sessionless,
            calls=Percentiles.of(array("d", self._sessions.values())),
            distribution={label: distribution[label] for label in [*(label for _, label in _SESSION_SIZES), _MORE]},
            worst=tuple(worst),
        )

    def _timeline(self) -> tuple[TimeSlice, ...]:
        times, parts = np.asarray(self._total_ms), np.asarray(self._total_slices)
        return tuple(
            TimeSlice(
                start=self._since + part * self._slice,
                calls=self._slice_calls[part],
                failed=self._slice_failed[part],
                without_semantic_search=self._slice_degraded[part],
                total_p95_ms=Percentiles.of(times[parts == part]).p95,
            )
            for part in range(_SLICES)
        )


def _outcome(row: CallRow, details: CallDetails) -> str:
    if details.error is not None:
        return "failed"
    if row.found:
        return "found"
    if row.dedup_reason:
        return "held_back"
    is_cut_short = details.l1_error is not None or details.l0_error is not None
    return "undecided" if is_cut_short or not details.is_readable else "nothing_found"


def _lacked_keyword_index(details: CallDetails) -> bool:
    return details.l0_error is not None or (details.error is not None and "keyword index" in details.error.lower())


def _session_size(calls: int) -> str:
    return next((label for most, label in _SESSION_SIZES if calls <= most), _MORE)


def _most(counts: Counter[str], most: int | None = None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])
