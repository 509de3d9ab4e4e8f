"""Two evaluations of the same queries, compared query by query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.pipeline.evaluation.report import EvaluationReport, Outcome, Share

_BOOTSTRAP_SEED = 20_240_601
_RESAMPLES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class PairedShare:
    """The same share in both evaluations, and the queries that only one of them got right.

    :param first: The first evaluation's share.
    :param second: The second's, of the same queries.
    :param only_first: Queries that only the first got right.
    :param only_second: Queries that only the second got right.
    """

    first: Share
    second: Share
    only_first: int
    only_second: int

    @property
    def difference(self) -> float | None:
        """Second minus first, -1 to 1; None without queries."""
        return (self.second.count - self.first.count) / self.first.total if self.first.total else None

    def p_value(self) -> float | None:
        """Test whether the two are equally often right (McNemar, exact and two-sided).

        :returns: How likely chance alone makes a difference as large as this one, 0 to 1; None without queries.
        """
        if not self.first.total:
            return None
        discordant = self.only_first + self.only_second
        if not discordant:
            return 1.0
        from scipy.stats import binomtest

        return float(binomtest(self.only_second, discordant, 0.5).pvalue)

    def to_dict(self) -> dict[str, Any]:
        """Return shares and test as JSON values."""
        p_value = self.p_value()
        return {
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "difference": _rounded(self.difference),
            "onlyFirst": self.only_first,
            "onlySecond": self.only_second,
            # Significant digits: a small p must not become 0.
            "pValue": None if p_value is None else float(f"{p_value:.4g}"),
        }


@dataclass(frozen=True, slots=True)
class PairedMean:
    """The same mean in both evaluations, from one value a query.

    :param first: The first evaluation's values.
    :param second: The second's, of the same queries in the same order.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def difference(self) -> float | None:
        """Mean of second minus first; None without queries."""
        changes = self._changes
        return sum(changes) / len(changes) if changes else None

    def interval(self) -> tuple[float, float] | None:
        """Resample the queries in pairs (percentile bootstrap, fixed seed).

        :returns: The 95 % interval of :attr:`difference`; None with fewer than two queries.
        """
        changes = self._changes
        if len(changes) < 2:
            return None
        from scipy.stats import bootstrap

        result = bootstrap(
            (changes,), _mean, method="percentile", batch=_RESAMPLES_AT_ONCE, confidence_level=0.95, rng=_BOOTSTRAP_SEED
        )
        return float(result.confidence_interval.low), float(result.confidence_interval.high)

    def to_dict(self) -> dict[str, Any]:
        """Return means, difference and interval as JSON values."""
        interval = self.interval()
        n = len(self.first)
        return {
            "first": _rounded(sum(self.first) / n if n else None),
            "second": _rounded(sum(self.second) / n if n else None),
            "n": n,
            "difference": _rounded(self.difference),
            "interval95": None if interval is None else [round(bound, 4) for bound in interval],
        }

    @property
    def _changes(self) -> list[float]:
        return [second - first for first, second in zip(self.first, self.second, strict=True)]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A query that the two evaluations judge differently: right or wrong, or a right document at rank 1 or not.

    :param first: The first evaluation's outcome.
    :param second: The second's.
    """

    first: Outcome
    second: Outcome

    @property
    def query(self) -> LabelledQuery:
        """The query with its label."""
        return self.first.query

    def to_dict(self) -> dict[str, Any]:
        """Return the query and both outcomes as JSON values."""
        return {
            "query": self.query.query,
            "kind": self.query.kind,
            "gold": sorted(self.query.gold),
            "first": _judged(self.first),
            "second": _judged(self.second),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations of the same queries; use :func:`compare`, which sees to that.

    :param first: The first evaluation.
    :param second: The second; differences are second minus first.
    """

    first: EvaluationReport
    second: EvaluationReport

    @property
    def recall_at_1(self) -> PairedShare:
        """Of the answerable queries, those with a right document at rank 1."""
        return _paired(self.first.answerable, self.second.answerable, lambda outcome: outcome.rank == 1)

    @property
    def hit_rate(self) -> PairedShare:
        """Of the answerable queries, those for which a right document was delivered."""
        return _paired(self.first.answerable, self.second.answerable, lambda outcome: outcome.is_right)

    @property
    def not_found_rate(self) -> PairedShare:
        """Of the unanswerable queries, those for which nothing was delivered."""
        return _paired(self.first.unanswerable, self.second.unanswerable, lambda outcome: outcome.is_right)

    @property
    def mrr(self) -> PairedMean:
        """The reciprocal ranks of the answerable queries."""
        return PairedMean(
            tuple(outcome.reciprocal_rank for outcome in self.first.answerable),
            tuple(outcome.reciprocal_rank for outcome in self.second.answerable),
        )

    @property
    def by_kind(self) -> dict[str, "Comparison"]:
        """The same for each kind of query, in order of the names; p-values aren't corrected for their number."""
        second = self.second.by_kind
        return {kind: Comparison(report, second[kind]) for kind, report in self.first.by_kind.items()}

    @property
    def disagreements(self) -> list[Disagreement]:
        """All queries on which the two differ: first those that only one got right, then those that differ in rank."""
        pairs = list(zip(self.first.outcomes, self.second.outcomes, strict=True))
        in_right = [pair for pair in pairs if pair[0].is_right != pair[1].is_right]
        in_rank = [
            (first, second)
            for first, second in pairs
            if first.is_right == second.is_right and (first.rank == 1) != (second.rank == 1)
        ]
        return [Disagreement(first, second) for first, second in in_right + in_rank]

    def to_dict(self) -> dict[str, Any]:
        """Return all paired figures as JSON values, with those by kind and all disagreements."""
        kinds = self.by_kind
        return {
            **self._figures(),
            "byKind": {kind: part._figures() for kind, part in kinds.items()} if len(kinds) > 1 else {},
            "disagreements": [disagreement.to_dict() for disagreement in self.disagreements],
        }

    def _figures(self) -> dict[str, Any]:
        return {
            "queries": len(self.first.outcomes),
            "recallAt1": self.recall_at_1.to_dict(),
            "mrr": self.mrr.to_dict(),
            "hitRate": self.hit_rate.to_dict(),
            "notFoundRate": self.not_found_rate.to_dict(),
        }


def compare(first: EvaluationReport, second: EvaluationReport) -> Comparison:
    """Compare two evaluations query by query.

    :param first: An evaluation.
    :param second: Another one, of the same labelled queries in the same order.
    :returns: The comparison; its differences are second minus first.
    :raises ValueError: If the queries, their labels or their order differ.
    """
    if len(first.outcomes) != len(second.outcomes):
        raise ValueError(
            f"the first report has {len(first.outcomes)} queries and the second {len(second.outcomes)}: "
            "evaluate both with the same labelled queries in the same order"
        )
    for number, (one, other) in enumerate(zip(first.outcomes, second.outcomes, strict=True), start=1):
        if one.query != other.query:
            raise ValueError(
                f"query {number} of the first report is {_described(one.query)} and of the second "
                f"{_described(other.query)}: evaluate both with the same labelled queries in the same order"
            )
    return Comparison(first, second)


def _paired(first: Sequence[Outcome], second: Sequence[Outcome], is_right: Callable[[Outcome], bool]) -> PairedShare:
    judged = [(is_right(one), is_right(other)) for one, other in zip(first, second, strict=True)]
    return PairedShare(
        first=Share(sum(one for one, _ in judged), len(judged)),
        second=Share(sum(other for _, other in judged), len(judged)),
        only_first=judged.count((True, False)),
        only_second=judged.count((False, True)),
    )


def _mean(sample: Any, axis: int) -> Any:
    return sample.mean(axis=axis)


def _judged(outcome: Outcome) -> dict[str, Any]:
    return {
        "right": outcome.is_right,
        "level": None if outcome.level is None else outcome.level.value,
        "delivered": list(outcome.delivered),
        "rank": outcome.rank,
    }


def _described(query: LabelledQuery) -> str:
    return f"{query.query!r} (kind {query.kind!r}, gold {sorted(query.gold)})"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
