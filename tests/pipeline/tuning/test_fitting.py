"""Fitting weights and thresholds to made-up evidence, and testing what was fitted."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.pipeline.evaluation import Share
from knowledge_lookup.pipeline.tuning import Candidate, Sample, TuningGoal
from knowledge_lookup.pipeline.tuning.fitting import LEAST_ANSWERED, cross_validate, fit_profile, fit_weights
from knowledge_lookup.postprocessors import EvidenceWeights

from .made_up import BASE, candidate, probable, sample

NONE_ANSWERED = TuningGoal(most_answered=0.0)
OTHER_WEIGHTS = EvidenceWeights(intercept=-1.0, lift=2.0, coverage=3.0, unknown=4.0, information=5.0)


def asked(
    count: int, make: Callable[[random.Random, bool], Candidate], *, name: str = "document", seed: int = 0
) -> list[Sample]:
    """Queries with a right document and a wrong one each, and as many without an answer."""
    chance = random.Random(seed)
    samples = []
    for number in range(count):
        samples.append(sample(f"{name} {number}", make(chance, True), make(chance, False)))
        samples.append(sample(f"{name} {number}", make(chance, False), left_out=True))
    return samples


def separable(chance: random.Random, right: bool) -> Candidate:
    """The right document is nearer, has more of the query's words, and fewer words are unknown; length says nothing."""
    return candidate(
        right=right,
        lift=chance.gauss(0.08 if right else 0.0, 0.01),
        coverage=chance.uniform(0.6, 1.0) if right else chance.uniform(0.0, 0.4),
        unknown=chance.uniform(0.0, 0.3) if right else chance.uniform(0.1, 0.5),
        information=chance.uniform(2.0, 4.0),
    )


def separable_in_another_script(chance: random.Random, right: bool) -> Candidate:
    found = separable(chance, right)
    return replace(found, evidence=replace(found.evidence, other_script=True))


# Weights


def test_weights_point_where_the_right_documents_are() -> None:
    weights = fit_weights(asked(40, separable))
    assert weights.lift > 0
    assert weights.coverage > 0
    assert weights.unknown < 0
    # Over its whole range, what says nothing moves the log odds far less than what decides.
    assert abs(weights.information) * 2.0 < weights.coverage * 0.6 / 3
    right, wrong = separable(random.Random(1), True), separable(random.Random(1), False)
    assert weights.probability(right.evidence) > 0.9
    assert weights.probability(wrong.evidence) < 0.1


def test_the_scale_of_a_feature_makes_no_difference_to_the_probabilities() -> None:
    samples = asked(40, separable)

    def stretched(one: Sample) -> Sample:
        found = [replace(c, evidence=replace(c.evidence, lift=c.evidence.lift * 100 + 7)) for c in one.candidates]
        return replace(one, candidates=tuple(found))

    weights, other = fit_weights(samples), fit_weights([stretched(one) for one in samples])
    assert other.lift == pytest.approx(weights.lift / 100, rel=1e-3)
    for one in samples[:10]:
        evidence = one.candidates[0].evidence
        assert other.probability(stretched(one).candidates[0].evidence) == pytest.approx(
            weights.probability(evidence), abs=1e-3
        )


def test_a_feature_that_never_differs_gets_no_weight() -> None:
    weights = fit_weights([sample(str(n), candidate(right=n % 2 == 0, lift=n % 2 * 0.1)) for n in range(20)])
    assert (weights.coverage, weights.unknown, weights.information) == (0.0, 0.0, 0.0)
    assert weights.lift < 0


@pytest.mark.parametrize("right", [True, False])
def test_labels_of_one_kind_only_are_refused(right: bool) -> None:
    with pytest.raises(ValueError, match="of which some are right and some aren't"):
        fit_weights([sample(str(number), candidate(right=right, lift=number / 10)) for number in range(20)])


def test_no_candidates_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="of which some are right and some aren't"):
        fit_weights([sample("a.md")])


def test_fitting_the_same_samples_again_gives_the_same_profile() -> None:
    first = fit_profile(asked(40, separable), TuningGoal(), base=BASE)
    assert fit_profile(asked(40, separable), TuningGoal(), base=BASE) == first
    # In whatever order the samples come.
    again = fit_profile(asked(40, separable)[::-1], TuningGoal(), base=BASE)
    assert (again.reference_threshold, again.highly_relevant_threshold) == pytest.approx(
        (first.reference_threshold, first.highly_relevant_threshold), abs=1e-6
    )


# Where there's too little


@pytest.mark.parametrize("count", [LEAST_ANSWERED - 1, LEAST_ANSWERED])
def test_weights_stay_those_of_the_profile_in_use_below_thirty_samples_of_each_kind(count: int) -> None:
    profile = fit_profile(asked(count, separable), TuningGoal(), base=BASE)
    assert (profile.weights == BASE.weights) is (count < LEAST_ANSWERED)


def test_a_few_queries_in_another_script_leave_its_weights_as_they_were() -> None:
    base = replace(BASE, other_script_weights=OTHER_WEIGHTS, max_l2_distance=1.5)
    few = asked(10, separable_in_another_script, name="english")
    profile = fit_profile([*asked(40, separable), *few], TuningGoal(), base=base)
    assert profile.other_script_weights == OTHER_WEIGHTS
    assert profile.weights == fit_weights(asked(40, separable))
    assert profile.max_l2_distance == 1.5


def test_each_script_gets_weights_of_its_own_where_there_is_enough_of_both() -> None:
    same, other = asked(40, separable), asked(40, separable_in_another_script, name="english", seed=1)
    profile = fit_profile([*same, *other], TuningGoal(), base=BASE)
    assert profile.weights == fit_weights(same)
    assert profile.other_script_weights == fit_weights(other)


def test_without_a_profile_the_weights_of_one_script_serve_both() -> None:
    same = asked(40, separable)
    profile = fit_profile(same, TuningGoal(), base=None)
    assert profile.weights == profile.other_script_weights == fit_weights(same)
    other = asked(40, separable_in_another_script)
    profile = fit_profile(other, TuningGoal(), base=None)
    assert profile.weights == profile.other_script_weights == fit_weights(other)
    # The specification's distance: nothing else is known.
    assert profile.max_l2_distance == 2.0


def test_without_a_profile_few_samples_are_better_than_none() -> None:
    few = asked(10, separable)
    assert fit_profile(few, TuningGoal(), base=None).weights == fit_weights(few)


def test_without_a_profile_and_without_right_documents_nothing_can_be_fitted() -> None:
    with pytest.raises(ValueError, match="some are right"):
        fit_profile([sample(str(n), probable(0.2)) for n in range(50)], TuningGoal(), base=None)


def test_with_too_few_right_results_nothing_is_called_highly_relevant() -> None:
    few = [sample(f"right {number}", probable(0.95, right=True)) for number in range(18)]
    none = [sample(f"none {number}", probable(0.1), answerable=False) for number in range(18)]
    profile = fit_profile([*few, *none], TuningGoal(), base=BASE)
    assert profile.highly_relevant_threshold == 1.0
    assert profile.reference_threshold == pytest.approx(0.1, abs=1e-6)
    one_more = sample("right 18", probable(0.95, right=True))
    profile = fit_profile([*few, one_more, *none], TuningGoal(), base=BASE)
    assert profile.highly_relevant_threshold == pytest.approx(0.95)


# Cross-validation


@given(name=st.text(max_size=5), others=st.integers(8, 25), strays=st.integers(1, 10))
@settings(max_examples=20)
def test_no_sample_is_judged_by_thresholds_that_its_own_group_has_set(name: str, others: int, strays: int) -> None:
    # All that is found wrongly with 0.8 is in one group. Thresholds that know the group keep it out; without it, 0.2
    # is all that has to be kept out.
    groups = [f"document {number}" for number in range(others)]
    ordinary = [
        one
        for group in groups
        for one in (sample(group, probable(0.6, right=True)), sample(group, probable(0.2), left_out=True))
    ]
    odd = [sample(name, probable(0.8), left_out=True) for _ in range(strays)]
    assert fit_profile([*ordinary, *odd], NONE_ANSWERED, base=BASE).reference_threshold > 0.8
    figures = cross_validate([*ordinary, *odd], NONE_ANSWERED, base=BASE)
    assert figures.not_found == Share(others, others + strays)


def test_no_sample_is_judged_by_weights_that_its_own_group_has_taught() -> None:
    # In one group the right document is known by a word that's unknown, and by nothing else; nowhere else is one.
    def by_heart(number: int) -> Sample:
        return sample("odd", candidate(right=False), candidate(right=True, unknown=1.0), kind=str(number))

    ordinary = asked(60, lambda _, right: candidate(right=right, lift=0.1 if right else 0.0))
    odd = [by_heart(number) for number in range(100)]
    # Who has seen the group puts its right documents first.
    taught = fit_profile([*ordinary, *odd], TuningGoal(), base=None)
    wrong, right = odd[0].candidates
    assert taught.probability(right.evidence) > taught.probability(wrong.evidence)
    figures = cross_validate([*ordinary, *odd], TuningGoal(), base=None)
    assert figures.first_right == Share(60, 160)


def test_thresholds_are_set_by_weights_that_have_not_seen_the_sample() -> None:
    # Unanswerable queries of one group look like answers by a feature that only they have: weights that know them
    # would hold them down, and the threshold would be too low for the next of their like.
    ordinary = asked(60, lambda _, right: candidate(right=right, lift=0.1 if right else 0.0))
    odd = [sample("odd", candidate(right=False, lift=0.1, unknown=1.0), left_out=True, kind=str(n)) for n in range(60)]
    profile = fit_profile([*ordinary, *odd], NONE_ANSWERED, base=None)
    unseen = fit_weights(ordinary).probability(odd[0].candidates[0].evidence)
    seen = profile.probability(odd[0].candidates[0].evidence)
    assert unseen > 0.9
    assert seen < 0.5
    assert profile.reference_threshold > 0.8


def test_cross_validation_counts_every_sample_once() -> None:
    samples = [*asked(33, separable), sample("none", probable(0.1), answerable=False), sample("nothing")]
    figures = cross_validate(samples, TuningGoal(), base=BASE)
    assert figures.hit.total == 33 + 1
    assert figures.not_found.total == 33 + 1
