"""Who writes a document at the moment: leases in the database, one a document.

Several processes may sync, upload and delete at once. Each holds a document's lease while it writes the
document, so that nobody embeds it a second time or writes its chunks in between. A lease is kept alive by a
heartbeat and expires when its holder is gone, so that a killed process blocks nobody for long; on the same machine it
is free at once.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import DatabaseError
from knowledge_lookup.pipeline.storage.lease_holder import is_dead, new_holder
from knowledge_lookup.pipeline.storage.storable_text import exact_hash
from knowledge_lookup.pipeline.storage.tables import document_lease

_LOGGER = logging.getLogger(__name__)

_HEARTBEATS_PER_TTL = 4
_POLL_SECONDS = 0.1
_INSERT_WHERE_FREE = (
    insert(document_lease).prefix_with("OR IGNORE", dialect="sqlite").prefix_with("IGNORE", dialect="mysql")
)


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
        while True:
            with self.try_hold(file_path) as is_mine:
                if is_mine:
                    yield
                    return
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def try_hold(self, file_path: str) -> Iterator[bool]:
        """Hold a document's lease while the block runs, if it is free.

        :param file_path: The document.
        :returns: A context manager that gives False when somebody else holds the lease.
        :raises DatabaseError: The database can't be read or written.
        """
        with self.try_hold_all([file_path]) as mine:
            yield file_path in mine

    @contextmanager
    def try_hold_all(self, file_paths: Collection[str]) -> Iterator[frozenset[str]]:
        """Hold those leases of many documents that are free while the block runs; taken and kept alive together.

        :param file_paths: The documents.
        :returns: A context manager that gives the documents whose leases are held now.
        :raises DatabaseError: The database can't be read or written.
        """
        holder = new_holder()
        keys = {exact_hash(file_path): file_path for file_path in file_paths}
        held = self._acquire(keys, holder)
        if not held:
            yield frozenset()
            return
        with self._kept_alive(held, holder):
            yield frozenset(keys[key] for key in held)

    def is_held(self, file_path: str) -> bool:
        """Tell whether anybody holds a document's lease.

        :param file_path: The document.
        :returns: True while the lease is alive.
        :raises DatabaseError: The database can't be read.
        """
        return any(not _is_free(lease) for lease in self._leases([exact_hash(file_path)]))

    def was_abandoned(self, file_path: str) -> bool:
        """Tell whether somebody took a document's lease, and died with it.

        :param file_path: The document.
        :returns: True when a lease was neither given back nor kept alive.
        :raises DatabaseError: The database can't be read.
        """
        return any(_is_free(lease) for lease in self._leases([exact_hash(file_path)]))

    def _leases(self, keys: Collection[str]) -> list[Row[Any]]:
        query = select(document_lease).where(document_lease.c.lease_key.in_(keys))
        return list(self._database.read(lambda connection: connection.execute(query).all()))

    def _acquire(self, keys: Mapping[str, str], holder: str) -> list[str]:
        leases = {lease.lease_key: lease for lease in self._leases(keys)}
        abandoned = [lease for lease in leases.values() if _is_free(lease)]
        # In one order everywhere, so that two processes that want the same leases don't wait for each other.
        unheard_of = sorted(keys.keys() - leases.keys())
        if not abandoned and not unheard_of:
            return []

        def take(connection: Connection) -> list[str]:
            table = document_lease.c
            new = {"holder": holder, "expires_at": datetime.now(UTC) + self._ttl}
            for lease in abandoned:
                # Only from the holder that was seen to be gone: another may have been faster.
                same = (
                    (table.lease_key == lease.lease_key)
                    & (table.holder == lease.holder)
                    & (table.expires_at == lease.expires_at)
                )
                connection.execute(update(document_lease).where(same).values(new))
            if unheard_of:
                connection.execute(_INSERT_WHERE_FREE, [{"lease_key": key, **new} for key in unheard_of])
            wanted = [*unheard_of, *(lease.lease_key for lease in abandoned)]
            return list(connection.execute(select(table.lease_key).where(_are_held(wanted, holder))).scalars())

        return self._database.write(take)

    @contextmanager
    def _kept_alive(self, keys: Collection[str], holder: str) -> Iterator[None]:
        ended = threading.Event()
        mine = _are_held(keys, holder)

        def renew(connection: Connection) -> None:
            expires_at = datetime.now(UTC) + self._ttl
            connection.execute(update(document_lease).where(mine).values(expires_at=expires_at))

        def beat() -> None:
            while not ended.wait(self._ttl.total_seconds() / _HEARTBEATS_PER_TTL):
                try:
                    self._database.write(renew)
                except DatabaseError as error:
                    _LOGGER.warning("leases on documents could not be renewed, will try again: %s", error)

        heart = threading.Thread(target=beat, name="document-lease", daemon=True)
        heart.start()
        try:
            yield
        finally:
            ended.set()
            heart.join()
            self._database.write(lambda connection: connection.execute(delete(document_lease).where(mine)).rowcount)


def _are_held(keys: Collection[str], holder: str) -> Any:
    # By key first: a server locks every row that it looks at, and the holder has no index.
    return document_lease.c.lease_key.in_(keys) & (document_lease.c.holder == holder)


def _is_free(lease: Row[Any]) -> bool:
    return bool(lease.expires_at <= datetime.now(UTC)) or is_dead(lease.holder)
