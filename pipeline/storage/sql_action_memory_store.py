"""The action memory's store in the database, for several processes that share their sessions.

A claim is one row of ``retrieved_document``, and the unique key over session, path and section decides who
gets it: a plain INSERT, alone in its transaction. (``ON DUPLICATE KEY`` would tell everybody that they won.)

A look-up is one row of ``session_lookup``, written together with its claims. The unique key over session and number
makes look-ups of one session take turns: who decided on a memory that another look-up has changed meanwhile is told
so, and decides again.
"""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.agents.action_memory_store import LOOKUPS_KEPT_WITHOUT_TEXT
from knowledge_lookup.agents.session_memory import Claim, RememberedLookup, SessionMemory
from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import DatabaseError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.session_expiry import SessionExpiry, StoredSession
from knowledge_lookup.pipeline.storage.storable_text import exact_hash, storable_key
from knowledge_lookup.pipeline.storage.tables import retrieved_document, session_lookup

_LOGGER = logging.getLogger(__name__)

_MOST_WRITES_PER_CLEANUP = 100


class SqlActionMemoryStore:
    """An ``ActionMemoryStore`` in the SQL database.

    :param database: The database, its schema current; stays open when the store is closed.
    :param ttl_seconds: A session that was not used for longer than this many seconds has expired; above 0. A read
        that comes less than a twentieth of it after the last use doesn't count as one.
    :param max_sessions: How many sessions are kept; the least recently used go. Looked after by every so many
        writes of each process, so that the limit may be passed by a hundredth (at most 100) per process meanwhile.
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
        self._clock = clock
        self._writes_per_cleanup = min(_MOST_WRITES_PER_CLEANUP, max(1, max_sessions // 100))
        # Above the number of new sessions from one clean-up to the next, or it would never get through.
        self._expiry = SessionExpiry(
            database,
            ttl=timedelta(seconds=ttl_seconds),
            max_sessions=max_sessions,
            sessions_at_once=2 * _MOST_WRITES_PER_CLEANUP,
        )
        # The first write of each process cleans up, since a process may never come to a second one.
        self._write_numbers = itertools.count()

    def claim(self, session_id: str, domain: str, file_path: str) -> bool:
        """Record a claim; see ``ActionMemoryStore.claim``.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path; stored exactly up to 1,024 characters.
        :returns: True for exactly one caller per session and path, over all processes.
        :raises DatabaseError: The database can't be read or written.
        """
        now = self._now()
        self._expiry.forget_if_expired(_session_key(session_id), now)
        row = _claim_row(session_id, Claim(domain, file_path), now)
        won = self._database.write(lambda connection: _insert(connection, row))
        if won:
            self._clean_up_now_and_then(now)
        else:
            # That, too, is a use of the session.
            self._use(session_id)
        return won

    def recall(self, session_id: str) -> SessionMemory:
        """Return the memory of a session.

        :param session_id: The session.
        :returns: Its claims and look-ups.
        :raises DatabaseError: The database can't be read or written.
        """
        stored = self._use(session_id)
        return SessionMemory(
            (Claim(row.domain, row.file_path, row.section) for row in stored.claims),
            (RememberedLookup.model_validate_json(row.lookup) for row in stored.lookups),
        )

    def remember(self, session_id: str, lookup: RememberedLookup) -> bool:
        """Record a look-up and what it delivers; see ``ActionMemoryStore.remember``.

        :param session_id: Any text.
        :param lookup: The look-up.
        :returns: False if it must be decided again.
        :raises DatabaseError: The database can't be read or written.
        """
        now = self._now()
        self._expiry.forget_if_expired(_session_key(session_id), now)
        row = {
            "session_id": _session_key(session_id),
            "number": lookup.number,
            "lookup": lookup.model_dump_json(exclude_defaults=True),
            "looked_up_at": now,
            "lookup_key": _lookup_key(session_id, lookup.number),
        }
        claims = [
            _claim_row(session_id, Claim(text.domain, text.file_path, text.part), now) for text in lookup.delivered
        ]
        try:
            self._database.write(lambda connection: _insert_lookup(connection, row, claims))
        except _OutrunError:
            # That, too, is a use of the session.
            self._use(session_id)
            return False
        self._clean_up_now_and_then(now)
        return True

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        :raises DatabaseError: The database can't be read or written.
        """
        self._expiry.delete(self._expiry.stored(_session_key(session_id)))

    def close(self) -> None:
        """Do nothing: the memory is in the database, which belongs to whoever opened it."""

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _use(self, session_id: str) -> StoredSession:
        return self._expiry.use(_session_key(session_id), self._now())

    def _clean_up_now_and_then(self, now: datetime) -> None:
        if next(self._write_numbers) % self._writes_per_cleanup:
            return
        try:
            self._expiry.clean_up(now)
        except DatabaseError as error:
            # What was to be written is written; failing now would lose it for the whole session.
            _LOGGER.warning("old sessions could not be deleted, will try again later: %s", error)


def _insert(connection: Connection, row: dict[str, Any]) -> bool:
    try:
        connection.execute(insert(retrieved_document).values(row))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        return False
    return True


def _insert_lookup(connection: Connection, row: dict[str, Any], claims: Sequence[dict[str, Any]]) -> None:
    table = session_lookup.c
    later = select(table.id).where(table.session_id == row["session_id"], table.number > row["number"]).limit(1)
    try:
        # The look-up first: its key makes the others of this session wait, so that no two lock each other out.
        connection.execute(insert(session_lookup).values(row))
        if connection.execute(later).first() is not None:
            raise _OutrunError
        if claims:
            connection.execute(insert(retrieved_document), list(claims))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise _OutrunError from error
    number = row["number"] - LOOKUPS_KEPT_WITHOUT_TEXT
    if number > 0:
        connection.execute(
            delete(session_lookup).where(
                table.session_id == row["session_id"], table.number == number, table.lookup.not_like('%"delivered"%')
            )
        )


class _OutrunError(Exception):
    """Another look-up or claim was faster; undoes the transaction."""


def _claim_row(session_id: str, claim: Claim, now: datetime) -> dict[str, Any]:
    return {
        "session_id": _session_key(session_id),
        "domain": storable_key(claim.domain, 255),
        "file_path": storable_key(claim.file_path, 1024),
        "section": storable_key(claim.section, 512),
        "retrieved_at": now,
        "claim_key": _key(session_id, claim.file_path, claim.section),
    }


def _lookup_key(session_id: str, number: int) -> str:
    return _key(session_id, str(number))


def _session_key(session_id: str) -> str:
    return storable_key(session_id, 255)


def _key(*parts: str) -> str:
    # With their lengths, so that ("a", "bc") and ("ab", "c") are two keys.
    return exact_hash("".join(f"{len(part)}:{part}" for part in parts))
