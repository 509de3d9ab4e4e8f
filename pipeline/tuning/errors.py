"""What can go wrong with tuning."""

from knowledge_lookup.retrievers.errors import KnowledgeLookupError


class TooFewLabelsError(KnowledgeLookupError):
    """There is too little to fit a profile to."""


class ProfileFileError(KnowledgeLookupError):
    """A saved profile can't be read or written."""
