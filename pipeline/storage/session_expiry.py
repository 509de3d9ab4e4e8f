"""When the sessions in the database expire, and how they are deleted.

A session's last use is the newest moment in its rows. A write moves it by being there; a read moves it by touching
the newest row, and only now and then, so that reading doesn't become writing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Delete, Row, Table, Update, delete, func, select, union_all, update

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.tables import retrieved_document, session_lookup

# A session's last use is known to this part of its time to live.
_TOUCHES_PER_TTL = 20
_ROWS_PER_DELETE = 500

_USED_AT = {retrieved_document: "retrieved_at", session_lookup: "looked_up_at"}


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The rows of a session.

    :param claims: Rows of ``retrieved_document``, in order.
    :param lookups: Rows of ``session_lookup``, in order.
    """

    claims: Sequence[Row[Any]] = ()
    lookups: Sequence[Row[Any]] = ()

    @property
    def last_use(self) -> datetime | None:
        """The newest moment; None without rows."""
        claimed: list[datetime] = [row.retrieved_at for row in self.claims]
        looked_up: list[datetime] = [row.looked_up_at for row in self.lookups]
        return max([*claimed, *looked_up], default=None)


class SessionExpiry:
    """Reads, prolongs and deletes sessions.

    :param database: The database.
    :param ttl: A session that was not used for longer has expired.
    :param max_sessions: How many sessions are kept.
    :param sessions_at_once: Most sessions that one clean-up deletes of each kind, which bounds its time.
    """

    def __init__(self, database: Database, *, ttl: timedelta, max_sessions: int, sessions_at_once: int) -> None:
        self._database = database
        self._ttl = ttl
        self._max_sessions = max_sessions
        self._sessions_at_once = sessions_at_once

    def stored(self, session_key: str) -> StoredSession:
        """Read a session, whether expired or not.

        :param session_key: The session as it is stored.
        :returns: Its rows.
        :raises DatabaseError: The database can't be read.
        """

        def read(connection: Connection) -> StoredSession:
            rows = [
                connection.execute(select(table).where(table.c.session_id == session_key).order_by(table.c.id)).all()
                for table in (retrieved_document, session_lookup)
            ]
            return StoredSession(*rows)

        return self._database.read(read)

    def use(self, session_key: str, now: datetime) -> StoredSession:
        """Read a session, which counts as a use.

        :param session_key: The session as it is stored.
        :param now: The present moment.
        :returns: Its rows; none if it has expired.
        :raises DatabaseError: The database can't be read or written.
        """
        stored = self.stored(session_key)
        if self._has_expired(stored.last_use, now):
            return StoredSession()
        if stored.last_use is not None and now - stored.last_use > self._ttl / _TOUCHES_PER_TTL:
            table, rows = (session_lookup, stored.lookups) if stored.lookups else (retrieved_document, stored.claims)
            touch = update(table).where(table.c.id == rows[-1].id).values({_USED_AT[table]: now})
            self._execute(touch)
        return stored

    def forget_if_expired(self, session_key: str, now: datetime) -> None:
        """Delete what an expired session had, so that it neither blocks the next write nor comes back with it.

        :param session_key: The session as it is stored.
        :param now: The present moment.
        :raises DatabaseError: The database can't be read or written.
        """
        uses = _uses()
        query = select(func.max(uses.c.used_at)).where(uses.c.session_id == session_key)
        last_use = self._database.read(lambda connection: connection.execute(query).scalar_one())
        if self._has_expired(last_use, now):
            # Another process may have begun the session anew in the meantime: only rows that were seen expired go.
            stored = self.stored(session_key)
            if self._has_expired(stored.last_use, now):
                self.delete(stored)

    def clean_up(self, now: datetime) -> None:
        """Delete sessions that have expired and those beyond the limit.

        :param now: The present moment.
        :raises DatabaseError: The database can't be read or written.
        """
        uses = _uses()
        last_use = func.max(uses.c.used_at)
        sessions = select(uses.c.session_id).group_by(uses.c.session_id)
        expired = sessions.having(last_use < now - self._ttl)
        surplus = sessions.order_by(last_use.desc()).offset(self._max_sessions)

        def rows(connection: Connection) -> StoredSession:
            found: set[str] = set()
            for query in (expired, surplus):
                found.update(connection.execute(query.limit(self._sessions_at_once)).scalars())
            tables = (retrieved_document, session_lookup)
            return StoredSession(
                *(connection.execute(select(t.c.id).where(t.c.session_id.in_(found))).all() for t in tables)
            )

        self.delete(self._database.read(rows))

    def delete(self, stored: StoredSession) -> None:
        """Delete rows.

        :param stored: The rows; of other rows that the session has by now nothing is deleted.
        :raises DatabaseError: The database can't be written.
        """
        self._delete(retrieved_document, stored.claims)
        self._delete(session_lookup, stored.lookups)

    def _has_expired(self, last_use: datetime | None, now: datetime) -> bool:
        return last_use is not None and last_use < now - self._ttl

    def _delete(self, table: Table, rows: Sequence[Row[Any]]) -> None:
        # By id, which no later row ever gets again, and in one order, so that two processes that delete the same
        # rows don't lock each other out.
        ordered = sorted(row.id for row in rows)
        for start in range(0, len(ordered), _ROWS_PER_DELETE):
            self._execute(delete(table).where(table.c.id.in_(ordered[start : start + _ROWS_PER_DELETE])))

    def _execute(self, statement: Delete | Update) -> None:
        def run(connection: Connection) -> None:
            connection.execute(statement)

        self._database.write(run)


def _uses() -> Any:
    """The moments at which each session was used, of both tables."""
    return union_all(
        *(select(t.c.session_id, t.c[used_at].label("used_at")) for t, used_at in _USED_AT.items())
    ).subquery()
