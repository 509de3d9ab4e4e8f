"""Databases for the storage tests: each test runs on an embedded SQLite file and on a MariaDB server.

Migrating takes longer than most tests, so it is done once, and each test gets a copy of the empty tables.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.pipeline.storage import Database, SqlActionMemoryStore
from knowledge_lookup.pipeline.storage.tables import metadata
from tests.pipeline.storage.action_memory import TTL, Clock, StoreFactory
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


@pytest.fixture
def clock() -> Clock:
    """Give the clock of the stores."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def make_store(request: pytest.FixtureRequest, clock: Clock) -> StoreFactory:
    """Give a function that opens stores; those of one database share it, as several processes would."""
    if request.param == "memory":
        shared: list[ActionMemoryStore] = []

        def in_memory(*, ttl_seconds: float = TTL, max_sessions: int = 1000) -> ActionMemoryStore:
            if not shared:
                shared.append(
                    InMemoryActionMemoryStore(ttl_seconds=ttl_seconds, max_sessions=max_sessions, clock=clock)
                )
            return shared[0]

        return in_memory
    database: Database = request.getfixturevalue(f"{request.param}_with_tables")

    def in_sql(*, ttl_seconds: float = TTL, max_sessions: int = 1000) -> ActionMemoryStore:
        return SqlActionMemoryStore(database, ttl_seconds=ttl_seconds, max_sessions=max_sessions, clock=clock)

    return in_sql


@pytest.fixture
def store(make_store: StoreFactory) -> Iterator[ActionMemoryStore]:
    """Give a store of each kind."""
    opened = make_store()
    yield opened
    opened.close()
