"""The schema revision that this version of the package works with, and how to read a database's own."""

from sqlalchemy import Connection, inspect, text

REQUIRED_REVISION = "V012"
"""The newest revision in ``migrations/versions``."""


def revision_of(connection: Connection) -> str | None:
    """Return the revision that a database is at.

    :param connection: A connection to it.
    :returns: The revision, or None when it was never migrated.
    """
    # Read without Alembic, whose import would cost every start more than the rest of this check.
    if not inspect(connection).has_table("alembic_version"):
        return None
    revisions = connection.execute(text("SELECT version_num FROM alembic_version ORDER BY version_num")).scalars()
    return ", ".join(revisions) or None
