"""Removes old records, a few at a time, beside the processes that write new ones."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.tables import tool_invocation

_ROWS_PER_DELETE = 500
_LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was removed, or would be.

    :param before: Records of calls that began before this moment are old.
    :param removed: How many old ones there were.
    :param kept: How many others there are.
    :param is_rehearsal: Whether they were only counted.
    """

    before: datetime
    removed: int
    kept: int
    is_rehearsal: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "before": self.before.isoformat(),
            "removed": self.removed,
            "kept": self.kept,
            "dryRun": self.is_rehearsal,
        }


class RecordRetention:
    """Removes rows of ``tool_invocation``; what sessions remember has its own expiry.

    Each 500 rows are a transaction of their own, after which the table is left to others for as long as that took (at
    most a second), so that no writer waits for more than one of them. Cut off at any moment, it has removed the oldest,
    and the next run goes on.

    A SQLite file keeps its size: the room is used for new records, and giving it back (``VACUUM``) would lock out all
    writers while the whole file is copied. What is removed is overwritten.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def rehearse(self, before: datetime) -> PruneReport:
        """Count what :meth:`prune` would remove.

        :param before: Records of calls that began before this moment would go; one of this very moment stays.
        :returns: The counts.
        :raises DatabaseError: The database can't be read.
        """
        old, kept = self._counts(before)
        return PruneReport(before, old, kept, is_rehearsal=True)

    def prune(self, before: datetime) -> PruneReport:
        """Remove old records.

        :param before: Records of calls that began before this moment go; one of this very moment stays.
        :returns: What was removed.
        :raises DatabaseError: The database can't be read or written; what was removed until then stays removed.
        """
        removed, reached = 0, None
        while True:
            started = time.monotonic()
            oldest = self._oldest(before, reached)
            if not oldest:
                return PruneReport(before, removed, self._counts(before)[1], is_rehearsal=False)
            removed += self._delete([id_ for id_, _ in oldest])
            reached = oldest[-1][1]
            time.sleep(min(time.monotonic() - started, _LONGEST_PAUSE_SECONDS))

    def _counts(self, before: datetime) -> tuple[int, int]:
        table = tool_invocation.c

        def count(connection: Connection) -> tuple[int, int]:
            total: int = connection.execute(select(func.count()).select_from(tool_invocation)).scalar_one()
            old: int = connection.execute(select(func.count()).where(table.created_at < before)).scalar_one()
            return old, total - old

        return self._database.read(count)

    def _oldest(self, before: datetime, reached: datetime | None) -> list[tuple[str, datetime]]:
        table = tool_invocation.c
        query = select(table.id, table.created_at).where(table.created_at < before)
        if reached is not None:
            # MariaDB would otherwise walk again over all that was removed and isn't purged yet.
            query = query.where(table.created_at >= reached)
        query = query.order_by(table.created_at).limit(_ROWS_PER_DELETE)
        return self._database.read(lambda connection: [(row[0], row[1]) for row in connection.execute(query)])

    def _delete(self, ids: list[str]) -> int:
        # By primary key, in one order: no range is locked, and two that prune at once don't lock each other out.
        statement = delete(tool_invocation).where(tool_invocation.c.id.in_(sorted(ids)))

        def run(connection: Connection) -> int:
            if self._database.is_sqlite:
                # Not every build overwrites by itself what was a query somebody wanted gone.
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            return connection.execute(statement).rowcount

        return self._database.write(run)
