"""The rows of ``tool_invocation``: one for each finished call of a retrieval tool."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import UnstorableValueError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.storable_text import storable, storable_key
from knowledge_lookup.pipeline.storage.tables import tool_invocation

MAX_QUERY_LENGTH = 2_000
"""Characters of a query that are kept."""


class InvocationRepository:
    """Writes tool invocations.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert_many(self, invocations: Sequence[ToolInvocation]) -> None:
        """Write invocations in one transaction; those whose id is there already stay as they are.

        Text is made storable: NUL and lone surrogates become U+FFFD, and what is longer than its column is cut.
        A session id that had to be changed ends in its hash, so that sessions stay apart.

        :param invocations: What to write.
        :raises UnstorableValueError: An invocation has no form that can be stored; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        # By id: the same call given twice is one row.
        rows = {invocation.id: _row(invocation) for invocation in invocations}
        if rows:
            self._database.write(lambda connection: _insert(connection, rows))


def _insert(connection: Connection, rows: Mapping[str, Mapping[str, Any]]) -> None:
    try:
        with connection.begin_nested():
            connection.execute(insert(tool_invocation), list(rows.values()))
    except IntegrityError as error:
        # Some were written before by an attempt of which nobody learned that it succeeded.
        if not is_duplicate_key(error):
            raise
        _insert_missing(connection, rows)


def _insert_missing(connection: Connection, rows: Mapping[str, Mapping[str, Any]]) -> None:
    query = select(tool_invocation.c.id).where(tool_invocation.c.id.in_(rows))
    present = set(connection.execute(query).scalars())
    missing = [row for id_, row in rows.items() if id_ not in present]
    if missing:
        connection.execute(insert(tool_invocation), missing)


def _row(invocation: ToolInvocation) -> dict[str, Any]:
    try:
        details = json.dumps(dict(invocation.retrieval_details), ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(
            f"invocation {invocation.id}: retrieval_details can't be written as JSON: {error}"
        ) from error
    session_id = invocation.session_id
    return {
        "id": invocation.id,
        "request_id": storable(invocation.request_id, 64),
        "session_id": None if session_id is None else storable_key(session_id, 255),
        "tool_name": storable(invocation.tool_name, 128),
        "query": storable(invocation.query, MAX_QUERY_LENGTH),
        "found": invocation.found,
        "confidence": _storable_or_none(invocation.confidence, 16),
        "latency_ms": invocation.latency_ms,
        "retrieval_details": storable(details),
        "created_at": invocation.created_at,
        "relevance_level": _storable_or_none(invocation.relevance_level, 20),
        "dedup_reason": _storable_or_none(invocation.dedup_reason, 32),
    }


def _storable_or_none(text: str | None, max_length: int) -> str | None:
    return None if text is None else storable(text, max_length)
