"""The action memory's store in the database, for several processes that share their sessions.

A claim is one row of ``retrieved_document``, and the unique key over session, path and section decides who
gets it: a plain INSERT, alone in its transaction. (``ON DUPLICATE KEY`` would tell everybody that they won.)

A session's last use is the newest ``retrieved_at`` of its rows. A claim moves it by being there; a read moves
it by touching the newest row, and only now and then, so that reading doesn't become writing.
"""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Delete, Row, Update, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import DatabaseError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.storable_text import exact_hash, storable_key
from knowledge_lookup.pipeline.storage.tables import retrieved_document

_LOGGER = logging.getLogger(__name__)

# A session's last use is known to this part of its time to live.
_TOUCHES_PER_TTL = 20
_MOST_CLAIMS_PER_CLEANUP = 100
# Bounds the time that one claim spends on it after a night full of expired sessions. Above the number of claims
# (and so of new sessions) from one clean-up to the next, or it would never get through.
_SESSIONS_PER_CLEANUP = 2 * _MOST_CLAIMS_PER_CLEANUP
_ROWS_PER_DELETE = 500


class SqlActionMemoryStore:
    """An ``ActionMemoryStore`` in the SQL database.

    :param database: The database, its schema current; stays open when the store is closed.
    :param ttl_seconds: A session that was not used for longer than this many seconds has expired; above 0. A read
        that comes less than a twentieth of it after the last use doesn't count as one.
    :param max_sessions: How many sessions are kept; the least recently used go. Looked after by every so many
        claims of each process, so that the limit may be passed by a hundredth (at most 100) per process meanwhile.
        At least 1.
    :param clock: Gives the time in seconds since 1970; processes that share the database must agree on it.
    :raises ValueError: A limit is out of its range.
    """

    def __init__(
        self,
        database: Database,
        *,
        ttl_seconds: float = 3600,
        max_sessions: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not ttl_seconds > 0:
            raise ValueError(f"ttl_seconds is {ttl_seconds}; it must be above 0")
        if max_sessions < 1:
            raise ValueError(f"max_sessions is {max_sessions}; it must be at least 1")
        self._database = database
        self._ttl = timedelta(seconds=ttl_seconds)
        self._max_sessions = max_sessions
        self._clock = clock
        self._claims_per_cleanup = min(_MOST_CLAIMS_PER_CLEANUP, max(1, max_sessions // 100))
        # The first claim of each process cleans up, since a process may never come to a second one.
        self._claim_numbers = itertools.count()

    def claim(self, session_id: str, domain: str, file_path: str, section: str = "") -> bool:
        """Record a claim; see ``ActionMemoryStore.claim``.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path; stored exactly up to 1,024 characters.
        :param section: The section that is given; empty for the document itself.
        :returns: True for exactly one caller per session, path and section, over all processes.
        :raises DatabaseError: The database can't be read or written.
        """
        now = self._now()
        self._forget_if_expired(session_id, now)
        row = {
            "session_id": _session_key(session_id),
            "domain": storable_key(domain, 255),
            "file_path": storable_key(file_path, 1024),
            "section": storable_key(section, 512),
            "retrieved_at": now,
            "claim_key": _claim_key(session_id, file_path, section),
        }
        won = self._database.write(lambda connection: _insert(connection, row))
        if won and next(self._claim_numbers) % self._claims_per_cleanup == 0:
            self._try_to_clean_up(now)
        if not won:
            # That, too, is a use of the session.
            self._rows(session_id)
        return won

    def release(self, session_id: str, file_path: str, section: str = "") -> None:
        """Take a claim back.

        :param session_id: The session of the claim.
        :param file_path: The path of the claim.
        :param section: The section of the claim.
        :raises DatabaseError: The database can't be read or written.
        """
        rows = self._rows(session_id)
        key = _claim_key(session_id, file_path, section)
        if any(row.claim_key == key for row in rows):
            self._execute(delete(retrieved_document).where(retrieved_document.c.claim_key == key))
            # The released row may have been the one that told of the last use.
            self._touch([row for row in rows if row.claim_key != key], self._now())

    def documents(self, session_id: str) -> frozenset[str]:
        """Return the paths that the session has.

        :param session_id: The session.
        :returns: The paths, whatever the section.
        :raises DatabaseError: The database can't be read or written.
        """
        return frozenset(row.file_path for row in self._rows(session_id))

    def domains(self, session_id: str) -> list[str]:
        """Return the domains that the session has been in.

        :param session_id: The session.
        :returns: Each domain once, in order of its first claim.
        :raises DatabaseError: The database can't be read or written.
        """
        return list(dict.fromkeys(row.domain for row in self._rows(session_id)))

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        :raises DatabaseError: The database can't be read or written.
        """
        self._delete([row.id for row in self._stored_rows(session_id)])

    def close(self) -> None:
        """Do nothing: the claims are in the database, which belongs to whoever opened it."""

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _rows(self, session_id: str) -> Sequence[Row[Any]]:
        """Use a session: return its rows in order of the claims, none if it has expired."""
        rows = self._stored_rows(session_id)
        now = self._now()
        if self._has_expired(rows, now):
            return []
        if rows and now - _last_use(rows) > self._ttl / _TOUCHES_PER_TTL:
            self._touch(rows, now)
        return rows

    def _stored_rows(self, session_id: str) -> Sequence[Row[Any]]:
        table = retrieved_document
        query = select(table).where(table.c.session_id == _session_key(session_id)).order_by(table.c.id)
        return self._database.read(lambda connection: connection.execute(query).all())

    def _has_expired(self, rows: Sequence[Row[Any]], now: datetime) -> bool:
        return bool(rows) and _last_use(rows) < now - self._ttl

    def _touch(self, rows: Sequence[Row[Any]], now: datetime) -> None:
        if rows:
            newest = max(rows, key=lambda row: (row.retrieved_at, row.id))
            table = retrieved_document
            self._execute(update(table).where(table.c.id == newest.id).values(retrieved_at=now))

    def _forget_if_expired(self, session_id: str, now: datetime) -> None:
        """Delete what an expired session had, so that it neither blocks the next claim nor comes back with it."""
        table = retrieved_document.c
        query = select(func.max(table.retrieved_at)).where(table.session_id == _session_key(session_id))
        last_use = self._database.read(lambda connection: connection.execute(query).scalar_one())
        if last_use is not None and last_use < now - self._ttl:
            # Another process may have begun the session anew in the meantime: only rows that were seen expired go.
            rows = self._stored_rows(session_id)
            if self._has_expired(rows, now):
                self._delete([row.id for row in rows])

    def _try_to_clean_up(self, now: datetime) -> None:
        try:
            self._clean_up(now)
        except DatabaseError as error:
            # The claim is won and written; failing now would lose the document for the whole session.
            _LOGGER.warning("old sessions could not be deleted, will try again later: %s", error)

    def _clean_up(self, now: datetime) -> None:
        """Delete the sessions that have expired and those beyond the limit."""
        table = retrieved_document.c
        last_use = func.max(table.retrieved_at)
        sessions = select(table.session_id).group_by(table.session_id)
        expired = sessions.having(last_use < now - self._ttl)
        surplus = sessions.order_by(last_use.desc()).offset(self._max_sessions)

        def ids(connection: Connection) -> Sequence[int]:
            found: set[str] = set()
            for query in (expired, surplus):
                found.update(connection.execute(query.limit(_SESSIONS_PER_CLEANUP)).scalars())
            return connection.execute(select(table.id).where(table.session_id.in_(found))).scalars().all()

        self._delete(self._database.read(ids))

    def _delete(self, ids: Sequence[int]) -> None:
        # By id, which no later claim ever gets again, and in one order, so that two processes that delete the same
        # rows don't lock each other out.
        ordered = sorted(ids)
        for start in range(0, len(ordered), _ROWS_PER_DELETE):
            some = ordered[start : start + _ROWS_PER_DELETE]
            self._execute(delete(retrieved_document).where(retrieved_document.c.id.in_(some)))

    def _execute(self, statement: Delete | Update) -> None:
        def run(connection: Connection) -> None:
            connection.execute(statement)

        self._database.write(run)


def _insert(connection: Connection, row: dict[str, Any]) -> bool:
    try:
        connection.execute(insert(retrieved_document).values(row))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        return False
    return True


def _last_use(rows: Sequence[Row[Any]]) -> datetime:
    moments: list[datetime] = [row.retrieved_at for row in rows]
    return max(moments)


def _session_key(session_id: str) -> str:
    return storable_key(session_id, 255)


def _claim_key(session_id: str, file_path: str, section: str) -> str:
    # With their lengths, so that ("a", "bc") and ("ab", "c") are two claims.
    return exact_hash("".join(f"{len(part)}:{part}" for part in (session_id, file_path, section)))
