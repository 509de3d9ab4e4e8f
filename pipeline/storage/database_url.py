"""Reads ``database.url``, and shows it without its secrets."""

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from knowledge_lookup.pipeline.storage.errors import DatabaseError

_ALLOWED = "mysql+pymysql://user:password@host:3306/name or sqlite:///folder/file.db"
_EMBEDDED_FILE = "knowledge-lookup.db"


def read_url(url: str | None, *, data_dir: Path) -> URL:
    """Return the checked URL of the database.

    :param url: The setting; None is the embedded database, a SQLite file in ``data_dir``.
    :param data_dir: The folder of the embedded database.
    :returns: A URL of dialect ``sqlite`` (always a file) or ``mysql+pymysql``.
    :raises DatabaseError: The setting is no URL, or one of another kind.
    """
    if url is None:
        return URL.create("sqlite", database=str(data_dir / _EMBEDDED_FILE))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without the cause and without the text: both may hold a password.
        raise DatabaseError(f"database.url is not a database URL; it must look like {_ALLOWED}") from None
    if "@" in f"{parsed.host or ''}{parsed.database or ''}":
        raise DatabaseError(
            "database.url has an @ after its host: special characters in user and password "
            "must be percent-encoded (@ is %40, / is %2F)"
        )
    if parsed.drivername not in ("mysql+pymysql", "sqlite"):
        raise DatabaseError(f"database.url is of kind {parsed.drivername}; it must look like {_ALLOWED}")
    if not parsed.database or parsed.database == ":memory:":
        raise DatabaseError(f"database.url names no database; it must look like {_ALLOWED}")
    return parsed


def shown(url: URL) -> str:
    """Return a URL for messages: without the password and without options, which may hold one too.

    :param url: The URL.
    :returns: The text to show.
    """
    return url.set(query={}).render_as_string(hide_password=True)
