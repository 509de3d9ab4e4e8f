"""Percentiles by nearest rank."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.pipeline.statistics import Percentiles


@pytest.mark.parametrize(
    ("count", "p50", "p95", "p99"),
    [
        (1, 1, 1, 1),
        (2, 1, 2, 2),
        (3, 2, 3, 3),
        (20, 10, 19, 20),
        (21, 11, 20, 21),
        (100, 50, 95, 99),
        (101, 51, 96, 100),
    ],
)
def test_percentiles_of_one_to_n(count: int, p50: float, p95: float, p99: float) -> None:
    values = [float(n) for n in range(count, 0, -1)]
    assert Percentiles.of(values) == Percentiles(count, p50, p95, p99, count)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_p95_is_the_smallest_value_that_all_but_one_in_twenty_stay_within(values: list[float]) -> None:
    p95 = Percentiles.of(values).p95
    assert p95 is not None
    assert p95 in values
    assert sum(value <= p95 for value in values) >= math.ceil(0.95 * len(values) - 1e-9)
    assert sum(value > p95 for value in values) * 20 <= len(values)
    assert sum(value < p95 for value in values) < 0.95 * len(values)
