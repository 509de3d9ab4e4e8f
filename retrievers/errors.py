"""The errors of the package.

Every error that is meant for a user derives from :class:`KnowledgeLookupError`. Its message is one
line that says what is wrong, where, and what to do; the command line prints exactly that line.
"""


class KnowledgeLookupError(Exception):
    """Root of all errors that this package raises on purpose."""


class VectorStoreError(KnowledgeLookupError):
    """The vector store can't be used as it is configured (wrong metric, dimension, damaged folder)."""


class VectorStoreUnavailableError(VectorStoreError):
    """The vector store doesn't answer at the moment; the same call may succeed later."""


class VectorStoreTimeoutError(VectorStoreUnavailableError):
    """The vector store didn't answer within its time limit."""


class EmbeddingModelMismatchError(VectorStoreError):
    """The collection was built with another embedding model than the one that is configured."""


class EmbeddingError(KnowledgeLookupError):
    """The embedding model gave no usable vector (none, all zeros, not finite, wrong length)."""


class EmbeddingUnavailableError(EmbeddingError):
    """The embedding model's endpoint doesn't answer at the moment; the same call may succeed later."""
