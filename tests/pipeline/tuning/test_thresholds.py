"""Thresholds from probabilities, by hand."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.pipeline.evaluation import Share
from knowledge_lookup.pipeline.tuning import TuningFigures, TuningGoal
from knowledge_lookup.pipeline.tuning.thresholds import Judged, highly_relevant_threshold, reference_threshold

from .made_up import BASE, probable, sample

GOAL = TuningGoal()
Ranked = tuple[tuple[float, bool], ...]


def judged(*ranked: tuple[float, bool], answerable: bool = True) -> Judged:
    return Judged(sample("a.md", answerable=answerable), ranked)


def unanswerable(*probabilities: float) -> list[Judged]:
    return [judged((probability, False), answerable=False) for probability in probabilities]


def results(count: int, probability: float, *, right: bool) -> list[Judged]:
    return [judged((probability, right)) for _ in range(count)]


# The reference threshold


@pytest.mark.parametrize(("queries", "answered"), [(1, 0), (19, 0), (20, 1), (39, 1), (40, 2), (100, 5)])
def test_five_percent_of_the_unanswerable_queries_and_not_one_more_get_a_result(queries: int, answered: int) -> None:
    probabilities = [number / 1000 for number in range(1, queries + 1)]
    threshold = reference_threshold(unanswerable(*probabilities), GOAL)
    assert sum(probability >= threshold for probability in probabilities) == answered
    # It is the lowest such threshold: just below it there is the next query.
    assert threshold == pytest.approx(sorted(probabilities)[-1 - answered], abs=1e-8)


@pytest.mark.parametrize(("share", "answered"), [(0.07, 7), (0.29, 29), (0.57, 57), (0.0, 0), (0.999, 99)])
def test_a_share_that_floating_point_makes_a_little_smaller_still_counts(share: float, answered: int) -> None:
    probabilities = [number / 1000 for number in range(1, 101)]
    threshold = reference_threshold(unanswerable(*probabilities), TuningGoal(most_answered=share))
    assert sum(probability >= threshold for probability in probabilities) == answered


def test_of_equally_probable_unanswerable_queries_none_gets_through_where_all_are_too_many() -> None:
    threshold = reference_threshold(unanswerable(*[0.1] * 18, 0.8, 0.8), GOAL)
    assert 0.8 < threshold < 0.8001


def test_where_every_unanswerable_query_may_get_a_result_nothing_is_held_back() -> None:
    assert reference_threshold(unanswerable(0.2, 0.9), TuningGoal(most_answered=1.0)) == 0.0


def test_answerable_queries_have_no_say_in_the_reference_threshold() -> None:
    mixed = [*unanswerable(0.2), *results(50, 0.9, right=False)]
    assert reference_threshold(mixed, GOAL) == pytest.approx(0.2, abs=1e-8)


def test_a_query_for_which_nothing_was_retrieved_is_not_answered_by_any_threshold_above_zero() -> None:
    nothing = judged(answerable=False)
    assert nothing.best == 0.0
    threshold = reference_threshold([nothing], GOAL)
    assert 0.0 < threshold < 1e-6


def test_certainty_leaves_no_room_above_it_and_the_threshold_stays_a_probability() -> None:
    assert reference_threshold(unanswerable(1.0), GOAL) == 1.0


# The upper threshold


def test_at_95_percent_it_takes_19_results_that_are_all_right() -> None:
    assert highly_relevant_threshold(results(18, 0.9, right=True), 0.0, GOAL) is None
    assert highly_relevant_threshold(results(19, 0.9, right=True), 0.0, GOAL) == 0.9


def test_one_wrong_result_takes_38_right_ones() -> None:
    wrong = results(1, 0.99, right=False)
    # One more counts as wrong than there is: 38 / 40 is 95 %, 37 / 39 isn't.
    assert highly_relevant_threshold([*wrong, *results(37, 0.9, right=True)], 0.0, GOAL) is None
    assert highly_relevant_threshold([*wrong, *results(38, 0.9, right=True)], 0.0, GOAL) == 0.9


def test_it_stops_above_the_results_that_would_spoil_the_share() -> None:
    assert highly_relevant_threshold([*results(25, 0.9, right=True), *results(3, 0.6, right=False)], 0.0, GOAL) == 0.9


def test_equally_probable_results_count_together() -> None:
    # A threshold of 0.9 takes the wrong ones as well, in whatever order they come.
    equals = [*results(19, 0.9, right=True), *results(5, 0.9, right=False)]
    assert highly_relevant_threshold(equals, 0.0, GOAL) is None
    assert highly_relevant_threshold(equals[::-1], 0.0, GOAL) is None


def test_results_below_the_reference_threshold_are_none() -> None:
    good = [*results(10, 0.9, right=True), *results(10, 0.4, right=True)]
    assert highly_relevant_threshold(good, 0.4, GOAL) == 0.4
    assert highly_relevant_threshold(good, 0.5, GOAL) is None


def test_an_unanswerable_query_above_the_threshold_is_a_wrong_result() -> None:
    right = results(25, 0.9, right=True)
    assert highly_relevant_threshold([*right, *unanswerable(0.95)], 0.0, GOAL) is None
    assert highly_relevant_threshold([*right, *unanswerable(0.85)], 0.0, GOAL) == 0.9


@given(
    st.lists(st.tuples(st.sampled_from([0.2, 0.4, 0.6, 0.8]), st.booleans()), max_size=40),
    st.sampled_from([0.0, 0.4, 0.5]),
    st.sampled_from([0.5, 0.8, 0.95, 0.0]),
)
def test_it_is_the_lowest_threshold_above_which_results_are_right_often_enough(
    scored: list[tuple[float, bool]], reference: float, least_right: float
) -> None:
    def is_enough(threshold: float) -> bool:
        above = [right for probability, right in scored if probability >= threshold]
        return sum(above) / (len(above) + 1) >= least_right

    possible = [p for p, _ in scored if p >= reference and is_enough(p)]
    found = highly_relevant_threshold([judged(one) for one in scored], reference, TuningGoal(least_right=least_right))
    assert found == min(possible, default=None)


# Counting


@pytest.mark.parametrize(
    ("ranked", "reference", "is_right"),
    [
        (((0.9, False), (0.8, False), (0.7, True)), 0.7, True),
        (((0.9, False), (0.8, False), (0.7, True)), 0.71, False),
        (((0.9, False), (0.8, False), (0.7, False), (0.6, True)), 0.0, False),
        ((), 0.0, False),
    ],
)
def test_a_result_is_right_if_one_of_the_three_documents_delivered_is(
    ranked: Ranked, reference: float, is_right: bool
) -> None:
    assert judged(*ranked).is_right_at(reference) is is_right


def test_documents_are_ranked_by_what_the_profile_makes_of_their_evidence() -> None:
    asked = sample("a.md", probable(0.2), probable(0.7, right=True), probable(0.4))
    found = Judged.by(BASE, asked)
    assert [right for _, right in found.ranked] == [True, False, False]
    assert [probability for probability, _ in found.ranked] == pytest.approx([0.7, 0.4, 0.2])
    assert found.best == pytest.approx(0.7)


def test_figures_equal_those_counted_by_hand() -> None:
    # The profile returns from 0.3 on, and calls highly relevant what reaches 0.9.
    samples = [
        judged((0.95, True)),
        judged((0.95, False), (0.5, True)),
        judged((0.95, False), (0.2, True)),
        judged((0.3, True)),
        judged((0.29, True)),
        judged(),
        judged((0.9, False), answerable=False),
        judged((0.3, False), answerable=False),
        judged((0.29, False), answerable=False),
        judged(answerable=False),
    ]
    figures = TuningFigures.of([(one, BASE) for one in samples])
    assert figures.hit == Share(3, 6)
    assert figures.first_right == Share(3, 6)
    assert figures.not_found == Share(2, 4)
    assert figures.highly_relevant_right == Share(2, 4)
    assert list(figures.to_dict()) == ["hitRate", "notFoundRate", "highlyRelevantRight", "recallAt1"]
    assert figures.to_dict()["notFoundRate"] == Share(2, 4).to_dict()


def test_an_answerable_query_asked_without_its_documents_counts_as_unanswerable() -> None:
    without = Judged(sample("a.md", left_out=True), ((0.1, False),))
    figures = TuningFigures.of([(without, BASE)])
    assert (figures.hit, figures.not_found) == (Share(0, 0), Share(1, 1))


@pytest.mark.parametrize("name", ["most_answered", "least_right"])
@pytest.mark.parametrize("value", [-0.01, 1.01, nan])
def test_a_goal_that_is_no_share_is_refused_by_its_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be between 0 and 1, got {value}"):
        TuningGoal(**{name: value})
