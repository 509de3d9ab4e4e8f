"""The relevance levels and the rule that assigns them."""

from enum import StrEnum

from knowledge_lookup.postprocessors.normalization import NormalizationProfile


class RelevanceLevel(StrEnum):
    """How good a result is. No level at all means that nothing was found."""

    PRECISE = "PRECISE"
    """An exact match that accounts for the query: use it, searching on finds nothing better."""
    HIGHLY_RELEVANT = "HIGHLY_RELEVANT"
    """Very probably what was asked for."""
    REFERENCE = "REFERENCE"
    """Related; may help, may not hold the answer."""


def judge(
    *, match_count: int, decisive: bool, best_similarity: float | None, profile: NormalizationProfile
) -> RelevanceLevel | None:
    """Assign the level of a result.

    :param match_count: Number of documents that the keyword match left, 0 or more.
    :param decisive: Whether the keyword match settles the query.
    :param best_similarity: Highest similarity (0 to 1) of a passage; None if semantic search wasn't asked or
        returned nothing.
    :param profile: The thresholds, both inclusive.
    :returns: The level, or None when nothing valid was found.
    """
    if match_count > 0 and decisive:
        return RelevanceLevel.PRECISE
    if best_similarity is not None and best_similarity >= profile.highly_relevant_threshold:
        return RelevanceLevel.HIGHLY_RELEVANT
    if match_count > 0 or (best_similarity is not None and best_similarity >= profile.reference_threshold):
        return RelevanceLevel.REFERENCE
    return None
