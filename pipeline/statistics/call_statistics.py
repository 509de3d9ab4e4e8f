"""The figures of a time window, as the command line, the page and the alerts show them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from knowledge_lookup.pipeline.evaluation.report import Share
from knowledge_lookup.pipeline.statistics.percentiles import Percentiles
from knowledge_lookup.pipeline.storage import HASHED_QUERY_PREFIX


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the calls; each is counted once.

    :param found: Something was delivered.
    :param held_back: Nothing was delivered because of what the session has or may have (a ``dedup_reason``).
    :param nothing_found: The knowledge base was searched and holds nothing valid, or the query was empty.
    :param undecided: Nothing was delivered while part of the search was down, or the record doesn't tell: it says
        nothing about the knowledge base.
    :param failed: The call ended in an error.
    """

    found: int = 0
    held_back: int = 0
    nothing_found: int = 0
    undecided: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A question to which the knowledge base had no answer.

    :param query: The latest wording, at most 200 characters, or its hash.
    :param calls: How often it was asked in vain, in any wording with the same normal form.
    :param last_at: When it was last asked in vain, in UTC.
    """

    query: str
    calls: int
    last_at: datetime

    @property
    def is_hashed(self) -> bool:
        """Whether the query was stored as a hash."""
        return self.query.startswith(HASHED_QUERY_PREFIX)


@dataclass(frozen=True, slots=True)
class SessionCalls:
    """One session.

    :param session_id: The session.
    :param calls: Its calls in the window.
    :param found: Those that delivered something.
    :param held_back: Those that were held back by the session's memory or a limit.
    :param first_at: Its first call in the window, in UTC.
    :param last_at: Its last call in the window, in UTC.
    """

    session_id: str
    calls: int
    found: int
    held_back: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Sessions:
    """How many calls the sessions make.

    :param count: Sessions with a call in the window.
    :param calls_without_session: Calls outside any session.
    :param calls: Percentiles of the calls of a session.
    :param distribution: Number of sessions by number of calls (``1`` to ``5``, ``6-10``, ``11-20``, ``21+``).
    :param worst: The sessions with most calls, at most ten, most first.
    """

    count: int = 0
    calls_without_session: int = 0
    calls: Percentiles = field(default_factory=Percentiles)
    distribution: Mapping[str, int] = field(default_factory=dict)
    worst: tuple[SessionCalls, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """One of the equal parts of the window.

    :param start: Where it begins, in UTC.
    :param calls: Calls in it.
    :param failed: Those that failed.
    :param without_semantic_search: Those for which semantic search was down.
    :param total_p95_ms: P95 of their total latency in milliseconds; None without a call.
    """

    start: datetime
    calls: int
    failed: int
    without_semantic_search: int
    total_p95_ms: float | None


@dataclass(frozen=True, slots=True)
class CallStatistics:
    """The figures of the calls of a time window. Latencies are in milliseconds, shares from 0 to 1.

    :param since: The window's beginning, in UTC, inclusive.
    :param until: When the figures were computed, in UTC.
    :param calls: All calls that began in the window, of all tools.
    :param without_semantic_search: Calls that were answered without semantic search because it was down.
    :param without_keyword_index: Calls for which the keyword index could not be loaded, those that failed for it
        included.
    :param unreadable: Calls whose ``retrieval_details`` can't be read; they count only by their columns.
    :param outcomes: What became of the calls.
    :param l0_ms: Latency of the exact match, of the calls that asked it (``search_doc`` doesn't).
    :param l1_ms: Latency of semantic search, of the calls that asked it and got an answer.
    :param total_ms: Latency of all calls, failed ones included.
    :param needed_semantic_search: Share that asked semantic search, of the calls that asked the exact match.
    :param high_confidence: Share with a decisive exact match, of the calls that asked it and were neither held back nor
        failed: an agent that repeats itself says nothing about the keywords.
    :param levels: Calls by relevance level; ``none`` for those that delivered nothing.
    :param dedup_reasons: Calls by why something was held back, most first.
    :param sessions: How many calls the sessions make.
    :param domains: Calls that delivered something of a domain, most first, at most ten. A call counts once for each
        domain of its sources, which is that of the document's row; of a document that is gone, its first folder.
        A supplement counts with its best passage's document.
    :param gaps: What was asked in vain, most often first, then latest first, at most a hundred.
    :param gap_queries: How many different queries were asked in vain; at most so many where ``gaps_are_complete`` is
        False.
    :param gaps_are_complete: False when there were so many different ones that the rarest were given up on the way.
    :param timeline: The window in 24 equal parts.
    """

    since: datetime
    until: datetime
    calls: int = 0
    without_semantic_search: int = 0
    without_keyword_index: int = 0
    unreadable: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)
    l0_ms: Percentiles = field(default_factory=Percentiles)
    l1_ms: Percentiles = field(default_factory=Percentiles)
    total_ms: Percentiles = field(default_factory=Percentiles)
    needed_semantic_search: Share = Share(0, 0)  # noqa: RUF009 - frozen
    high_confidence: Share = Share(0, 0)  # noqa: RUF009 - frozen
    levels: Mapping[str, int] = field(default_factory=dict)
    dedup_reasons: Mapping[str, int] = field(default_factory=dict)
    sessions: Sessions = field(default_factory=Sessions)
    domains: Mapping[str, int] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    gap_queries: int = 0
    gaps_are_complete: bool = True
    timeline: tuple[TimeSlice, ...] = ()

    @property
    def window(self) -> timedelta:
        """Length of the window."""
        return self.until - self.since

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values; moments are in ISO 8601."""
        outcomes = self.outcomes
        return {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "calls": self.calls,
            "failed": outcomes.failed,
            "withoutSemanticSearch": self.without_semantic_search,
            "withoutKeywordIndex": self.without_keyword_index,
            "unreadable": self.unreadable,
            "outcomes": {
                "found": outcomes.found,
                "heldBack": outcomes.held_back,
                "nothingFound": outcomes.nothing_found,
                "undecided": outcomes.undecided,
                "failed": outcomes.failed,
            },
            "latencyMs": {"l0": self.l0_ms.to_dict(), "l1": self.l1_ms.to_dict(), "total": self.total_ms.to_dict()},
            "neededSemanticSearch": self.needed_semantic_search.to_dict(),
            "highConfidence": self.high_confidence.to_dict(),
            "levels": dict(self.levels),
            "dedupReasons": dict(self.dedup_reasons),
            "sessions": _sessions(self.sessions),
            "domains": [{"domain": domain, "calls": calls} for domain, calls in self.domains.items()],
            "nothingFound": {
                "queries": self.gap_queries,
                "isComplete": self.gaps_are_complete,
                "mostAsked": [
                    {"query": g.query, "isHashed": g.is_hashed, "calls": g.calls, "lastAt": g.last_at.isoformat()}
                    for g in self.gaps
                ],
            },
            "timeline": [
                {
                    "start": part.start.isoformat(),
                    "calls": part.calls,
                    "failed": part.failed,
                    "withoutSemanticSearch": part.without_semantic_search,
                    "totalP95Ms": None if part.total_p95_ms is None else round(part.total_p95_ms, 3),
                }
                for part in self.timeline
            ],
        }


def _sessions(sessions: Sessions) -> dict[str, Any]:
    return {
        "count": sessions.count,
        "callsWithoutSession": sessions.calls_without_session,
        "callsPerSession": sessions.calls.to_dict(),
        "distribution": dict(sessions.distribution),
        "worst": [
            {
                "session": worst.session_id,
                "calls": worst.calls,
                "found": worst.found,
                "heldBack": worst.held_back,
                "firstAt": worst.first_at.isoformat(),
                "lastAt": worst.last_at.isoformat(),
            }
            for worst in sessions.worst
        ],
    }
