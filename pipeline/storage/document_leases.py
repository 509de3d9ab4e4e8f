"""Who writes a document at the moment: leases in the database, one a document.

Several processes may sync, upload and delete at once. Each holds a document's lease while it writes the
document, so that nobody embeds it a second time or writes its chunks in between. A lease is kept alive by a
heartbeat and expires when its holder is gone, so that a killed process blocks nobody for long; on the same machine it
is free at once.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import DatabaseError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.lease_holder import is_dead, new_holder
from knowledge_lookup.pipeline.storage.storable_text import exact_hash
from knowledge_lookup.pipeline.storage.tables import document_lease

_LOGGER = logging.getLogger(__name__)

_HEARTBEATS_PER_TTL = 4
_POLL_SECONDS = 0.1


class DocumentLeases:
    """Leases on documents by path; a path that no document can have serves as the name of another lease.

    :param database: The database, its schema current.
    :param ttl_seconds: After so many seconds without a heartbeat a lease is free again; above 0. The clocks of
        the machines that share a database must agree to a small part of it.
    """

    def __init__(self, database: Database, *, ttl_seconds: float = 10.0) -> None:
        if not ttl_seconds > 0:
            raise ValueError(f"ttl_seconds is {ttl_seconds}; it must be above 0")
        self._database = database
        self._ttl = timedelta(seconds=ttl_seconds)

    @contextmanager
    def hold(self, file_path: str) -> Iterator[None]:
        """Hold a document's lease while the block runs; wait for it as long as somebody else holds it.

        :param file_path: The document.
        :returns: A context manager.
        :raises DatabaseError: The database can't be read or written.
        """
        holder = new_holder()
        while not self._acquire(file_path, holder):
            time.sleep(_POLL_SECONDS)
        with self._kept_alive(file_path, holder):
            yield

    @contextmanager
    def try_hold(self, file_path: str) -> Iterator[bool]:
        """Hold a document's lease while the block runs, if it is free.

        :param file_path: The document.
        :returns: A context manager that gives False when somebody else holds the lease.
        :raises DatabaseError: The database can't be read or written.
        """
        holder = new_holder()
        if not self._acquire(file_path, holder):
            yield False
            return
        with self._kept_alive(file_path, holder):
            yield True

    def is_held(self, file_path: str) -> bool:
        """Tell whether anybody holds a document's lease.

        :param file_path: The document.
        :returns: True while the lease is alive.
        :raises DatabaseError: The database can't be read.
        """
        lease = self._lease(file_path)
        return lease is not None and not _is_free(lease)

    def was_abandoned(self, file_path: str) -> bool:
        """Tell whether somebody took a document's lease, and died with it.

        :param file_path: The document.
        :returns: True when a lease was neither given back nor kept alive.
        :raises DatabaseError: The database can't be read.
        """
        lease = self._lease(file_path)
        return lease is not None and _is_free(lease)

    def _lease(self, file_path: str) -> Row[Any] | None:
        query = select(document_lease).where(document_lease.c.lease_key == exact_hash(file_path))
        return self._database.read(lambda connection: connection.execute(query).one_or_none())

    def _acquire(self, file_path: str, holder: str) -> bool:
        row = {
            "lease_key": exact_hash(file_path),
            "holder": holder,
            "expires_at": datetime.now(UTC) + self._ttl,
        }
        lease = self._lease(file_path)
        if lease is not None and not _is_free(lease):
            return False

        def take(connection: Connection) -> bool:
            if lease is not None:
                # Only from the holder that was seen to be gone: another may have been faster.
                table = document_lease.c
                same = (
                    (table.lease_key == row["lease_key"])
                    & (table.holder == lease.holder)
                    & (table.expires_at == lease.expires_at)
                )
                return connection.execute(update(document_lease).where(same).values(row)).rowcount > 0
            try:
                connection.execute(insert(document_lease).values(row))
            except IntegrityError as error:
                if not is_duplicate_key(error):
                    raise
                return False
            return True

        return self._database.write(take)

    @contextmanager
    def _kept_alive(self, file_path: str, holder: str) -> Iterator[None]:
        ended = threading.Event()
        mine = (document_lease.c.lease_key == exact_hash(file_path)) & (document_lease.c.holder == holder)

        def renew(connection: Connection) -> None:
            expires_at = datetime.now(UTC) + self._ttl
            connection.execute(update(document_lease).where(mine).values(expires_at=expires_at))

        def beat() -> None:
            while not ended.wait(self._ttl.total_seconds() / _HEARTBEATS_PER_TTL):
                try:
                    self._database.write(renew)
                except DatabaseError as error:
                    _LOGGER.warning("the lease of %s could not be renewed, will try again: %s", file_path, error)

        heart = threading.Thread(target=beat, name="document-lease", daemon=True)
        heart.start()
        try:
            yield
        finally:
            ended.set()
            heart.join()
            self._database.write(lambda connection: connection.execute(delete(document_lease).where(mine)).rowcount)


def _is_free(lease: Row[Any]) -> bool:
    return bool(lease.expires_at <= datetime.now(UTC)) or is_dead(lease.holder)
