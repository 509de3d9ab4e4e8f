"""Records while the database is away: kept on disk, and written once when it is back."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage import (
    BackgroundInvocationRecorder,
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    RecordSpool,
    SpoolingInvocationRepository,
    UnstorableValueError,
)
from knowledge_lookup.retrievers import circuit_breaker
from tests.servers.processes import exit_code

from .test_invocation_recorder import await_true, invocation, queries


class Outage:
    """Stands before a database and refuses, or hangs, as long as it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
        self.is_on = False
        self.hangs = 0.0
        work_of = database.write

        def write(work: Callable[..., object]) -> object:
            time.sleep(self.hangs)
            if self.is_on:
                raise DatabaseUnavailableError("database is away; check that the server runs")
            return work_of(work)

        monkeypatch.setattr(database, "write", write)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch, database: Database) -> Outage:
    monkeypatch.setattr(circuit_breaker, "PAUSE_SECONDS", 0.2)
    return Outage(monkeypatch, database)


@pytest.fixture
def spool(tmp_path: Path) -> RecordSpool:
    return RecordSpool(tmp_path / "folder" / "spool.db")


@pytest.fixture
def repository(database: Database, spool: RecordSpool) -> Iterator[SpoolingInvocationRepository]:
    repository = SpoolingInvocationRepository(database, spool)
    yield repository
    repository.close()


def test_as_long_as_the_database_is_there_nothing_is_spooled(
    repository: SpoolingInvocationRepository, database: Database, spool: RecordSpool
) -> None:
    repository.insert_many([invocation("a")])
    assert queries(database) == ["a"]
    assert not spool.path.exists()


def test_what_is_recorded_during_an_outage_is_written_once_when_it_is_over(
    repository: SpoolingInvocationRepository, database: Database, spool: RecordSpool, outage: Outage
) -> None:
    recorder = BackgroundInvocationRecorder(repository)
    outage.is_on = True
    for number in range(1200):
        recorder.record(invocation(f"{number:04}"))
    assert recorder.flush(30)
    assert len(spool) == 1200
    outage.is_on = False
    await_true(lambda: len(queries(database)) == 1200 and not len(spool))
    recorder.record(invocation("after"))
    recorder.close(30)
    assert queries(database) == [*(f"{number:04}" for number in range(1200)), "after"]


def test_records_that_a_process_left_are_written_by_the_next(
    database: Database, spool: RecordSpool, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.is_on = True
    first = SpoolingInvocationRepository(database, spool)
    first.insert_many([invocation("a"), invocation("b")])
    first.close()
    assert f"2 records wait in {spool.path}" in caplog.text
    outage.is_on = False
    second = SpoolingInvocationRepository(database, spool)
    second.insert_many([invocation("c")])
    await_true(lambda: queries(database) == ["a", "b", "c"])
    second.close()
    assert len(spool) == 0


def test_a_record_that_is_there_already_is_not_written_again(
    repository: SpoolingInvocationRepository, database: Database, spool: RecordSpool
) -> None:
    """As after a crash between writing the records and forgetting them."""
    record = invocation("a")
    spool.add([record])
    spool.add([record])
    repository.insert_many([record])
    await_true(lambda: not len(spool))
    assert queries(database) == ["a"]


def test_a_database_that_hangs_costs_two_seconds_and_no_record(
    repository: SpoolingInvocationRepository, database: Database, spool: RecordSpool, outage: Outage
) -> None:
    outage.hangs = 4.0
    started = time.monotonic()
    repository.insert_many([invocation("a")])
    assert time.monotonic() - started < 3.5
    assert len(spool) == 1
    outage.hangs = 0.0
    await_true(lambda: not len(spool))
    assert queries(database) == ["a"]


def test_a_killed_process_leaves_what_it_spooled(tmp_path: Path, database: Database) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from knowledge_lookup.pipeline.storage import Database, RecordSpool, SpoolingInvocationRepository\n"
        "from tests.pipeline.storage.test_invocation_recorder import invocation\n"
        "(Path(sys.argv[1]) / 'file').write_text('in the way')\n"
        "database = Database(None, data_dir=Path(sys.argv[1]) / 'file')\n"
        "repository = SpoolingInvocationRepository(database, RecordSpool(Path(sys.argv[1]) / 'spool.db'))\n"
        "repository.insert_many([invocation(str(number)) for number in range(3)])\n"
        "os._exit(9)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, check=False, timeout=60)
    assert ended.returncode == 9, ended.stderr
    repository = SpoolingInvocationRepository(database, RecordSpool(tmp_path / "spool.db"))
    repository.insert_many([invocation("3")])
    await_true(lambda: queries(database) == ["0", "1", "2", "3"])
    repository.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_empties_the_spool_with_a_thread_of_its_own(
    repository: SpoolingInvocationRepository, database: Database, spool: RecordSpool, outage: Outage
) -> None:
    outage.is_on = True
    repository.insert_many([invocation("parent")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            repository.insert_many([invocation("child")])
            outage.is_on = False
            await_true(lambda: not len(spool))
            status = 0
        finally:
            os._exit(status)
    assert exit_code(child) == 0
    assert queries(database) == ["child", "parent"]


def test_without_database_and_without_disk_the_record_stays_with_the_caller_and_the_error_says_what_to_do(
    database: Database, outage: Outage, tmp_path: Path
) -> None:
    outage.is_on = True
    (tmp_path / "file").write_text("in the way")
    repository = SpoolingInvocationRepository(database, RecordSpool(tmp_path / "file" / "spool.db"))
    with pytest.raises(DatabaseError, match=r"spool\.db can't be used .*make room on the disk and check"):
        repository.insert_many([invocation()])


def test_a_full_disk_keeps_the_records_in_memory_until_there_is_room(
    repository: SpoolingInvocationRepository,
    database: Database,
    outage: Outage,
    spool: RecordSpool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage.is_on = True
    full = [True]
    add = spool.add

    def add_if_there_is_room(invocations: list[ToolInvocation]) -> None:
        if full[0]:
            raise DatabaseError(f"{spool.path} can't be used (database or disk is full): make room on the disk")
        add(invocations)

    monkeypatch.setattr(spool, "add", add_if_there_is_room)
    recorder = BackgroundInvocationRecorder(repository)
    recorder.record(invocation("a"))
    assert recorder.flush(1) is False
    full[0] = False
    assert recorder.flush(30) is True
    assert len(spool) == 1
    outage.is_on = False
    await_true(lambda: queries(database) == ["a"])
    recorder.close()
    assert recorder.dropped == 0


def test_a_damaged_spool_is_set_aside_with_a_word_and_another_one_begun(
    spool: RecordSpool, caplog: pytest.LogCaptureFixture
) -> None:
    spool.path.parent.mkdir()
    spool.path.write_bytes(b"no database" * 1000)
    spool.add([invocation("a")])
    assert len(spool) == 1
    [damaged] = spool.path.parent.glob("spool.db.damaged-*")
    assert damaged.read_bytes() == b"no database" * 1000
    assert f"{spool.path} is damaged and was moved to {damaged}" in caplog.text


def test_a_record_without_json_is_refused_and_the_others_can_be_kept(spool: RecordSpool) -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    with pytest.raises(UnstorableValueError, match="can't be written as JSON"):
        spool.add([invocation("a"), invocation("b", details=endless)])
    assert len(spool) == 0


@settings(max_examples=30)
@given(
    query=st.text(st.characters(codec=None, categories=("L", "N", "P", "S", "Z", "C")), max_size=50),
    details=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5) | st.booleans()),
)
def test_a_record_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, query: str, details: dict[str, object]
) -> None:
    spool = RecordSpool(tmp_path_factory.mktemp("spool") / "spool.db")
    record = invocation(query, details=details)
    spool.add([record])
    assert spool.first(10) == [record]
    spool.remove([record])
    assert spool.first(10) == []


def test_several_processes_may_empty_one_spool(database: Database, spool: RecordSpool) -> None:
    records = [invocation(f"{number:03}") for number in range(300)]
    spool.add(records)
    repositories = [SpoolingInvocationRepository(database, spool) for _ in range(4)]
    for repository in repositories:
        repository.insert_many([])
    await_true(lambda: not len(spool))
    for repository in repositories:
        repository.close()
    assert queries(database) == [f"{number:03}" for number in range(300)]
    with database.engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM tool_invocation")).scalar_one() == 300
