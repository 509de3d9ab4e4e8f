"""Records that wait on disk for a database that is away."""

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage.errors import DatabaseError, UnstorableValueError

_LOGGER = logging.getLogger(__name__)

_WAIT_SECONDS = 2
_TABLE = "CREATE TABLE IF NOT EXISTS record (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, record TEXT NOT NULL)"


class RecordSpool:
    """A SQLite file of its own for the records of all processes that share a data folder.

    The file is made with the first record. One that is damaged is set aside, under a name that says when.

    :param path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, invocations: Sequence[ToolInvocation]) -> None:
        """Keep records, on disk when this returns; those that are kept already stay as they are.

        :param invocations: The records.
        :raises UnstorableValueError: A record has no JSON; none was kept.
        :raises DatabaseError: The file can't be written.
        """
        rows = [(invocation.id, _to_json(invocation)) for invocation in invocations]
        with self._opened() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO record (id, record) VALUES (?, ?)", rows)

    def first(self, count: int) -> list[ToolInvocation]:
        """Read the records that have waited longest.

        :param count: Most records, at least 1.
        :returns: The records; none when nothing waits.
        :raises DatabaseError: The file can't be read.
        """
        if not self.path.exists():
            return []
        with self._opened() as connection:
            rows = connection.execute("SELECT record FROM record ORDER BY number LIMIT ?", (count,)).fetchall()
        return [_from_json(text) for (text,) in rows]

    def remove(self, invocations: Sequence[ToolInvocation]) -> None:
        """Forget records, once they are in the database.

        :param invocations: The records.
        :raises DatabaseError: The file can't be written.
        """
        with self._opened() as connection, connection:
            connection.executemany("DELETE FROM record WHERE id = ?", [(invocation.id,) for invocation in invocations])

    def __len__(self) -> int:
        """Return the number of records that wait."""
        if not self.path.exists():
            return 0
        with self._opened() as connection:
            return int(connection.execute("SELECT COUNT(*) FROM record").fetchone()[0])

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._connect()) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise DatabaseError(
                f"{self.path} can't be used ({error}): records wait there while the database is away; make room on the "
                "disk and check the folder's permissions"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
        try:
            connection.execute(_TABLE)
        except sqlite3.DatabaseError as error:
            connection.close()
            if error.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise
            away = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
            self.path.rename(away)
            _LOGGER.error(
                "%s is damaged and was moved to %s: records that waited there are missing in the database; sqlite3's "
                ".recover may get them back",
                self.path,
                away,
            )
            connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
            connection.execute(_TABLE)
        return connection


def _to_json(invocation: ToolInvocation) -> str:
    fields = vars(invocation) | {
        "retrieval_details": dict(invocation.retrieval_details),
        "created_at": invocation.created_at.isoformat(),
    }
    try:
        # In ASCII: what came in, lone surrogates included, comes out again.
        return json.dumps(fields, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnstorableValueError(f"invocation {invocation.id} can't be written as JSON: {error}") from error


def _from_json(text: str) -> ToolInvocation:
    fields = json.loads(text)
    return ToolInvocation(**fields | {"created_at": datetime.fromisoformat(fields["created_at"])})
