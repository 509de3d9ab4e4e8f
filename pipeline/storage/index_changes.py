"""The sequence of changes by which a process learns what others did to the index."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.tables import index_change

KEPT = timedelta(days=1)
"""A process that starts reads all rows anyway; only one that was suspended for longer would miss a change."""


class IndexChange(NamedTuple):
    """One change."""

    id: int
    file_path: str
    changed_at: datetime


def append_changes(connection: Connection, file_paths: Iterable[str]) -> None:
    """Note, in the transaction that makes it, that documents became ready or went away.

    :param connection: The transaction.
    :param file_paths: The documents, at least one.
    """
    now = datetime.now(UTC)
    connection.execute(insert(index_change), [{"file_path": path, "changed_at": now} for path in file_paths])


class IndexChanges:
    """Reads the sequence.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest_id(self) -> int:
        """Return the newest change's id.

        :returns: 0 when there is none.
        :raises DatabaseError: The database can't be read.
        """
        query = select(func.coalesce(func.max(index_change.c.id), 0))
        return int(self._database.read(lambda connection: connection.execute(query).scalar_one()))

    def since(self, change_id: int) -> Sequence[IndexChange]:
        """Return later changes.

        Ids are given out when a change is written and become visible when its transaction commits, so that a lower
        id may appear after a higher one: who reads on must look back a little.

        :param change_id: Only changes with a higher id.
        :returns: The changes in order of their ids.
        :raises DatabaseError: The database can't be read.
        """
        query = select(index_change).where(index_change.c.id > change_id).order_by(index_change.c.id)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return [IndexChange(row.id, row.file_path, row.changed_at) for row in rows]

    def prune(self) -> int:
        """Delete changes that everybody has seen.

        :returns: How many were deleted.
        :raises DatabaseError: The database can't be written.
        """
        statement = delete(index_change).where(index_change.c.changed_at < datetime.now(UTC) - KEPT)
        return self._database.write(lambda connection: connection.execute(statement).rowcount)
