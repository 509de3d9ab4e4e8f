"""The database connection: settings, migrations that take turns, failures, lock conflicts, forked processes."""

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, make_url, text

from knowledge_lookup.pipeline.storage import (
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    SchemaNotCurrentError,
    UnstorableValueError,
)
from tests.servers.mariadb import MariaDBServer
from tests.servers.processes import exit_code, free_ports


def scalar(database: Database, query: str) -> object:
    return database.read(lambda connection: connection.execute(text(query)).scalar())


def execute(database: Database, *statements: str) -> None:
    def run(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    database.write(run)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url", "database.url is not a database URL"),
        ("mysql+pymysql://u:secret@host:port/name", "database.url is not a database URL"),
        ("postgresql://u:secret@host/name", "database.url is of kind postgresql"),
        ("mysql://u:secret@host/name", "database.url is of kind mysql;"),
        ("mysql+pymysql://u:secret@host", "database.url names no database"),
        ("sqlite://", "database.url names no database"),
        ("sqlite:///:memory:", "database.url names no database"),
        ("mysql+pymysql://u:a@secret@host/name", "special characters in user and password must be percent-encoded"),
        ("mysql+pymysql://u:a@host/secret@host/name", "special characters in user and password"),
    ],
)
def test_a_url_that_is_none_of_the_allowed_kinds_is_refused_without_showing_it(
    url: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DatabaseError, match=message) as caught:
        Database(url, data_dir=tmp_path)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_database_is_shown_without_its_password_and_options(tmp_path: Path) -> None:
    database = Database("mysql+pymysql://u:secret@host:3307/name?passwd=secret", data_dir=tmp_path)
    assert database.shown_url == "mysql+pymysql://u:***@host:3307/name"


def test_nothing_is_opened_or_made_before_the_first_use(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path / "deep" / "data")
    assert database.current_revision() is None
    database.close()
    assert list(tmp_path.iterdir()) == []

    database.ensure_current()
    assert (tmp_path / "deep" / "data" / "knowledge-lookup.db").is_file()
    assert database.current_revision() == "V012"
    database.close()


def test_the_embedded_database_lets_readers_and_a_writer_work_side_by_side(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    pragmas = {name: scalar(database, f"PRAGMA {name}") for name in ("journal_mode", "busy_timeout", "foreign_keys")}
    assert pragmas == {"journal_mode": "wal", "busy_timeout": 5000, "foreign_keys": 1}
    database.ensure_current()
    with database.engine.connect() as writer:
        writer.exec_driver_sql("CREATE TABLE t (a INTEGER)")
        assert scalar(database, "SELECT COUNT(*) FROM sqlite_master WHERE name = 't'") == 0
        writer.commit()
    assert scalar(database, "SELECT COUNT(*) FROM sqlite_master WHERE name = 't'") == 1
    database.close()


def test_opening_a_new_file_waits_for_whoever_is_writing_its_first_tables(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "knowledge-lookup.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE words (word INTEGER)")
    timer = threading.Timer(0.3, other.execute, args=("COMMIT",))
    timer.start()
    database = Database(None, data_dir=tmp_path)
    assert scalar(database, "PRAGMA journal_mode") == "wal"
    assert scalar(database, "SELECT COUNT(*) FROM words") == 0
    timer.join()
    other.close()
    database.close()


def test_a_folder_that_cannot_be_made_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    database = Database(None, data_dir=tmp_path / "file" / "data")
    with pytest.raises(DatabaseError, match="Not a directory") as caught:
        database.ensure_current()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "knowledge-lookup.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(DatabaseError, match=r"file is not a database; the file is damaged: move it away"):
        Database(None, data_dir=tmp_path).ensure_current()


def test_an_old_embedded_database_migrates_itself(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    database.upgrade("V003")
    database.ensure_current()
    assert database.current_revision() == "V012"
    database.close()


@pytest.mark.mariadb
def test_a_server_is_not_migrated_by_a_start_but_the_command_is_named(mariadb_database: str) -> None:
    database = Database(mariadb_database, data_dir=Path())
    with pytest.raises(
        SchemaNotCurrentError, match="has no tables yet and V012 is needed: run `knowledge-lookup migrate`"
    ):
        database.ensure_current()
    database.upgrade("V005")
    with pytest.raises(
        SchemaNotCurrentError, match="is at schema revision V005 and V012 is needed: run `knowledge-lookup migrate`"
    ):
        database.ensure_current()
    assert database.current_revision() == "V005"
    database.upgrade()
    database.ensure_current()
    database.close()


def test_a_database_of_a_newer_version_is_left_alone(database: Database) -> None:
    execute(database, "UPDATE alembic_version SET version_num = 'V999'")
    for action in (database.ensure_current, database.upgrade, lambda: database.downgrade("base")):
        with pytest.raises(SchemaNotCurrentError, match=r"V999, which this version doesn't know \(it needs V012\)"):
            action()
    assert scalar(database, "SELECT COUNT(*) FROM api_document") == 0


def test_a_revision_that_does_not_exist_is_one_line_of_error(database: Database) -> None:
    with pytest.raises(DatabaseError, match="Can't locate revision identified by 'V999'") as caught:
        database.upgrade("V999")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def test_those_who_migrate_at_once_take_turns_and_all_succeed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # Threads stand for processes here: turns are taken by the connections.
    url = request.getfixturevalue("mariadb_database") if kind == "mariadb" else None
    start = threading.Barrier(4)

    def migrate(_: int) -> str | None:
        database = Database(url, data_dir=tmp_path / "data")
        start.wait(10)
        database.upgrade()
        try:
            return database.current_revision()
        finally:
            database.close()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(migrate, range(4))) == ["V012"] * 4


def test_a_server_that_does_not_answer_is_unavailable_within_seconds() -> None:
    [port] = free_ports(1)
    database = Database(f"mysql+pymysql://someone:secret@127.0.0.1:{port}/name", data_dir=Path())
    started = time.monotonic()
    with pytest.raises(DatabaseUnavailableError, match=r"check that the server runs and that database\.url") as caught:
        database.ensure_current()
    assert time.monotonic() - started < 10
    assert f"mysql+pymysql://someone:***@127.0.0.1:{port}/name" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.mariadb
def test_a_refused_password_and_an_unknown_database_say_what_to_do(
    mariadb_server: MariaDBServer, mariadb_database: str
) -> None:
    mariadb_server.execute("CREATE USER IF NOT EXISTS known IDENTIFIED BY 'right'")
    url = make_url(mariadb_database)
    refused = Database(
        url.set(username="known", password="secret").render_as_string(hide_password=False), data_dir=Path()
    )
    with pytest.raises(DatabaseError, match=r"Access denied .* check user, password and rights") as caught:
        refused.current_revision()
    assert not isinstance(caught.value, DatabaseUnavailableError)
    assert "secret" not in str(caught.value)

    unknown = Database(url.set(database="unknown_name").render_as_string(), data_dir=Path())
    with pytest.raises(DatabaseError, match=r"Unknown database .* create it first"):
        unknown.current_revision()


@pytest.mark.mariadb
def test_a_connection_that_the_server_closed_is_replaced_unnoticed(
    mariadb_server: MariaDBServer, mariadb_database: str
) -> None:
    database = Database(mariadb_database, data_dir=Path())
    number = scalar(database, "SELECT CONNECTION_ID()")
    mariadb_server.execute(f"KILL {number}")
    assert scalar(database, "SELECT CONNECTION_ID()") != number
    database.close()


@pytest.mark.mariadb
def test_a_statement_that_takes_too_long_is_given_up_after_seconds(mariadb_database: str) -> None:
    database = Database(f"{mariadb_database}?read_timeout=1", data_dir=Path())
    with pytest.raises(DatabaseUnavailableError, match=r"check that the server runs"):
        scalar(database, "SELECT SLEEP(30)")
    database.close()


def test_a_missing_table_names_the_command(database: Database) -> None:
    with pytest.raises(DatabaseError, match=r"run `knowledge-lookup migrate`$"):
        scalar(database, "SELECT COUNT(*) FROM missing")


def test_a_value_that_does_not_fit_is_told_apart_from_a_failing_database(database: Database) -> None:
    execute(database, "CREATE TABLE words (word VARCHAR(3) NOT NULL)")
    with pytest.raises(UnstorableValueError, match=r"can't be stored$"):
        database.write(lambda connection: connection.execute(text("INSERT INTO words VALUES (NULL)")))
    with pytest.raises(UnstorableValueError, match=r"can't be stored$"):
        database.write(lambda connection: connection.execute(text("INSERT INTO words VALUES (:w)"), {"w": "\ud800"}))


def test_a_closed_database_opens_again_with_the_next_use(database: Database) -> None:
    assert scalar(database, "SELECT 1") == 1
    database.close()
    assert scalar(database, "SELECT 1") == 1


def test_a_failed_write_leaves_nothing_behind(database: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execute(text("INSERT INTO words VALUES (1)"))
        raise LookupError("stop")

    execute(database, "CREATE TABLE words (word INTEGER)")
    with pytest.raises(LookupError, match="stop"):
        database.write(work)
    assert scalar(database, "SELECT COUNT(*) FROM words") == 0


def test_a_write_waits_for_the_writer_before_it(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    execute(database, "CREATE TABLE words (word INTEGER)")
    began = threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute(text("INSERT INTO words SELECT COUNT(*) FROM words"))
        began.set()
        time.sleep(0.3)

    thread = threading.Thread(target=database.write, args=(slow,))
    thread.start()
    assert began.wait(10)
    execute(database, "INSERT INTO words SELECT COUNT(*) FROM words")
    thread.join()
    assert scalar(database, "SELECT SUM(word) FROM words") == 1
    database.close()


def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    execute(database, "CREATE TABLE words (word INTEGER)")
    event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout = 10"))
    database.engine.dispose()
    attempts = []
    event.listen(database.engine, "checkout", lambda *_: attempts.append(1))
    with Database(None, data_dir=tmp_path).engine.connect() as other:
        other.exec_driver_sql("INSERT INTO words VALUES (1)")
        with pytest.raises(DatabaseUnavailableError, match="database is locked; another process keeps it busy"):
            execute(database, "INSERT INTO words VALUES (2)")
    assert len(attempts) == 5
    database.close()


@pytest.mark.mariadb
def test_transactions_that_deadlock_on_mariadb_are_repeated_until_both_are_done(mariadb_database: str) -> None:
    database = Database(mariadb_database, data_dir=Path())
    execute(
        database,
        "CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER) ENGINE=InnoDB",
        "INSERT INTO counters VALUES (1, 0), (2, 0)",
    )
    both_hold_one = threading.Barrier(2)
    calls = []

    def add(first: int, second: int) -> None:
        tried = False

        def work(connection: Connection) -> None:
            nonlocal tried
            calls.append(first)
            connection.execute(text(f"UPDATE counters SET n = n + 1 WHERE id = {first}"))
            if not tried:
                tried = True
                both_hold_one.wait(10)
            connection.execute(text(f"UPDATE counters SET n = n + 1 WHERE id = {second}"))

        database.write(work)

    threads = [threading.Thread(target=add, args=order) for order in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(calls) == 3
    assert scalar(database, "SELECT MIN(n) + MAX(n) FROM counters") == 4
    database.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_uses_a_connection_of_its_own(database: Database) -> None:
    execute(database, "CREATE TABLE words (word INTEGER)", "INSERT INTO words VALUES (0)")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(20):
                execute(database, "UPDATE words SET word = word + 1")
            database.close()
            status = 0
        finally:
            os._exit(status)
    for _ in range(20):
        execute(database, "UPDATE words SET word = word + 1")
    assert exit_code(child) == 0
    assert scalar(database, "SELECT word FROM words") == 40


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql+pymysql://u:secret@host/name?parseTime=true", "unknown option, 'parseTime'"),
        ("mysql+pymysql://u:secret@host/name?local_infile=1", "unknown option, 'local_infile'"),
        ("mysql+pymysql://u:secret@host/name?connect_timeout=soon", "a value of the wrong kind"),
        ("sqlite:///a.db?passphrase=secret", "unknown option, 'passphrase'"),
        ("sqlite:///a.db?timeout=secret", "a value of the wrong kind"),
    ],
)
def test_an_option_that_the_driver_does_not_have_is_one_line(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=message) as caught:
        Database(url, data_dir=tmp_path)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
