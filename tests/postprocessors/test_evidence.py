"""The logistic model of evidence, and the profile that holds it."""

import json
from dataclasses import asdict, fields, replace
from math import exp, inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.postprocessors import Evidence, EvidenceProfile, EvidenceWeights

WEIGHTS = EvidenceWeights(intercept=-3.0, lift=10.0, coverage=4.0, unknown=-2.0, information=0.5)
OTHER_SCRIPT = EvidenceWeights(intercept=-1.0, lift=20.0, coverage=0.0, unknown=0.0, information=0.0)
PROFILE = EvidenceProfile(WEIGHTS, OTHER_SCRIPT, highly_relevant_threshold=0.8, reference_threshold=0.3)
EVIDENCE = Evidence(similarity=0.9, lift=0.1, coverage=0.75, unknown=0.25, information=2.0)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0.0, 1.0)


def test_the_probability_is_the_logistic_function_of_the_weighted_sum() -> None:
    # -3 + 10 * 0.1 + 4 * 0.75 - 2 * 0.25 + 0.5 * 2 = 1.5
    assert WEIGHTS.probability(EVIDENCE) == pytest.approx(1.0 / (1.0 + exp(-1.5)))
    assert WEIGHTS.probability(Evidence(0.0, 0.0, 0.0, 0.0, 0.0)) == pytest.approx(1.0 / (1.0 + exp(3.0)))


def test_the_similarity_itself_does_not_count() -> None:
    assert WEIGHTS.probability(replace(EVIDENCE, similarity=0.1)) == WEIGHTS.probability(EVIDENCE)


def test_each_feature_counts_by_its_own_weight() -> None:
    nothing = EvidenceWeights(**dict.fromkeys((field.name for field in fields(EvidenceWeights)), 0.0))
    assert nothing.probability(EVIDENCE) == 0.5
    for name in ("lift", "coverage", "unknown", "information"):
        alone = replace(nothing, **{name: 3.0}).probability(EVIDENCE)
        assert alone == pytest.approx(1.0 / (1.0 + exp(-3.0 * getattr(EVIDENCE, name))))


@pytest.mark.parametrize(("intercept", "probability"), [(1e308, 1.0), (-1e308, 0.0), (800.0, 1.0), (-800.0, 0.0)])
def test_extreme_log_odds_are_certainty(intercept: float, probability: float) -> None:
    assert replace(WEIGHTS, intercept=intercept).probability(EVIDENCE) == probability


@given(
    st.builds(EvidenceWeights, FINITE, FINITE, FINITE, FINITE, FINITE),
    st.builds(Evidence, SHARE, st.floats(-1.0, 1.0), SHARE, SHARE, st.floats(0.0, 10.0)),
)
def test_any_weights_give_a_probability(weights: EvidenceWeights, evidence: Evidence) -> None:
    assert 0.0 <= weights.probability(evidence) <= 1.0


def test_a_question_in_another_script_has_weights_of_its_own() -> None:
    assert PROFILE.probability(EVIDENCE) == WEIGHTS.probability(EVIDENCE)
    # -1 + 20 * 0.1 = 1
    assert PROFILE.probability(replace(EVIDENCE, other_script=True)) == pytest.approx(1.0 / (1.0 + exp(-1.0)))


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("name", [field.name for field in fields(EvidenceWeights)])
def test_a_weight_that_is_no_finite_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"weight {name} must be a finite number, got {value}"):
        replace(WEIGHTS, **{name: value})


@pytest.mark.parametrize(("highly_relevant", "reference"), [(0.3, 0.31), (1.01, 0.5), (0.5, -0.01), (nan, 0.5)])
def test_thresholds_out_of_order_or_range_are_refused(highly_relevant: float, reference: float) -> None:
    with pytest.raises(ValueError, match="thresholds must satisfy 0 <= reference_threshold"):
        EvidenceProfile(WEIGHTS, WEIGHTS, highly_relevant, reference)


def test_thresholds_may_be_equal_and_at_the_ends() -> None:
    for highly_relevant, reference in [(0.5, 0.5), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0)]:
        profile = EvidenceProfile(WEIGHTS, WEIGHTS, highly_relevant, reference)
        assert (profile.highly_relevant_threshold, profile.reference_threshold) == (highly_relevant, reference)


@pytest.mark.parametrize("distance", [0.0, -1.0, nan, inf])
def test_a_maximum_distance_that_is_not_above_zero_is_refused(distance: float) -> None:
    with pytest.raises(ValueError, match=f"max_l2_distance must be a finite number above 0, got {distance}"):
        replace(PROFILE, max_l2_distance=distance)


# Saving


@given(
    st.builds(EvidenceWeights, FINITE, FINITE, FINITE, FINITE, FINITE),
    st.builds(EvidenceWeights, FINITE, FINITE, FINITE, FINITE, FINITE),
    st.lists(SHARE, min_size=2, max_size=2).map(sorted),
    st.floats(0.01, 4.0),
)
def test_a_profile_survives_json(
    weights: EvidenceWeights, other: EvidenceWeights, thresholds: list[float], max_l2_distance: float
) -> None:
    reference, highly_relevant = thresholds
    profile = EvidenceProfile(weights, other, highly_relevant, reference, max_l2_distance)
    assert EvidenceProfile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def saved(**changes: Any) -> dict[str, Any]:
    return {**PROFILE.to_dict(), **changes}


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: kept for key, kept in value.items() if key != name}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (without(saved(), "weights"), "not an evidence profile: .*weights"),
        (without(saved(), "other_script_weights"), "not an evidence profile: .*other_script_weights"),
        (without(saved(), "reference_threshold"), "not an evidence profile: .*reference_threshold"),
        (saved(temperature=1.0), "not an evidence profile: .*temperature"),
        (saved(weights=without(asdict(WEIGHTS), "lift")), "not an evidence profile: .*lift"),
        (saved(weights=asdict(WEIGHTS) | {"bm25": 1.0}), "not an evidence profile: .*bm25"),
        (saved(weights=None), "not an evidence profile"),
        (saved(weights=asdict(WEIGHTS) | {"lift": "much"}), "not an evidence profile"),
        (saved(highly_relevant_threshold="0.8"), "not an evidence profile"),
        (["weights"], "not an evidence profile"),
        (None, "not an evidence profile"),
        ({}, "not an evidence profile"),
        (saved(weights=asdict(WEIGHTS) | {"lift": nan}), "weight lift must be a finite number, got nan"),
        (saved(reference_threshold=0.9), "thresholds must satisfy"),
        (saved(max_l2_distance=-2), "max_l2_distance must be a finite number above 0, got -2"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        EvidenceProfile.from_dict(value)
    assert "\n" not in str(raised.value)
