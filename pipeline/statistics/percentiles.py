"""Percentiles of measured times, each of which is a time that was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

PERCENTAGES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of numbers by nearest rank.

    The P95 of ``count`` numbers is the one at position ``ceil(0.95 * count)`` when they are sorted, counted from 1: the
    smallest of them that at least 95 % of them don't exceed. So "P95 above 2,000 ms" says exactly that more than one
    call in twenty took longer than that, and one single number is all its percentiles.

    :param count: How many numbers there are, 0 or more.
    :param p50: The median; None of nothing, like the others.
    :param p95: Most calls stay below it.
    :param p99: Nearly all calls stay below it.
    :param largest: The greatest number.
    """

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    largest: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Compute the percentiles.

        :param values: The numbers, in any order, all finite.
        :returns: Their percentiles.
        """
        numbers = np.sort(np.asarray(values, dtype=np.float64))
        if not numbers.size:
            return cls()
        # In whole numbers: 0.95 as a binary fraction would now and then round up to the next position.
        p50, p95, p99 = (float(numbers[-(-percentage * numbers.size // 100) - 1]) for percentage in PERCENTAGES)
        return cls(int(numbers.size), p50, p95, p99, float(numbers[-1]))

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the percentiles as JSON values, to three decimals.

        :returns: ``count``, ``p50``, ``p95``, ``p99`` and ``max``.
        """
        values = {"p50": self.p50, "p95": self.p95, "p99": self.p99, "max": self.largest}
        return {"count": self.count} | {name: None if v is None else round(v, 3) for name, v in values.items()}
