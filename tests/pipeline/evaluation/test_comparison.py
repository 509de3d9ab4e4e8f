"""Two evaluations compared query by query: the arithmetic by hand."""

import math
import random

import pytest

from knowledge_lookup.pipeline.evaluation import EvaluationReport, LabelledQuery, Outcome, Share, compare
from knowledge_lookup.postprocessors import RelevanceLevel


def found(number: int, rank: int | None, *, delivered: bool = True, kind: str = "natural") -> Outcome:
    """An answerable query whose right document has the rank; delivered only where it's ranked."""
    ranked = ("x",) * 5 if rank is None else ("x",) * (rank - 1) + ("gold",)
    query = LabelledQuery(f"q{number}", frozenset({"gold"}), kind)
    is_delivered = delivered and rank is not None
    return Outcome(query, ranked, ("gold",) if is_delivered else ("x",), RelevanceLevel.REFERENCE, 1.0)


def unanswerable(number: int, level: RelevanceLevel | None) -> Outcome:
    query = LabelledQuery(f"u{number}", frozenset(), "unanswerable")
    return Outcome(query, () if level is None else ("x",), () if level is None else ("x",), level, 1.0)


def report(*outcomes: Outcome) -> EvaluationReport:
    return EvaluationReport(outcomes)


def ranks(*values: int | None) -> EvaluationReport:
    return report(*(found(number, rank) for number, rank in enumerate(values)))


@pytest.mark.parametrize(
    ("only_first", "only_second", "both", "p_value"),
    [
        (1, 8, 11, 2 * (1 + 9) / 2**9),
        (8, 1, 0, 2 * (1 + 9) / 2**9),
        (0, 6, 3, 2 / 2**6),
        (2, 10, 100, 2 * (1 + 12 + 66) / 2**12),
        (4, 4, 1, 1.0),
        (0, 0, 5, 1.0),
    ],
)
def test_the_p_value_is_that_of_the_exact_two_sided_mcnemar_test(
    only_first: int, only_second: int, both: int, p_value: float
) -> None:
    first = ranks(*[1] * only_first, *[None] * only_second, *[1] * both)
    second = ranks(*[None] * only_first, *[1] * only_second, *[1] * both)
    n = only_first + only_second + both
    for pair in (compare(first, second).recall_at_1, compare(first, second).hit_rate):
        assert (pair.only_first, pair.only_second) == (only_first, only_second)
        assert (pair.first, pair.second) == (Share(only_first + both, n), Share(only_second + both, n))
        assert pair.difference == pytest.approx((only_second - only_first) / n)
        assert pair.p_value() == pytest.approx(p_value)


def test_ranking_delivery_and_unanswerable_queries_are_compared_each_by_itself() -> None:
    first = report(found(0, 1), found(1, 1, delivered=False), found(2, 2), unanswerable(0, None), unanswerable(1, None))
    second = report(
        found(0, 2), found(1, 1), found(2, 2), unanswerable(0, RelevanceLevel.REFERENCE), unanswerable(1, None)
    )
    compared = compare(first, second)
    assert (compared.recall_at_1.only_first, compared.recall_at_1.only_second) == (1, 0)
    assert (compared.hit_rate.only_first, compared.hit_rate.only_second) == (0, 1)
    assert (compared.not_found_rate.only_first, compared.not_found_rate.only_second) == (1, 0)
    assert (compared.not_found_rate.first, compared.not_found_rate.second) == (Share(2, 2), Share(1, 2))


def test_the_queries_on_which_both_differ_are_listed_wrong_ones_before_mere_ranks() -> None:
    first = report(found(0, 1), found(1, 1), found(2, None), unanswerable(0, None))
    second = report(found(0, 1), found(1, 3), found(2, 4), unanswerable(0, RelevanceLevel.HIGHLY_RELEVANT))
    disagreements = compare(first, second).disagreements
    assert [disagreement.query.query for disagreement in disagreements] == ["q2", "u0", "q1"]
    assert disagreements[1].to_dict() == {
        "query": "u0",
        "kind": "unanswerable",
        "gold": [],
        "first": {"right": True, "level": None, "delivered": [], "rank": None},
        "second": {"right": False, "level": "HIGHLY_RELEVANT", "delivered": ["x"], "rank": None},
    }


def test_the_mean_difference_of_mrr_is_second_minus_first_within_its_interval() -> None:
    compared = compare(ranks(1, 2, 4, None, 1, 1), ranks(1, 1, 2, 5, 2, 1)).mrr
    assert compared.difference == pytest.approx((0 + 1 / 2 + 1 / 4 + 1 / 5 - 1 / 2 + 0) / 6)
    interval = compared.interval()
    assert interval is not None
    assert interval[0] < 0 < compared.difference < interval[1]


def test_the_interval_of_mrr_is_about_two_standard_errors_wide_and_the_same_each_time() -> None:
    values = random.Random(7)
    first, second = (ranks(*(values.choice((1, 2, 3, 5, None)) for _ in range(300))) for _ in range(2))
    compared = compare(first, second).mrr
    changes = [after - before for before, after in zip(compared.first, compared.second, strict=True)]
    mean = sum(changes) / 300
    error = math.sqrt(sum((change - mean) ** 2 for change in changes)) / 300
    interval = compared.interval()
    assert interval == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.15 * error)
    assert compare(first, second).mrr.interval() == interval


def test_figures_are_compared_for_each_kind_too() -> None:
    first = report(found(0, 1, kind="keyword"), found(1, None), found(2, None))
    second = report(found(0, None, kind="keyword"), found(1, 1), found(2, 2))
    result = compare(first, second).to_dict()
    assert result["mrr"]["difference"] == pytest.approx((-1 + 1 + 1 / 2) / 3, abs=1e-4)
    assert {kind: figures["mrr"]["difference"] for kind, figures in result["byKind"].items()} == {
        "keyword": -1.0,
        "natural": 0.75,
    }
    keyword = result["byKind"]["keyword"]
    assert (keyword["queries"], keyword["hitRate"]["onlyFirst"], keyword["hitRate"]["onlySecond"]) == (1, 1, 0)
    assert keyword["notFoundRate"]["pValue"] is None
    assert keyword["mrr"]["interval95"] is None


def test_a_very_small_p_value_does_not_become_zero_in_json() -> None:
    pair = compare(ranks(*[None] * 40), ranks(*[1] * 40)).hit_rate
    assert pair.to_dict()["pValue"] == pytest.approx(2 / 2**40, rel=1e-3)


OTHER_LABEL = Outcome(LabelledQuery("q1", frozenset({"other"}), "natural"), (), (), None, 1.0)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (report(found(0, 1)), "the first report has 2 queries and the second 1: evaluate both"),
        (report(found(1, 1), found(0, 1)), "query 1 of the first report is 'q0' .* and of the second 'q1'"),
        (report(found(0, 1), OTHER_LABEL), r"query 2 .*gold \['gold'\].*gold \['other'\]"),
    ],
)
def test_other_queries_labels_or_another_order_are_refused_in_one_line(second: EvaluationReport, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        compare(ranks(1, 1), second)
    assert "\n" not in str(refused.value)
