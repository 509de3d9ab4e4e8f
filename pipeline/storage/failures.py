"""Reads the failures of the two databases: which may be tried again, and what to tell the user."""

import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from knowledge_lookup.pipeline.storage.errors import DatabaseError, DatabaseUnavailableError, UnstorableValueError

FAILURES = (SQLAlchemyError, sqlite3.Error, OSError, UnicodeError, OverflowError, RuntimeError)
"""Everything that using a database may raise. SQLAlchemy passes some of it on as it comes: failures while
connecting, text without a UTF-8 form, and the driver's RuntimeError when the server's way of authentication
needs another package."""

_MYSQL_DUPLICATE_KEY = 1062
_MYSQL_LOCK_CONFLICTS = frozenset({1205, 1213})  # lock wait timeout, deadlock
_MYSQL_NOT_ANSWERING = frozenset({1040, 1053, 1203, 2002, 2003, 2006, 2013, 2014, 2055})
_MYSQL_ADVICE = {
    **dict.fromkeys((1044, 1045, 1698), "check user, password and rights of database.url"),
    **dict.fromkeys((1054, 1146), "run `knowledge-lookup migrate`"),
    1049: "create it first, with CHARACTER SET utf8mb4",
}


_SQLITE_NO_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")
_SQLITE_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MEND_DISK = "make room on the disk and check that the folder can be written, or set another data-dir"
_MEND_DAMAGE = (
    "the file is damaged: move it away and run `knowledge-lookup sync`, which makes it anew from the documents "
    "(records and sessions stay in the old file, from which sqlite3's .recover may get them)"
)


def is_duplicate_key(error: IntegrityError) -> bool:
    """Tell whether a unique key refused the row, rather than some other constraint.

    :param error: The failure of an INSERT.
    :returns: True when a row with this key is there.
    """
    return _mysql_code(error) == _MYSQL_DUPLICATE_KEY or _sqlite_name(error) in (
        "SQLITE_CONSTRAINT_UNIQUE",
        "SQLITE_CONSTRAINT_PRIMARYKEY",
    )


def is_lock_conflict(error: Exception) -> bool:
    """Tell whether a transaction lost against another one and may be tried again.

    :param error: The failure.
    :returns: True for a deadlock, a lock wait that took too long, and SQLite's "database is locked".
    """
    return _mysql_code(error) in _MYSQL_LOCK_CONFLICTS or _sqlite_name(error).startswith(
        ("SQLITE_BUSY", "SQLITE_LOCKED")
    )


def translated(error: Exception, database: str) -> DatabaseError:
    """Turn a failure into the error for the user.

    :param error: What SQLAlchemy, the driver or the operating system raised.
    :param database: The database as it may be shown.
    :returns: The error to raise from it; its message is one line and holds no password.
    """
    kind: type[DatabaseError] = DatabaseError
    advice: str | None = None
    code = _mysql_code(error)
    reason = _reason(error)
    if is_lock_conflict(error):
        kind, advice = DatabaseUnavailableError, "another process keeps it busy, try again"
    elif isinstance(error, PoolTimeoutError):
        kind, reason, advice = DatabaseUnavailableError, "all connections are in use", "try again"
    elif code in _MYSQL_NOT_ANSWERING or (isinstance(error, DBAPIError) and error.connection_invalidated):
        kind, advice = DatabaseUnavailableError, "check that the server runs and that database.url is right"
    elif code in _MYSQL_ADVICE:
        advice = _MYSQL_ADVICE[code]
    elif _sqlite_name(error).startswith(_SQLITE_NO_DISK) or _is_without_folder(error):
        kind, advice = DatabaseUnavailableError, _MEND_DISK
    elif _sqlite_name(error).startswith(_SQLITE_DAMAGED):
        advice = _MEND_DAMAGE
    elif reason.startswith(("no such table", "no such column")):
        advice = "run `knowledge-lookup migrate`"
    elif isinstance(error, DataError | IntegrityError) or _is_bad_parameter(error):
        kind, advice = UnstorableValueError, "this value can't be stored"
    return kind(f"database {database}: {reason}" + ("" if advice is None else f"; {advice}"))


def _is_without_folder(error: Exception) -> bool:
    """Tell whether the folder of a SQLite file couldn't be made."""
    return isinstance(error, OSError) and error.filename is not None


def _is_bad_parameter(error: Exception) -> bool:
    """Tell whether the statement failed on the way to the driver, such as text that has no UTF-8 form."""
    return isinstance(error, UnicodeError | OverflowError) or (
        isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    )


def _mysql_code(error: Exception) -> int | None:
    original = error.orig if isinstance(error, DBAPIError) else None
    code = original.args[0] if original is not None and original.args else None
    return code if isinstance(code, int) else None


def _sqlite_name(error: Exception) -> str:
    original = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(original, "sqlite_errorname", ""))


def _reason(error: Exception) -> str:
    """Return what happened as one line, without the statement and its values."""
    original = (error.orig if isinstance(error, StatementError) else None) or error
    if _mysql_code(error) is not None and len(original.args) > 1:
        text = f"{original.args[1]} ({original.args[0]})"
    else:
        text = str(original)
    return " ".join(text.split()) or type(original).__name__
