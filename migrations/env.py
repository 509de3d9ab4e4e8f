"""Alembic's entry point: runs the revisions on the connection that the caller hands over.

The caller (``knowledge_lookup.pipeline.storage.Database``) owns the connection, the lock that makes
migrating processes take turns, and, where the database can undo DDL, the transaction around everything.
"""

from alembic import context
from sqlalchemy import Connection


def _run() -> None:
    connection = context.config.attributes.get("connection")
    if not isinstance(connection, Connection):
        raise RuntimeError(
            'these migrations need a SQLAlchemy connection in config.attributes["connection"]; '
            "run `knowledge-lookup migrate` instead of alembic"
        )
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


_run()
