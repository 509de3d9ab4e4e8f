"""What speaks for a document answering a query, and the weights that make a probability of it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from knowledge_lookup.postprocessors.normalization import DEFAULT_MAX_L2_DISTANCE


@dataclass(frozen=True, slots=True)
class Evidence:
    """The features of one document, or of one passage, for one query.

    :param similarity: Similarity of the nearest passage, 0 to 1 (:func:`normalize_l2`).
    :param lift: ``similarity`` above that of passages which have little to do with the query, -1 to 1. It means the
        same for queries and languages that differ in how similar everything is to them.
    :param coverage: Share of the query's terms that one passage of the document contains, rare terms counting more, 0
        to 1.
    :param unknown: Share of the query's terms that no passage of the corpus contains, counted alike, 0 to 1.
    :param information: How much the query says: ``ln(1 + sum of its terms' weights)``, 0 or more; about 2 for a keyword
        and 4 for a long question.
    :param other_script: Whether the query has no word in the script of the passage, as an English question on a Chinese
        text: its words can't be expected there.
    """

    similarity: float
    lift: float
    coverage: float
    unknown: float
    information: float
    other_script: bool = False


FEATURES = ("lift", "coverage", "unknown", "information")
"""The features that have weights, in order. The similarity itself has none: what it means differs between corpora and
languages, and once its lift is known it adds nothing."""


@dataclass(frozen=True, slots=True)
class EvidenceWeights:
    """A logistic model: ``probability = 1 / (1 + exp(-(intercept + sum of weight * feature)))``.

    :param intercept: Log odds of an answer where all features are 0.
    :param lift: Weight of :class:`Evidence`'s feature of that name; likewise the others.
    """

    intercept: float
    lift: float
    coverage: float
    unknown: float
    information: float

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise ValueError(f"weight {field.name} must be a finite number, got {getattr(self, field.name)}")

    def probability(self, evidence: Evidence) -> float:
        """Compute how probable it is that the document answers.

        :param evidence: The document's features.
        :returns: 0 to 1; higher is better.
        """
        log_odds = self.intercept + (
            self.lift * evidence.lift
            + self.coverage * evidence.coverage
            + self.unknown * evidence.unknown
            + self.information * evidence.information
        )
        return 1.0 / (1.0 + math.exp(-log_odds)) if log_odds > -_MOST_LOG_ODDS else 0.0


_MOST_LOG_ODDS = 700.0
"""Beyond this ``math.exp`` overflows."""


@dataclass(frozen=True, slots=True)
class EvidenceProfile:
    """What evidence means for one embedding model and one corpus.

    :param weights: For queries and passages in the same script.
    :param other_script_weights: For queries without a word in the passage's script.
    :param highly_relevant_threshold: Least probability (0 to 1, inclusive) of a highly relevant result.
    :param reference_threshold: Least probability (0 to 1, inclusive) of a passage worth returning at all; at most
        ``highly_relevant_threshold``.
    :param max_l2_distance: The squared L2 distance at which the similarity reaches 0; more than 0.
    :param unrelated_similarity: What the model gives passages that have nothing to do with a query, 0 to 1; used where
        there are fewer than two other documents to compare with. None where it isn't known.
    :raises ValueError: If a value is out of its range or the thresholds are out of order.
    """

    weights: EvidenceWeights
    other_script_weights: EvidenceWeights
    highly_relevant_threshold: float
    reference_threshold: float
    max_l2_distance: float = DEFAULT_MAX_L2_DISTANCE
    unrelated_similarity: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_l2_distance) and self.max_l2_distance > 0):
            raise ValueError(f"max_l2_distance must be a finite number above 0, got {self.max_l2_distance}")
        if not 0.0 <= self.reference_threshold <= self.highly_relevant_threshold <= 1.0:
            raise ValueError(
                "thresholds must satisfy 0 <= reference_threshold <= highly_relevant_threshold <= 1, got "
                f"reference_threshold={self.reference_threshold}, "
                f"highly_relevant_threshold={self.highly_relevant_threshold}"
            )

    def probability(self, evidence: Evidence) -> float:
        """Compute how probable it is that a document answers.

        :param evidence: The document's features.
        :returns: 0 to 1; higher is better.
        """
        weights = self.other_script_weights if evidence.other_script else self.weights
        return weights.probability(evidence)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON values; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read a profile.

        :param value: What :meth:`to_dict` gave.
        :returns: The profile.
        :raises ValueError: If weights or thresholds are missing, something is unknown, or a value is out of its range.
        """
        try:
            return cls(
                **{
                    **value,
                    "weights": EvidenceWeights(**value["weights"]),
                    "other_script_weights": EvidenceWeights(**value["other_script_weights"]),
                }
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not an evidence profile: {error}") from error
