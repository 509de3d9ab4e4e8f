"""Records queries as keyed hashes, for those who may not keep what people ask.

What is covered: everything that goes into a record, before it reaches the queue, a file or the database.

What is not: log lines at level INFO (``-v``), which hold the query, and at level ERROR, which hold error messages; the
language model's and the embedding model's endpoint, which get the query because they must; tracing, which has what the
tracer takes. The memory of sessions in the database (``session.backend: database``) holds no query either, but an
unkeyed hash of it and the query's vector, until the session expires.
"""

import hashlib
import hmac
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from knowledge_lookup.agents.tool_invocation import InvocationRecorder, ToolInvocation
from knowledge_lookup.pipeline.storage.errors import HashKeyError
from knowledge_lookup.retrievers.normal_form import normal_form

HASHED_QUERY_PREFIX = "hmac-sha256:"
"""How a query begins that was stored as a hash."""

_KEY_FILE = "query-hash.key"
_KEY_BYTES = 32
_ERRORS = ("error", "l1_error", "l0_error")


class QueryHashingRecorder:
    """An ``InvocationRecorder`` that hands each invocation on with its query hashed.

    The hash is the HMAC-SHA256 of the query's normal form, as ``hmac-sha256:`` and 64 hex digits, so that the same
    question in another spelling has the same hash; without the key nobody can try questions out. An empty query stays
    empty. Of an error only its kind is kept, since its message may quote the query.

    :param recorder: Gets the invocations.
    :param key: The key, at least 16 bytes.
    """

    def __init__(self, recorder: InvocationRecorder, key: bytes) -> None:
        self._recorder = recorder
        self._key = key

    def record(self, invocation: ToolInvocation) -> None:
        """Hand an invocation on, without its query.

        :param invocation: The finished call.
        """
        details = invocation.retrieval_details
        self._recorder.record(
            replace(
                invocation,
                query=hashed_query(invocation.query, self._key),
                retrieval_details={name: _without_message(name, value) for name, value in details.items()},
            )
        )


def hashed_query(query: str, key: bytes) -> str:
    """Return what is stored instead of a query.

    :param query: Any text.
    :param key: The key.
    :returns: ``hmac-sha256:`` and 64 hex digits; nothing of an empty query.
    """
    normal = normal_form(query)
    if not normal:
        return ""
    return HASHED_QUERY_PREFIX + hmac.new(key, normal.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def hash_key_in(data_dir: Path) -> bytes:
    """Return the key of a data folder, which is made on first use.

    However many processes come first at once, all get the same key. Only the file's owner may read it.

    :param data_dir: The folder; made if it isn't there.
    :returns: 32 bytes.
    :raises HashKeyError: The file can't be read or made, or isn't a key.
    """
    path = data_dir / _KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise HashKeyError(
            f"the key of hashed queries, '{path}', can't be read or made ({error.strerror}): check the data-dir, or "
            "set records.hash-key"
        ) from error
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise HashKeyError(
            f"'{path}' is no key of hashed queries: put back the one that was there, or remove the file (queries "
            "recorded until now will not group with new ones)"
        )
    return key


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{_KEY_FILE}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_bytes(_KEY_BYTES).hex())
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces the key that another process has made meanwhile.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _without_message(name: str, value: Any) -> Any:
    return value.partition(":")[0] if name in _ERRORS and isinstance(value, str) else value
