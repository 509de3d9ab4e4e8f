"""From the exceptions of pymilvus and gRPC to the errors of this package."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from pymilvus.exceptions import ConnectError, ErrorCode, MilvusException, MilvusUnavailableException

from knowledge_lookup.retrievers.errors import VectorStoreError, VectorStoreUnavailableError
from knowledge_lookup.retrievers.milvus_lite import is_milvus_lite, reason_not_opened

MILVUS_FAILURES = (MilvusException, grpc.RpcError)
"""What a call of pymilvus raises; a time limit that is over comes as gRPC's own exception."""
_CONNECT_FAILED = 2
_NOT_LOADED = 101
_INVALID_PARAMETER = 1100
_NO_URI_OF_PYMILVUS = (ConnectError, MilvusUnavailableException)


def shown_uri(uri: str) -> str:
    """Take the user and password out of a URI, for messages.

    :param uri: what ``MilvusClient`` takes.
    :returns: the URI without what stands before an ``@``.
    """
    return uri if is_milvus_lite(uri) or "@" not in uri else f"{urlsplit(uri).scheme}://{uri.rpartition('@')[2]}"


def is_gone(error: Exception, *, uri: str) -> bool:
    """Tell whether what was open isn't any more, so that opening it again may help.

    :param error: one of ``MILVUS_FAILURES``.
    :param uri: what ``MilvusClient`` takes.
    :returns: True if the collection was dropped or released by someone else, or if Milvus Lite was closed by
        another user of the same folder in this process.
    """
    if not isinstance(error, MilvusException):
        return False
    lite_closed = error.code == _CONNECT_FAILED and is_milvus_lite(uri)
    return error.code in {ErrorCode.COLLECTION_NOT_FOUND, _NOT_LOADED} or lite_closed


@contextmanager
def translated_milvus_errors(verb: str, *, uri: str) -> Iterator[None]:
    """Turn what pymilvus raises inside the block into an error of this package.

    :param verb: what was to be done, as a past participle.
    :param uri: what ``MilvusClient`` takes.
    :returns: a context manager.
    :raises VectorStoreUnavailableError: if Milvus can't be reached or doesn't answer in time.
    :raises VectorStoreError: if Milvus answers that it can't do this.
    """
    try:
        yield
    except MILVUS_FAILURES as error:
        raise _translated(error, verb, uri) from error


def _translated(error: Exception, verb: str, uri: str) -> VectorStoreError:
    reason = _one_line(error).replace(uri, shown_uri(uri))
    if is_milvus_lite(uri):
        if "local milvus" in reason:
            return reason_not_opened(uri)
        what = f"the embedded Milvus Lite at {uri} could not be {verb}: {reason}"
        if isinstance(error, grpc.RpcError):
            return VectorStoreUnavailableError(f"{what}; try again, or raise milvus.timeout-seconds")
        if _is_refusal(error):
            return VectorStoreError(f"{what}; Milvus doesn't accept this text or value, change it")
        return VectorStoreError(
            f"{what}; if it stays so, move the folder away and rebuild it with `knowledge-lookup sync --rebuild`"
        )
    what = f"Milvus at {shown_uri(uri)} could not be {verb}: {reason}"
    if _is_refusal(error):
        return VectorStoreError(f"{what}; Milvus doesn't accept this, check milvus.uri and the text or value named")
    return VectorStoreUnavailableError(
        f"{what}; check that it runs, that milvus.uri and milvus.token are right, and milvus.timeout-seconds"
    )


def _is_refusal(error: Exception) -> bool:
    """Tell whether the same call would be refused again; pymilvus's own checks have exceptions of their own."""
    if not isinstance(error, MilvusException) or isinstance(error, ConnectError | MilvusUnavailableException):
        return False
    return type(error) is not MilvusException or error.code == _INVALID_PARAMETER


def _one_line(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        return " ".join(f"{error.code().name}: {error.details()}".split())
    return " ".join(str(getattr(error, "message", "") or error).split())
