"""FS-1: from a squared L2 distance to a similarity."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.postprocessors import NormalizationProfile, normalize_l2


@pytest.mark.parametrize(
    ("distance", "similarity"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5), (2.0, 0.0), (3.0, 0.0), (math.inf, 0.0)]
)
def test_distance_becomes_the_similarity_of_the_specification(distance: float, similarity: float) -> None:
    assert normalize_l2(distance) == pytest.approx(similarity)


def test_maximum_distance_can_be_set() -> None:
    assert normalize_l2(1.0, max_l2_distance=4.0) == pytest.approx(0.75)


def test_distance_slightly_below_zero_by_rounding_counts_as_zero() -> None:
    assert normalize_l2(-1e-7) == 1.0


@pytest.mark.parametrize("distance", [-0.1, math.nan])
def test_impossible_distance_is_refused(distance: float) -> None:
    with pytest.raises(ValueError, match="an L2 distance is 0 or more"):
        normalize_l2(distance)


@pytest.mark.parametrize("maximum", [0.0, -1.0, math.inf, math.nan])
def test_impossible_maximum_is_refused(maximum: float) -> None:
    with pytest.raises(ValueError, match="max_l2_distance must be a finite number above 0"):
        normalize_l2(1.0, maximum)


@given(st.floats(-1.0, 1.0))
def test_similarity_of_unit_vectors_is_their_cosine_floored_at_zero(cosine: float) -> None:
    assert normalize_l2(2.0 - 2.0 * cosine) == pytest.approx(max(cosine, 0.0), abs=1e-12)


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_a_closer_passage_is_never_less_similar(one: float, other: float) -> None:
    nearer, farther = sorted([one, other])
    assert normalize_l2(nearer) >= normalize_l2(farther)


@pytest.mark.parametrize(
    ("highly_relevant", "reference"), [(0.5, 0.6), (1.1, 0.5), (0.7, -0.1), (math.nan, 0.5), (0.7, math.nan)]
)
def test_profile_with_impossible_thresholds_is_refused(highly_relevant: float, reference: float) -> None:
    with pytest.raises(ValueError, match="thresholds must satisfy"):
        NormalizationProfile(highly_relevant_threshold=highly_relevant, reference_threshold=reference)


def test_profile_with_equal_thresholds_is_allowed() -> None:
    assert NormalizationProfile(highly_relevant_threshold=0.6, reference_threshold=0.6).reference_threshold == 0.6
