"""The connection to the database: an embedded SQLite file, or MySQL / MariaDB by URL.

Everything that reads or writes goes through :meth:`Database.read` and :meth:`Database.write`: one transaction
each, failures turned into one-line errors, lost lock conflicts repeated.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine

from knowledge_lookup.pipeline.storage.database_url import read_url, shown
from knowledge_lookup.pipeline.storage.engines import WRITING, build_engine
from knowledge_lookup.pipeline.storage.errors import SchemaNotCurrentError
from knowledge_lookup.pipeline.storage.failures import FAILURES, is_lock_conflict, translated
from knowledge_lookup.pipeline.storage.fork_gate import ForkGate
from knowledge_lookup.pipeline.storage.revision import REQUIRED_REVISION, revision_of
from knowledge_lookup.retrievers.fork_safety import call_after_fork, call_around_fork

T = TypeVar("T")

_ATTEMPTS = 5
# No further attempt is begun after this time, so that a busy database can't hold a caller for long.
_LAST_ATTEMPT_SECONDS = 4.0


class Database:
    """One database and its pool of connections; nothing is opened before the first use.

    >>> import tempfile
    >>> from pathlib import Path
    >>> database = Database(None, data_dir=Path(tempfile.mkdtemp()))
    >>> database.ensure_current()
    >>> database.current_revision()
    'V012'
    >>> database.close()

    :param url: ``mysql+pymysql://...`` or ``sqlite:///...``; None is a SQLite file in ``data_dir``.
    :param data_dir: The folder of the embedded database; made when it is first needed.
    :param ensures_current: Whether :meth:`ensure_current` runs before the first read or write. (Before, a database that
        is away would keep everything from being built that can do without it.)
    :raises DatabaseError: The URL is none, or of another kind.
    """

    def __init__(self, url: str | None, *, data_dir: Path, ensures_current: bool = False) -> None:
        self._url = read_url(url, data_dir=data_dir)
        self._is_checked = not ensures_current
        self._engine: Engine | None = None
        self._inherited: list[Engine] = []
        self._lock = threading.Lock()
        self._gate = ForkGate()
        call_around_fork(self._prepare_fork, self._gate.open)
        call_after_fork(self._forget_inherited)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file, which migrates itself, rather than a server."""
        return self._url.get_backend_name() == "sqlite"

    @property
    def shown_url(self) -> str:
        """The database's URL for messages, without the password."""
        return shown(self._url)

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for queries of one's own; connects with its first use."""
        with self._lock:
            if self._engine is None:
                self._engine = build_engine(self._url)
            return self._engine

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run queries in one transaction.

        :param work: Takes the connection; must not write.
        :returns: What ``work`` returned.
        :raises DatabaseUnavailableError: The database doesn't answer.
        :raises DatabaseError: The database refused.
        """
        self._check()
        return self._read(work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._gate, self.engine.connect() as connection, connection.begin():
                return work(connection)
        except FAILURES as error:
            raise translated(error, self.shown_url) from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run statements in one transaction, again if it lost against another transaction.

        :param work: Takes the connection; may be called several times, each time in a new transaction.
        :returns: What ``work`` returned the last time, after the commit.
        :raises DatabaseUnavailableError: The database doesn't answer, or stayed locked.
        :raises UnstorableValueError: A value doesn't fit into its column.
        :raises DatabaseError: The database refused.
        """
        self._check()
        started = time.monotonic()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with (
                    self._gate,
                    self.engine.connect().execution_options(**WRITING) as connection,
                    connection.begin(),
                ):
                    return work(connection)
            except FAILURES as error:
                too_late = time.monotonic() - started > _LAST_ATTEMPT_SECONDS
                if attempt == _ATTEMPTS or too_late or not is_lock_conflict(error):
                    raise translated(error, self.shown_url) from error
                # At random: transactions that met once would otherwise meet again.
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
        raise AssertionError("the last attempt returns or raises")

    def current_revision(self) -> str | None:
        """Return the revision of the tables.

        :returns: A revision such as ``V010``; None when the database has no tables of ours yet.
        :raises DatabaseError: The database can't be read.
        """
        if self.is_sqlite and not Path(str(self._url.database)).exists():
            return None
        return self._read(revision_of)

    def ensure_current(self) -> None:
        """Make sure that the tables are those of this version: SQLite is migrated, a server only checked.

        :raises SchemaNotCurrentError: A server's tables are older than this version, or any database's newer.
        :raises DatabaseError: The database can't be read or migrated.
        """
        current = self.current_revision()
        if current == REQUIRED_REVISION:
            return
        if self.is_sqlite:
            self.upgrade()
            return
        from knowledge_lookup.pipeline.storage.schema import refuse_unknown_revision

        refuse_unknown_revision(current, self.shown_url)
        state = "has no tables yet" if current is None else f"is at schema revision {current}"
        raise SchemaNotCurrentError(
            f"database {self.shown_url} {state} and {REQUIRED_REVISION} is needed: run `knowledge-lookup migrate`"
        )

    def upgrade(self, revision: str = "head") -> None:
        """Bring the tables up to a revision; does nothing when they are there already.

        Processes that do so at once take turns.

        :param revision: The revision; ``head`` is the newest.
        :raises SchemaNotCurrentError: The database was migrated by a newer version of this package.
        :raises DatabaseUnavailableError: Another process was migrating for too long.
        :raises DatabaseError: There is no such revision, or the database refused.
        """
        from knowledge_lookup.pipeline.storage.schema import upgrade

        upgrade(self._url, revision)

    def downgrade(self, revision: str) -> None:
        """Take the tables back to an older revision; what only newer ones hold is lost.

        :param revision: The revision; ``base`` removes all tables.
        :raises SchemaNotCurrentError: The database was migrated by a newer version of this package.
        :raises DatabaseUnavailableError: Another process was migrating for too long.
        :raises DatabaseError: There is no such revision, or the database refused.
        """
        from knowledge_lookup.pipeline.storage.schema import downgrade

        downgrade(self._url, revision)

    def _check(self) -> None:
        if not self._is_checked:
            self.ensure_current()
            self._is_checked = True

    def close(self) -> None:
        """Close all connections; a later use opens new ones."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _prepare_fork(self) -> None:
        """Let transactions end, and close the connections to SQLite, which doesn't survive a fork with open ones."""
        self._gate.close()
        if self.is_sqlite:
            self.close()

    def _forget_inherited(self) -> None:
        """Start afresh in a forked child, without closing the connections that belong to the parent."""
        self._gate.renew()
        self._lock = threading.Lock()
        if self._engine is not None:
            # Kept, not dropped: the garbage collector would close them, and SQLite then undoes what it takes
            # for this process's unfinished transaction.
            self._inherited.append(self._engine)
            self._engine = None
