"""The databases of the storage tests, for the figures too."""

from tests.pipeline.storage.conftest import (
    database,
    mariadb_template,
    mariadb_with_tables,
    sqlite_template,
    sqlite_with_tables,
)

__all__ = ["database", "mariadb_template", "mariadb_with_tables", "sqlite_template", "sqlite_with_tables"]
