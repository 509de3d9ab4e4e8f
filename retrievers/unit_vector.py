"""Embeddings as unit vectors, on which the L2 thresholds rest, and their failures as one error."""

import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from knowledge_lookup.retrievers.errors import EmbeddingError, EmbeddingUnavailableError

_TOLERANCE = 1e-3


def unit_vector(embedding: Sequence[float], *, model_name: str) -> list[float]:
    """Return an embedding at length 1.

    With unit vectors the squared L2 distance is 2 - 2 cos, between 0 and 4, which is what the
    normalization to a similarity assumes.

    :param embedding: The model's output, any length but zero.
    :param model_name: Named in the error.
    :returns: The same direction with Euclidean norm 1 (within 0.001; a unit vector comes back unchanged).
    :raises EmbeddingError: If the vector is empty, all zeros or not finite.
    """
    norm = math.sqrt(math.fsum(map(operator.mul, embedding, embedding)))
    if not embedding or norm == 0.0 or not math.isfinite(norm):
        what = "an empty vector" if not embedding else f"a vector of length {norm}"
        raise EmbeddingError(
            f"embedding model '{model_name}' returned {what}; a finite vector that isn't all zeros is needed: "
            "check the model and its endpoint"
        )
    if abs(norm - 1.0) <= _TOLERANCE:
        return list(embedding)
    return [value / norm for value in embedding]


@contextmanager
def embedding_errors(model_name: str) -> Iterator[None]:
    """Turn whatever an embedding model raises inside the block into an :class:`EmbeddingError`.

    Each provider's client has exceptions of its own; a caller wants to catch one.

    :param model_name: Named in the error.
    :returns: A context manager.
    :raises EmbeddingUnavailableError: If the model's endpoint can't be reached, is too busy or fails by itself.
    :raises EmbeddingError: From any other exception inside the block.
    """
    try:
        yield
    except EmbeddingError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        kind = EmbeddingUnavailableError if _is_outage(error) else EmbeddingError
        raise kind(
            f"embedding model '{model_name}' failed ({reason[:300]}): check embedding.model, embedding.base-url and "
            "that the endpoint answers"
        ) from error


def _is_outage(error: BaseException | None) -> bool:
    """Tell whether an endpoint didn't answer, from whatever its client made of that."""
    while error is not None:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR
        if isinstance(error, ConnectionError | TimeoutError | httpx.TransportError):
            return True
        error = error.__cause__
    return False
