"""Runs the migrations, one process at a time.

Kept apart from :class:`Database` because only this needs Alembic, and most starts don't.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import URL, Connection, text

from knowledge_lookup.pipeline.storage.database_url import shown
from knowledge_lookup.pipeline.storage.engines import WRITING, build_migration_engine
from knowledge_lookup.pipeline.storage.errors import DatabaseError, DatabaseUnavailableError, SchemaNotCurrentError
from knowledge_lookup.pipeline.storage.failures import FAILURES, translated
from knowledge_lookup.pipeline.storage.revision import REQUIRED_REVISION, revision_of

_SCRIPTS = "knowledge_lookup.migrations:"
_MYSQL_LOCK_WAIT_SECONDS = 60


def upgrade(url: URL, revision: str) -> None:
    """Migrate up; does nothing when the database is there already.

    :param url: The database.
    :param revision: The revision to reach; ``head`` is the newest.
    :raises SchemaNotCurrentError: The database was migrated by a newer version of this package.
    :raises DatabaseUnavailableError: Another process was migrating for too long.
    :raises DatabaseError: There is no such revision, or the database refused.
    """
    _migrate(url, lambda config: command.upgrade(config, revision))


def downgrade(url: URL, revision: str) -> None:
    """Migrate down.

    :param url: The database.
    :param revision: The revision to reach; ``base`` is no tables.
    :raises SchemaNotCurrentError: The database was migrated by a newer version of this package.
    :raises DatabaseUnavailableError: Another process was migrating for too long.
    :raises DatabaseError: There is no such revision, or the database refused.
    """
    _migrate(url, lambda config: command.downgrade(config, revision))


def refuse_unknown_revision(current: str | None, shown_url: str) -> None:
    """Raise if a database is at a revision that this version doesn't have.

    :param current: The database's revision; None when it was never migrated.
    :param shown_url: The database as it may be shown.
    :raises SchemaNotCurrentError: The revision is unknown.
    """
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current is not None and current not in known:
        raise SchemaNotCurrentError(
            f"database {shown_url} is at schema revision {current}, which this version doesn't know (it needs "
            f"{REQUIRED_REVISION}): a newer knowledge-lookup migrated it; install that version or a later one"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    return config


def _migrate(url: URL, run: Callable[[Config], None]) -> None:
    shown_url = shown(url)
    try:
        with _taking_turns(url) as connection:
            current = revision_of(connection)
            config = _config()
            config.attributes["connection"] = connection
            run(config)
    except CommandError as error:
        # Alembic's way to say, among others, that it doesn't know where the database is.
        refuse_unknown_revision(current, shown_url)
        raise DatabaseError(f"database {shown_url}: {' '.join(str(error).split())}") from error
    except FAILURES as error:
        raise translated(error, shown_url) from error


@contextmanager
def _taking_turns(url: URL) -> Iterator[Connection]:
    """Yield a connection that no other process migrates on at the same time."""
    with build_migration_engine(url).connect() as connection:
        if url.get_backend_name() == "sqlite":
            # One write transaction around everything: it is the lock, and what was cut off is undone.
            with connection.execution_options(**WRITING).begin():
                yield connection
            return
        # The lock's name counts for the whole server, and ends with this connection.
        name = "knowledge_lookup:" + hashlib.sha256(str(url.database).encode()).hexdigest()[:32]
        got = connection.execute(
            text("SELECT GET_LOCK(:name, :seconds)"), {"name": name, "seconds": _MYSQL_LOCK_WAIT_SECONDS}
        ).scalar()
        connection.commit()
        if got != 1:
            raise DatabaseUnavailableError(
                f"database {shown(url)}: another process has been migrating it for {_MYSQL_LOCK_WAIT_SECONDS} seconds; "
                "try again when it has ended"
            )
        yield connection
        connection.commit()
