"""From a squared L2 distance to a similarity, and what a similarity means for one embedding model."""

import math
from dataclasses import dataclass

DEFAULT_MAX_L2_DISTANCE = 2.0


def normalize_l2(distance: float, max_l2_distance: float = DEFAULT_MAX_L2_DISTANCE) -> float:
    """Turn Milvus's L2 distance into a similarity.

    ``similarity = 1 - min(distance, max_l2_distance) / max_l2_distance``. Milvus's metric L2 is the *squared*
    Euclidean distance; for unit vectors it is 2 - 2 cos, so that with the default maximum of 2.0 the result is
    the cosine of the angle, floored at 0.

    :param distance: Squared L2 distance, 0 or more (0 to 4 between unit vectors); smaller is closer.
    :param max_l2_distance: The distance from which on the similarity is 0; more than 0.
    :returns: Similarity between 0.0 and 1.0; higher is closer.
    :raises ValueError: If the distance is negative or not a number, or the maximum isn't positive and finite.

    >>> normalize_l2(0.0), normalize_l2(1.0), normalize_l2(2.0), normalize_l2(3.0)
    (1.0, 0.5, 0.0, 0.0)
    """
    if not (math.isfinite(max_l2_distance) and max_l2_distance > 0):
        raise ValueError(f"max_l2_distance must be a finite number above 0, got {max_l2_distance}")
    if math.isnan(distance) or distance < -_ROUNDING:
        raise ValueError(f"an L2 distance is 0 or more, got {distance}")
    return 1.0 - min(max(distance, 0.0), max_l2_distance) / max_l2_distance


_ROUNDING = 1e-5
"""A squared distance computed as 2 - 2 cos may come out a little below zero for equal vectors."""


@dataclass(frozen=True, slots=True)
class NormalizationProfile:
    """What a similarity means for one embedding model.

    The defaults are the values of the specification, made for BGE-M3.

    :param max_l2_distance: The squared L2 distance at which the similarity reaches 0; more than 0.
    :param highly_relevant_threshold: Least similarity (0 to 1, inclusive) of a highly relevant passage.
    :param reference_threshold: Least similarity (0 to 1, inclusive) of a passage worth returning at all; at
        most ``highly_relevant_threshold``.
    :raises ValueError: If a value is out of its range or the thresholds are out of order.
    """

    max_l2_distance: float = DEFAULT_MAX_L2_DISTANCE
    highly_relevant_threshold: float = 0.75
    reference_threshold: float = 0.5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_l2_distance) and self.max_l2_distance > 0):
            raise ValueError(f"max_l2_distance must be a finite number above 0, got {self.max_l2_distance}")
        if not 0.0 <= self.reference_threshold <= self.highly_relevant_threshold <= 1.0:
            raise ValueError(
                "thresholds must satisfy 0 <= reference_threshold <= highly_relevant_threshold <= 1, got "
                f"reference_threshold={self.reference_threshold}, "
                f"highly_relevant_threshold={self.highly_relevant_threshold}"
            )
