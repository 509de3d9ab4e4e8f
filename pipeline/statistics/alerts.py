"""The rules by which the figures call for attention."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from knowledge_lookup.pipeline.observation_settings import AlertSettings
from knowledge_lookup.pipeline.statistics.call_statistics import CallStatistics
from knowledge_lookup.pipeline.visible_text import visible

Rule = Literal["total-latency", "keyword-index-failures", "keyword-index-load", "high-confidence"]
_MOST_REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that fires.

    :param rule: Which one; ``keyword-index-load`` is the trial, ``keyword-index-failures`` counts what was recorded.
    :param value: What was measured: milliseconds, calls, or a share from 0 to 1; None for the trial.
    :param limit: The limit in the same unit; None for the trial.
    :param calls: Of how many calls; None for the trial.
    :param detail: ``p50``, ``p95``, ``p99`` or ``max``, or why the trial failed; empty where there's nothing to say.
    """

    rule: Rule
    value: float | None = None
    limit: float | None = None
    calls: int | None = None
    detail: str = ""

    @property
    def message(self) -> str:
        """One line in English that says what was measured and what the limit is."""
        match self.rule:
            case "total-latency":
                name = "the maximum" if self.detail == "max" else self.detail.upper()
                return (
                    f"total latency: {name} of {self.calls:,} calls is {self.value:,.0f} ms, above the limit of "
                    f"{self.limit:,.0f} ms"
                )
            case "keyword-index-failures":
                return f"keyword index: {self.value:,.0f} of {self.calls:,} calls could not load it from the database"
            case "keyword-index-load":
                return f"keyword index: it can't be loaded now: {self.detail}"
            case "high-confidence":
                return (
                    f"high confidence: {self.value:.1%} of {self.calls:,} look-ups had a decisive exact match, below "
                    f"the limit of {self.limit:.1%}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the alert as JSON values."""
        return {"rule": self.rule, "message": self.message, "value": self.value, "limit": self.limit}


def check_alerts(
    statistics: CallStatistics, rules: AlertSettings, *, load_keyword_index: Callable[[], object]
) -> list[Alert]:
    """Apply the rules.

    :param statistics: The figures of a window.
    :param rules: The limits; a rule whose limit is None is off.
    :param load_keyword_index: Loads the keyword index as a new process would, and raises if that fails.
    :returns: The rules that fire; none when all is well.
    """
    return [
        *_total_latency(statistics, rules),
        *_keyword_index(statistics, rules, load_keyword_index),
        *_high_confidence(statistics, rules),
    ]


def _total_latency(statistics: CallStatistics, rules: AlertSettings) -> Iterator[Alert]:
    limit, percentile, total = rules.total_latency_ms, rules.total_latency_percentile, statistics.total_ms
    value = {"p50": total.p50, "p95": total.p95, "p99": total.p99, "max": total.largest}[percentile]
    if limit is not None and value is not None and value > limit:
        yield Alert("total-latency", value, limit, total.count, percentile)


def _keyword_index(
    statistics: CallStatistics, rules: AlertSettings, load_keyword_index: Callable[[], object]
) -> Iterator[Alert]:
    limit, failures = rules.keyword_index_failures, statistics.without_keyword_index
    if limit is None:
        return
    if failures >= limit:
        yield Alert("keyword-index-failures", failures, limit, statistics.calls)
    try:
        load_keyword_index()
    except Exception as error:  # a damaged row may raise anything, and this is what the alert is for
        yield Alert("keyword-index-load", detail=visible(f"{type(error).__name__}: {error}", _MOST_REASON_CHARACTERS))


def _high_confidence(statistics: CallStatistics, rules: AlertSettings) -> Iterator[Alert]:
    limit, share = rules.high_confidence_share, statistics.high_confidence
    if limit is None or share.value is None or share.total < rules.high_confidence_calls:
        return
    if share.value < limit:
        yield Alert("high-confidence", share.value, limit, share.total)
