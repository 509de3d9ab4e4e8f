"""Databases for the storage tests: each test runs on an embedded SQLite file and on a MariaDB server.

Migrating takes longer than most tests, so it is done once, and each test gets a copy of the empty tables.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from knowledge_lookup.pipeline.storage import Database
from knowledge_lookup.pipeline.storage.tables import metadata
from tests.servers.mariadb import MariaDBServer

TABLES = ("alembic_version", *(table.name for table in metadata.sorted_tables))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a SQLite file with empty tables."""
    folder = tmp_path_factory.mktemp("template")
    database = Database(None, data_dir=folder)
    database.ensure_current()
    database.close()
    return folder / "knowledge-lookup.db"


@pytest.fixture
def sqlite_with_tables(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """Give an embedded database whose schema is current."""
    (tmp_path / "data").mkdir()
    shutil.copy(sqlite_template, tmp_path / "data")
    database = Database(None, data_dir=tmp_path / "data")
    yield database
    database.close()


@pytest.fixture(scope="session")
def mariadb_template(mariadb_server: MariaDBServer) -> Iterator[str]:
    """Give the name of a database with empty tables."""
    with mariadb_server.database() as url:
        database = Database(url, data_dir=Path())
        database.upgrade()
        database.close()
        yield str(make_url(url).database)


@pytest.fixture
def mariadb_with_tables(
    mariadb_server: MariaDBServer, mariadb_template: str, mariadb_database: str
) -> Iterator[Database]:
    """Give a database on the server whose schema is current."""
    name = make_url(mariadb_database).database
    mariadb_server.execute(
        *(f"CREATE TABLE {name}.{table} LIKE {mariadb_template}.{table}" for table in TABLES),
        f"INSERT INTO {name}.alembic_version SELECT * FROM {mariadb_template}.alembic_version",
    )
    database = Database(mariadb_database, data_dir=Path())
    yield database
    database.close()


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def database(request: pytest.FixtureRequest) -> Database:
    """Give a database whose schema is current, once of each kind."""
    opened: Database = request.getfixturevalue(f"{request.param}_with_tables")
    return opened
