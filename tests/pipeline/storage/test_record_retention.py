"""Removing old records, on both databases."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage import Database, InvocationRepository, PruneReport, RecordRetention

from .test_invocation_repository import example

LIMIT = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
A_MICROSECOND = timedelta(microseconds=1)


def record(database: Database, *moments: datetime) -> list[ToolInvocation]:
    invocations = [example(created_at=moment) for moment in moments]
    InvocationRepository(database).insert_many(invocations)
    return invocations


def stored_ids(database: Database) -> set[str]:
    query = text("SELECT id FROM tool_invocation")
    return set(database.read(lambda connection: connection.execute(query).scalars().all()))


def test_what_is_older_goes_and_what_is_exactly_as_old_stays(database: Database) -> None:
    _, exact, newer = record(database, LIMIT - A_MICROSECOND, LIMIT, LIMIT + A_MICROSECOND)
    report = RecordRetention(database).prune(LIMIT)
    assert report == PruneReport(LIMIT, removed=1, kept=2, is_rehearsal=False)
    assert stored_ids(database) == {exact.id, newer.id}


def test_a_rehearsal_counts_and_removes_nothing(database: Database) -> None:
    record(database, LIMIT - A_MICROSECOND, LIMIT - timedelta(days=9), LIMIT)
    assert RecordRetention(database).rehearse(LIMIT) == PruneReport(LIMIT, removed=2, kept=1, is_rehearsal=True)
    assert len(stored_ids(database)) == 3


def test_more_records_than_one_transaction_takes_all_go(database: Database) -> None:
    # Many of one moment: where one batch ends, the next must begin.
    record(database, *[LIMIT - timedelta(days=1)] * 700, *[LIMIT - timedelta(hours=1)] * 700, LIMIT)
    assert RecordRetention(database).prune(LIMIT).to_dict() == {
        "before": LIMIT.isoformat(),
        "removed": 1400,
        "kept": 1,
        "dryRun": False,
    }


def test_an_empty_database_has_nothing_to_remove(database: Database) -> None:
    assert RecordRetention(database).prune(LIMIT) == PruneReport(LIMIT, removed=0, kept=0, is_rehearsal=False)


def test_records_are_written_while_others_are_removed(database: Database) -> None:
    record(database, *[LIMIT - timedelta(days=1)] * 1500)
    written: list[str] = []
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            written.extend(invocation.id for invocation in record(database, LIMIT))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        removed = RecordRetention(database).prune(LIMIT).removed
    finally:
        done.set()
        writer.join()
    assert removed == 1500
    assert len(written) > 1
    assert stored_ids(database) == set(written)


def test_what_is_removed_from_a_file_is_overwritten(tmp_path: Path, sqlite_with_tables: Database) -> None:
    InvocationRepository(sqlite_with_tables).insert_many(
        [example(query=f"somebody's secret {n}", created_at=LIMIT) for n in range(50)]
    )
    RecordRetention(sqlite_with_tables).prune(LIMIT + A_MICROSECOND)
    sqlite_with_tables.close()
    left = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
    assert b"CREATE TABLE" in left
    assert b"somebody's secret" not in left


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)])
def test_any_moment_can_be_the_limit(database: Database, moment: datetime) -> None:
    record(database, LIMIT)
    assert RecordRetention(database).prune(moment).removed == (1 if moment > LIMIT else 0)
