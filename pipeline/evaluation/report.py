"""The figures of an evaluation, each share with its number and its 95 % interval."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.postprocessors import RelevanceLevel

_Z_95 = 1.959964
RECALL_AT = (1, 3, 5)
_WORST = 20


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many.

    :param count: Those that count.
    :param total: All of them.
    """

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The share, 0 to 1; None of nothing."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval at 95 % (E. B. Wilson, 1927), 0 to 1; None of nothing."""
        if not self.total:
            return None
        share, n, z2 = self.count / self.total, self.total, _Z_95**2
        centre = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = _Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
        # At 0 and 1 rounding would leave the share itself outside.
        return max(min(centre - half, share), 0.0), min(max(centre + half, share), 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the share as JSON values."""
        interval = self.interval
        return {
            "share": None if self.value is None else round(self.value, 4),
            "count": self.count,
            "n": self.total,
            "interval95": None if interval is None else [round(bound, 4) for bound in interval],
        }

    def __str__(self) -> str:
        interval = self.interval
        if self.value is None or interval is None:
            return "-"
        return f"{self.value:.3f} ({interval[0]:.3f}-{interval[1]:.3f}, n={self.total})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one query.

    :param query: The query with its label.
    :param ranked: Documents in order of rank, before the session and the text budgets.
    :param delivered: Documents whose text was delivered.
    :param level: The level; None when nothing was found.
    :param latency_ms: Milliseconds of the look-up.
    :param evidence: What the result was judged by, for people to read.
    """

    query: LabelledQuery
    ranked: tuple[str, ...]
    delivered: tuple[str, ...]
    level: RelevanceLevel | None
    latency_ms: float
    evidence: str = ""

    @property
    def rank(self) -> int | None:
        """Rank of the first right document, from 1; None if there's none."""
        return next((rank for rank, path in enumerate(self.ranked, start=1) if path in self.query.gold), None)

    @property
    def reciprocal_rank(self) -> float:
        """One over the rank, 0 to 1; 0 if there's no right document."""
        return 0.0 if self.rank is None else 1 / self.rank

    @property
    def is_right(self) -> bool:
        """Whether a right document was delivered; for an unanswerable query, whether nothing was."""
        if not self.query.gold:
            return self.level is None
        return any(path in self.query.gold for path in self.delivered)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {
            "query": self.query.query,
            "kind": self.query.kind,
            "gold": sorted(self.query.gold),
            "level": None if self.level is None else self.level.value,
            "delivered": list(self.delivered),
            "rank": self.rank,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The outcomes of all queries, and their figures.

    :param outcomes: One a query, in order.
    """

    outcomes: tuple[Outcome, ...]

    @property
    def answerable(self) -> tuple[Outcome, ...]:
        """Outcomes of queries that have an answer."""
        return tuple(outcome for outcome in self.outcomes if outcome.query.gold)

    @property
    def unanswerable(self) -> tuple[Outcome, ...]:
        """Outcomes of queries that have none."""
        return tuple(outcome for outcome in self.outcomes if not outcome.query.gold)

    def recall_at(self, k: int) -> Share:
        """Share of the answerable queries with a right document among the first k.

        :param k: Depth of the ranking, at least 1.
        :returns: The share.
        """
        return _share(self.answerable, lambda outcome: outcome.rank is not None and outcome.rank <= k)

    @property
    def mrr(self) -> float | None:
        """Mean reciprocal rank of the first right document, 0 to 1; None without answerable queries."""
        if not self.answerable:
            return None
        return sum(outcome.reciprocal_rank for outcome in self.answerable) / len(self.answerable)

    @property
    def hit_rate(self) -> Share:
        """Share of the answerable queries for which a right document was delivered."""
        return _share(self.answerable, lambda outcome: outcome.is_right)

    @property
    def not_found_rate(self) -> Share:
        """Share of the unanswerable queries for which nothing was delivered."""
        return _share(self.unanswerable, lambda outcome: outcome.is_right)

    def right_at(self, level: RelevanceLevel) -> Share:
        """Share of a level's results that delivered a right document.

        :param level: The level.
        :returns: The share of all queries, unanswerable ones included, that got the level.
        """
        at_level = [outcome for outcome in self.outcomes if outcome.level is level]
        return _share(at_level, lambda outcome: outcome.is_right)

    @property
    def by_kind(self) -> dict[str, "EvaluationReport"]:
        """The same figures for each kind of query, in order of the names."""
        kinds = sorted({outcome.query.kind for outcome in self.outcomes})
        return {
            kind: EvaluationReport(tuple(outcome for outcome in self.outcomes if outcome.query.kind == kind))
            for kind in kinds
        }

    @property
    def worst(self) -> list[Outcome]:
        """The errors that mislead most: a wrong PRECISE first, what wasn't found last; at most twenty."""
        weight = {RelevanceLevel.PRECISE: 0, RelevanceLevel.HIGHLY_RELEVANT: 1, RelevanceLevel.REFERENCE: 2, None: 3}
        wrong = [outcome for outcome in self.outcomes if not outcome.is_right]
        return sorted(wrong, key=lambda outcome: weight[outcome.level])[:_WORST]

    def latency_ms(self) -> tuple[float, float]:
        """Median and 95th percentile of the latency in milliseconds.

        :returns: (p50, p95).
        """
        times = [outcome.latency_ms for outcome in self.outcomes]
        return median(times), (quantiles(times, n=20)[-1] if len(times) > 1 else times[0])

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values, with those by kind and the worst errors."""
        p50, p95 = self.latency_ms()
        kinds = self.by_kind
        return {
            **self._figures(),
            "latencyMs": {"p50": round(p50, 2), "p95": round(p95, 2)},
            "byKind": {kind: report._figures() for kind, report in kinds.items()} if len(kinds) > 1 else {},
            "worst": [outcome.to_dict() for outcome in self.worst],
        }

    def _figures(self) -> dict[str, Any]:
        return {
            "queries": len(self.outcomes),
            **{f"recallAt{k}": self.recall_at(k).to_dict() for k in RECALL_AT},
            "mrr": None if self.mrr is None else round(self.mrr, 4),
            "hitRate": self.hit_rate.to_dict(),
            "notFoundRate": self.not_found_rate.to_dict(),
            "rightAtLevel": {level.value: self.right_at(level).to_dict() for level in RelevanceLevel},
        }


def _share(outcomes: Sequence[Outcome], counts: Callable[[Outcome], bool]) -> Share:
    judged = [counts(outcome) for outcome in outcomes]
    return Share(sum(judged), len(judged))
