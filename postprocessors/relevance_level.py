"""The relevance levels and the rule that assigns them."""

from enum import StrEnum


class RelevanceLevel(StrEnum):
    """How good a result is. No level at all means that nothing was found."""

    PRECISE = "PRECISE"
    """An exact match that accounts for the query: use it, searching on finds nothing better."""
    HIGHLY_RELEVANT = "HIGHLY_RELEVANT"
    """Very probably what was asked for."""
    REFERENCE = "REFERENCE"
    """Related; may help, may not hold the answer."""


def judge(
    *,
    match_count: int,
    decisive: bool,
    best_score: float | None,
    highly_relevant_threshold: float,
    reference_threshold: float,
) -> RelevanceLevel | None:
    """Assign the level of a result.

    :param match_count: Number of documents that the keyword match left, 0 or more.
    :param decisive: Whether the keyword match settles the query.
    :param best_score: Highest score (0 to 1) of a passage, a similarity or a probability; None if semantic search
        wasn't asked or returned nothing.
    :param highly_relevant_threshold: Least score of a highly relevant passage, inclusive.
    :param reference_threshold: Least score of a passage worth returning at all, inclusive.
    :returns: The level, or None when nothing valid was found.
    """
    if match_count > 0 and decisive:
        return RelevanceLevel.PRECISE
    if best_score is not None and best_score >= highly_relevant_threshold:
        return RelevanceLevel.HIGHLY_RELEVANT
    if match_count > 0 or (best_score is not None and best_score >= reference_threshold):
        return RelevanceLevel.REFERENCE
    return None
