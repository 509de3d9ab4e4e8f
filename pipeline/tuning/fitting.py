"""Fitting weights and thresholds of the evidence, and testing them by cross-validation."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from knowledge_lookup.pipeline.tuning.samples import Candidate, Sample
from knowledge_lookup.pipeline.tuning.thresholds import (
    Judged,
    TuningFigures,
    TuningGoal,
    highly_relevant_threshold,
    reference_threshold,
)
from knowledge_lookup.postprocessors import EvidenceProfile, EvidenceWeights
from knowledge_lookup.postprocessors.evidence import FEATURES
from knowledge_lookup.postprocessors.normalization import DEFAULT_MAX_L2_DISTANCE

FOLDS = 5
LEAST_ANSWERED = 30
"""So many samples with a right candidate, and as many without, are needed to fit weights."""
_REGULARIZATION = 1.0
_SEED = 0


def fit_weights(samples: Sequence[Sample]) -> EvidenceWeights:
    """Fit weights to samples: the probability that a candidate answers.

    Features are brought to the same scale before they are
    regularized (L2, C = 1), and the weights given back on the features' own scales.

    :param samples: Samples with candidates, some right and some not.
    :returns: The weights.
    :raises ValueError: If no candidate is right, or all are.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    candidates = [candidate for sample in samples for candidate in sample.candidates]
    labels = np.array([candidate.is_right for candidate in candidates])
    if labels.all() or not labels.any():
        raise ValueError("weights can only be fitted to candidates of which some are right and some aren't")
    scaler = StandardScaler().fit(_values(candidates))
    model = LogisticRegression(C=_REGULARIZATION, max_iter=2000)
    model.fit(scaler.transform(_values(candidates)), labels)
    weights = model.coef_[0] / scaler.scale_
    intercept = float(model.intercept_[0] - (weights * scaler.mean_).sum())
    return EvidenceWeights(intercept, **dict(zip(FEATURES, map(float, weights), strict=True)))


def _values(candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    return np.array([[getattr(found.evidence, name) for name in FEATURES] for found in candidates])


def fit_profile(samples: Sequence[Sample], goal: TuningGoal, *, base: EvidenceProfile | None) -> EvidenceProfile:
    """Fit a profile: weights to all samples, thresholds to what weights fitted without a sample say of it.

    :param samples: Samples of both kinds.
    :param goal: What the thresholds must keep.
    :param base: The profile whose weights stay where there are too few samples to fit new ones; None where none is
        known: weights of queries in the same script then serve those in another as well, or the other way round.
    :returns: The profile.
    :raises ValueError: If there are too few samples, and no base.
    """
    groups = _folds(samples)
    held_out: list[Judged] = []
    for fold in range(FOLDS):
        weights = _with_weights(base, [one for one in samples if groups[one.group] != fold])
        held_out += [Judged.by(weights, one) for one in samples if groups[one.group] == fold]
    reference = reference_threshold(held_out, goal)
    upper = highly_relevant_threshold(held_out, reference, goal)
    return replace(
        _with_weights(base, samples),
        reference_threshold=reference,
        # Without enough right results nothing is called highly relevant.
        highly_relevant_threshold=1.0 if upper is None else upper,
    )


def cross_validate(samples: Sequence[Sample], goal: TuningGoal, *, base: EvidenceProfile | None) -> TuningFigures:
    """Measure what fitting comes to: each fifth of the samples by a profile fitted to the others, thresholds included.

    :param samples: Samples of both kinds.
    :param goal: What the thresholds must keep.
    :param base: See :func:`fit_profile`.
    :returns: The figures over all samples.
    """
    groups = _folds(samples)
    judged: list[tuple[Judged, EvidenceProfile]] = []
    for fold in range(FOLDS):
        profile = fit_profile([one for one in samples if groups[one.group] != fold], goal, base=base)
        judged += [(Judged.by(profile, one), profile) for one in samples if groups[one.group] == fold]
    return TuningFigures.of(judged)


def _with_weights(base: EvidenceProfile | None, samples: Sequence[Sample]) -> EvidenceProfile:
    same = [one for one in samples if one.candidates and not one.candidates[0].evidence.other_script]
    other = [one for one in samples if one.candidates and one.candidates[0].evidence.other_script]
    weights = fit_weights(same) if _are_enough(same) else None
    other_weights = fit_weights(other) if _are_enough(other) else None
    if base is not None:
        weights = weights or base.weights
        other_weights = other_weights or base.other_script_weights
    known = weights or other_weights or fit_weights(samples)
    return EvidenceProfile(
        weights or known,
        other_weights or known,
        highly_relevant_threshold=1.0,
        reference_threshold=0.0,
        max_l2_distance=DEFAULT_MAX_L2_DISTANCE if base is None else base.max_l2_distance,
        unrelated_similarity=None if base is None else base.unrelated_similarity,
    )


def _are_enough(samples: Sequence[Sample]) -> bool:
    answered = sum(any(found.is_right for found in one.candidates) for one in samples)
    return answered >= LEAST_ANSWERED and len(samples) - answered >= LEAST_ANSWERED


def _folds(samples: Sequence[Sample]) -> dict[str, int]:
    groups = sorted({one.group for one in samples})
    random.Random(_SEED).shuffle(groups)
    return {group: number % FOLDS for number, group in enumerate(groups)}
