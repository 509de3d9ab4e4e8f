"""Reads ``database.url``, and shows it without its secrets."""

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from knowledge_lookup.pipeline.storage.errors import DatabaseError

_ALLOWED = "mysql+pymysql://user:password@host:3306/name or sqlite:///folder/file.db"
_OPTIONS = {
    # Not local_infile, with which a server may ask for files of this machine.
    "mysql+pymysql": re.compile(
        "bind_address|charset|client_flag|collation|connect_timeout|init_command|max_allowed_packet|passwd|program_name"
        "|read_default_file|read_default_group|read_timeout|sql_mode|ssl_(ca|capath|cert|check_hostname|cipher|disabled)"
        "|ssl_(key|key_password|verify_cert|verify_identity)|unix_socket|use_unicode|write_timeout"
    ),
    "sqlite": re.compile("cache|cached_statements|immutable|isolation_level|mode|nolock|psow|timeout|uri|vfs"),
}
"""What a URL may say behind its question mark; the driver would take any other word for an argument of its own."""
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
    _check_options(parsed)
    return parsed


def _check_options(url: URL) -> None:
    unknown = next((name for name in url.query if not _OPTIONS[url.drivername].fullmatch(name)), None)
    if unknown is not None:
        raise DatabaseError(
            f"database.url has an unknown option, {unknown!a}: leave out what stands behind its ?, or name one of "
            "the driver's options, for example ?connect_timeout=5"
        )
    try:
        url.get_dialect()().create_connect_args(url)
    except (ArgumentError, TypeError, ValueError):
        # Without the cause, which may hold a password.
        raise DatabaseError(
            f"database.url has an option with a value of the wrong kind: look at {', '.join(url.query) or 'its parts'}"
        ) from None


def shown(url: URL) -> str:
    """Return a URL for messages: without the password and without options, which may hold one too.

    :param url: The URL.
    :returns: The text to show.
    """
    return url.set(query={}).render_as_string(hide_password=True)
