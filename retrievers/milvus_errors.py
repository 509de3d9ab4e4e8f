"""From the exceptions of pymilvus and gRPC to the errors of this package."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from pymilvus.exceptions import (
    ConnectionConfigException,
    DataNotMatchException,
    DataTypeNotMatchException,
    ErrorCode,
    MilvusException,
    ParamError,
    PrimaryKeyException,
)

from knowledge_lookup.retrievers.errors import (
    VectorStoreError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers.milvus_lite import is_milvus_lite, reason_not_opened

MILVUS_FAILURES = (MilvusException, grpc.RpcError)
"""What a call of pymilvus raises; a time limit that is over comes as gRPC's own exception."""
CHECK_SERVER = "check that it runs, that milvus.uri and milvus.token are right, and milvus.timeout-seconds"
"""What to do about a server that doesn't answer."""
_CONNECT_FAILED = 2
_NOT_LOADED = 101
_CLOSED = ("closed channel", "create connection first")
"""What gRPC and pymilvus say of a connection that somebody closed in the middle of a question."""
_INVALID_PARAMETER = 1100
_REFUSALS = (
    ConnectionConfigException,
    DataNotMatchException,
    DataTypeNotMatchException,
    ParamError,
    PrimaryKeyException,
)
"""What pymilvus refuses by itself, before it asks Milvus."""


def shown_uri(uri: str) -> str:
    """Take user and password out of a URI, for messages.

    :param uri: What ``MilvusClient`` takes.
    :returns: The URI without what stands before an ``@``.
    """
    if is_milvus_lite(uri) or "@" not in uri:
        return uri
    return f"{urlsplit(uri).scheme}://{uri.rpartition('@')[2]}"


def is_gone(error: Exception, *, uri: str) -> bool:
    """Tell whether what was open isn't any more, so that opening it again may help.

    :param error: One of ``MILVUS_FAILURES``.
    :param uri: What ``MilvusClient`` takes.
    :returns: True if somebody else dropped or released the collection, or if another user of the same folder in
        this process closed Milvus Lite, or this connection.
    """
    if not isinstance(error, MilvusException):
        return False
    if error.code in {ErrorCode.COLLECTION_NOT_FOUND, _NOT_LOADED} or any(w in str(error.message) for w in _CLOSED):
        return True
    return is_milvus_lite(uri) and error.code == _CONNECT_FAILED


@contextmanager
def milvus_errors(verb: str, *, uri: str) -> Iterator[None]:
    """Turn what pymilvus raises inside the block into an error of this package.

    :param verb: What was to be done, as a past participle.
    :param uri: What ``MilvusClient`` takes.
    :returns: A context manager.
    :raises VectorStoreUnavailableError: If Milvus can't be reached or doesn't answer in time.
    :raises VectorStoreError: If the same call would fail again.
    """
    try:
        yield
    except MILVUS_FAILURES as error:
        raise translated(error, verb, uri=uri) from error


def translated(error: Exception, verb: str, *, uri: str) -> VectorStoreError:
    """Say what a failure means and what to do.

    :param error: One of ``MILVUS_FAILURES``.
    :param verb: What was to be done, as a past participle.
    :param uri: What ``MilvusClient`` takes.
    :returns: The error to raise.
    """
    reason = _one_line(error).replace(uri, shown_uri(uri))
    if is_milvus_lite(uri) and "local milvus" in reason:
        return reason_not_opened(uri)
    what = f"Milvus at {shown_uri(uri)} could not be {verb}: {reason}"
    if isinstance(error, _REFUSALS) or (isinstance(error, MilvusException) and error.code == _INVALID_PARAMETER):
        return VectorStoreError(f"{what}; correct the setting or the value that this names")
    if not is_milvus_lite(uri):
        kind = VectorStoreTimeoutError if _is_time_out(error) else VectorStoreUnavailableError
        return kind(f"{what}; {CHECK_SERVER}")
    if isinstance(error, grpc.RpcError):
        return VectorStoreUnavailableError(f"{what}; try again, or raise milvus.timeout-seconds")
    return VectorStoreError(
        f"{what}; if it stays so, move the folder away and rebuild it with `knowledge-lookup sync --rebuild`"
    )


def _is_time_out(error: Exception) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def _one_line(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        return " ".join(f"{error.code().name}: {error.details()}".split())
    return " ".join(str(getattr(error, "message", "") or error).split())
