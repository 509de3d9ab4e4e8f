"""Builds SQLAlchemy engines with what each of the two databases needs to be safe and quick."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event

WRITING: dict[str, Any] = {"knowledge_lookup_writing": True}
"""Execution options of a connection whose transaction is going to write."""

_SQLITE_WAIT_SECONDS = 5
_POOL_WAIT_SECONDS = 10
_MYSQL_TIMEOUTS_SECONDS = {"connect_timeout": 3, "read_timeout": 5, "write_timeout": 5}
# Below the read time-out, so that a long wait for a lock is reported as that and not as a lost connection.
_MYSQL_LOCK_WAIT = "SET SESSION innodb_lock_wait_timeout = 3"

_MIGRATION_WAIT_SECONDS = 60
# Rebuilding a table with many rows takes as long as it takes.
_MIGRATION_TIMEOUTS_SECONDS = {"connect_timeout": 3, "read_timeout": 3600, "write_timeout": 3600}


def build_engine(url: URL) -> Engine:
    """Return a pooled engine for everyday work; it connects with its first use.

    :param url: A checked URL, see :func:`~knowledge_lookup.pipeline.storage.database_url.read_url`.
    :returns: The engine.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, wait_seconds=_SQLITE_WAIT_SECONDS, pool_timeout=_POOL_WAIT_SECONDS)
    defaults: dict[str, Any] = {"init_command": _MYSQL_LOCK_WAIT} | _MYSQL_TIMEOUTS_SECONDS
    return _mysql_engine(url, defaults, pool_pre_ping=True, pool_timeout=_POOL_WAIT_SECONDS)


def build_migration_engine(url: URL) -> Engine:
    """Return an engine without a pool that waits long enough for a migration, its own or another process's.

    :param url: A checked URL.
    :returns: The engine; each connection is closed after use.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, wait_seconds=_MIGRATION_WAIT_SECONDS, poolclass=NullPool)
    return _mysql_engine(url, dict(_MIGRATION_TIMEOUTS_SECONDS), poolclass=NullPool)


def _mysql_engine(url: URL, defaults: dict[str, Any], **options: Any) -> Engine:
    # What the URL says itself goes first.
    given = {name: value for name, value in defaults.items() if name not in url.query}
    if "charset" not in url.query:
        given["charset"] = "utf8mb4"
    return create_engine(url, connect_args=given, **options)


def _sqlite_engine(url: URL, *, wait_seconds: float, **options: Any) -> Engine:
    engine = create_engine(url, connect_args={"timeout": wait_seconds}, **options)
    folder = Path(str(url.database)).parent

    def make_folder(*_: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    event.listen(engine, "do_connect", make_folder)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver's own transactions begin only before the first change: what was read before it isn't protected.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # The log may lose the last commits with the power, never its consistency, and spares a disk sync for each.
    connection.execute("PRAGMA synchronous = NORMAL")
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and the writer work side by side.

    The switch is stored in the file. While other processes open the new file too it can be refused at once,
    in spite of the waiting time, so it is tried again.
    """
    deadline = time.monotonic() + _SQLITE_WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and asks for the write lock later is refused if another wrote in between.
    writing = connection.get_execution_options().get("knowledge_lookup_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
