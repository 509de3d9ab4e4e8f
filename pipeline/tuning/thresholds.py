"""From probabilities to thresholds, under what a knowledge base promises its readers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from knowledge_lookup.pipeline.evaluation.report import Share
from knowledge_lookup.pipeline.tuning.samples import Sample
from knowledge_lookup.postprocessors import EvidenceProfile

_DELIVERED = 3
"""So many documents a look-up delivers by meaning at most."""


@dataclass(frozen=True, slots=True)
class TuningGoal:
    """What must hold; within it as much as possible is to be found.

    :param most_answered: Highest share of unanswerable queries that get a result, 0 to 1.
    :param least_right: Lowest share of ``HIGHLY_RELEVANT`` results that are right, 0 to 1.
    """

    most_answered: float = 0.05
    least_right: float = 0.95

    def __post_init__(self) -> None:
        for name in ("most_answered", "least_right"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Judged:
    """A sample with the probabilities that a profile gives its documents.

    :param sample: The sample.
    :param ranked: Probability and rightness of its documents, most probable first.
    """

    sample: Sample
    ranked: tuple[tuple[float, bool], ...]

    @classmethod
    def by(cls, profile: EvidenceProfile, sample: Sample) -> Self:
        """Judge a sample.

        :param profile: The profile.
        :param sample: The sample.
        :returns: The sample with its probabilities.
        """
        ranked = [(profile.probability(found.evidence), found.is_right) for found in sample.candidates]
        return cls(sample, tuple(sorted(ranked, key=lambda scored: -scored[0])))

    @property
    def best(self) -> float:
        """The highest probability; 0 without candidates."""
        return self.ranked[0][0] if self.ranked else 0.0

    def is_right_at(self, reference_threshold: float) -> bool:
        """Tell whether a right document would be delivered.

        :param reference_threshold: Least probability of a document worth returning.
        :returns: True if one of the first documents is right and probable enough.
        """
        return any(is_right and score >= reference_threshold for score, is_right in self.ranked[:_DELIVERED])


@dataclass(frozen=True, slots=True)
class TuningFigures:
    """What thresholds come to on samples.

    :param hit: Answerable queries for which a right document is delivered.
    :param not_found: Unanswerable queries that get no result.
    :param highly_relevant_right: Results at or above the upper threshold with a right document among them.
    :param first_right: Answerable queries whose most probable document is right.
    """

    hit: Share
    not_found: Share
    highly_relevant_right: Share
    first_right: Share

    @classmethod
    def of(cls, judged: Sequence[tuple[Judged, EvidenceProfile]]) -> Self:
        """Count.

        :param judged: Judged samples, each with the profile whose thresholds apply to it.
        :returns: The figures.
        """
        answerable = [(one, profile) for one, profile in judged if one.sample.is_answerable]
        unanswerable = [(one, profile) for one, profile in judged if not one.sample.is_answerable]
        strong = [(one, profile) for one, profile in judged if one.best >= profile.highly_relevant_threshold]
        return cls(
            hit=_share(one.is_right_at(profile.reference_threshold) for one, profile in answerable),
            not_found=_share(one.best < profile.reference_threshold for one, profile in unanswerable),
            highly_relevant_right=_share(one.is_right_at(profile.reference_threshold) for one, profile in strong),
            first_right=_share(bool(one.ranked) and one.ranked[0][1] for one, _ in answerable),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return {
            "hitRate": self.hit.to_dict(),
            "notFoundRate": self.not_found.to_dict(),
            "highlyRelevantRight": self.highly_relevant_right.to_dict(),
            "recallAt1": self.first_right.to_dict(),
        }


def reference_threshold(judged: Sequence[Judged], goal: TuningGoal) -> float:
    """Choose the lowest threshold that lets no more unanswerable queries through than the goal allows.

    :param judged: Judged samples, at least one unanswerable.
    :param goal: The goal.
    :returns: A probability, 0 to 1.
    """
    answered = sorted((one.best for one in judged if not one.sample.is_answerable), reverse=True)
    # 0.29 of 100 is 29, though floating point makes a little less of it.
    allowed = math.floor(goal.most_answered * len(answered) + _ROUNDING)
    if allowed >= len(answered):
        return 0.0
    return min(answered[allowed] + _JUST_ABOVE, 1.0)


def highly_relevant_threshold(judged: Sequence[Judged], reference: float, goal: TuningGoal) -> float | None:
    """Choose the lowest threshold at and above which results are right as often as the goal asks.

    One more result is counted as wrong than there is: a share of a few results is not what it will be on others.

    :param judged: Judged samples of both kinds.
    :param reference: The reference threshold.
    :param goal: The goal.
    :returns: A probability, at least ``reference``; None if there's none (at 95 % it takes 19 results, all right).
    """
    results = sorted((one for one in judged if one.best >= reference), key=lambda one: -one.best)
    lowest: float | None = None
    right = 0
    for count, one in enumerate(results, start=1):
        right += one.is_right_at(reference)
        # A threshold takes all that are equally probable.
        is_last_of_equals = count == len(results) or results[count].best < one.best
        if is_last_of_equals and right / (count + 1) >= goal.least_right:
            lowest = one.best
    return lowest


_JUST_ABOVE = 1e-9
_ROUNDING = 1e-9


def _share(counted: Iterable[bool]) -> Share:
    values = list(counted)
    return Share(sum(values), len(values))
