"""The recorder behind the look-ups: what was recorded gets written, and nobody ever waits for it."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import text

from knowledge_lookup.agents.tool_invocation import InvocationRecorder, ToolInvocation
from knowledge_lookup.pipeline.storage import (
    BackgroundInvocationRecorder,
    Database,
    DatabaseUnavailableError,
    InvocationRepository,
    UnstorableValueError,
)
from tests.servers.processes import exit_code


def invocation(query: str = "ERR_TIMEOUT", *, details: dict[str, object] | None = None) -> ToolInvocation:
    return ToolInvocation(
        request_id="0a1b2c3d",
        session_id="s1",
        tool_name="lookup_knowledge",
        query=query,
        found=True,
        confidence="high",
        latency_ms=3.0,
        relevance_level="PRECISE",
        dedup_reason=None,
        retrieval_details={} if details is None else details,
    )


def queries(database: Database) -> list[str]:
    query = text("SELECT query FROM tool_invocation")
    return sorted(database.read(lambda connection: connection.execute(query).scalars().all()))


class ScriptedRepository(InvocationRepository):
    """Stands before a real repository and does first what the script says for each call."""

    def __init__(self, database: Database, script: Sequence[Callable[[], object]]) -> None:
        super().__init__(database)
        self.script = list(script)
        self.calls = 0

    def insert_many(self, invocations: Sequence[ToolInvocation]) -> None:
        self.calls += 1
        if self.script:
            self.script.pop(0)()
        super().insert_many(invocations)


def unavailable() -> None:
    raise DatabaseUnavailableError("database is away; check that the server runs")


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def writing_threads() -> int:
    return sum(thread.name == "invocation-recorder" for thread in threading.enumerate())


def test_what_was_recorded_is_written_by_the_time_the_recorder_is_closed(database: Database) -> None:
    recorder: InvocationRecorder = (opened := BackgroundInvocationRecorder(InvocationRepository(database)))
    for number in range(1000):
        recorder.record(invocation(f"{number:04}"))
    opened.close(60)
    assert queries(database) == [f"{number:04}" for number in range(1000)]
    assert opened.dropped == 0


def test_flush_waits_for_what_was_recorded_before_it(database: Database) -> None:
    recorder = BackgroundInvocationRecorder(InvocationRepository(database))
    assert recorder.flush(0) is True
    recorder.record(invocation("a"))
    assert recorder.flush(30) is True
    assert queries(database) == ["a"]
    recorder.record(invocation("b"))
    assert recorder.flush(30) is True
    assert queries(database) == ["a", "b"]
    recorder.close()


def test_what_comes_close_together_is_written_together_and_soon_without_anybody_asking(database: Database) -> None:
    repository = ScriptedRepository(database, [])
    recorder = BackgroundInvocationRecorder(repository)
    for number in range(100):
        recorder.record(invocation(f"{number:03}"))
    await_true(lambda: len(queries(database)) == 100)
    assert repository.calls <= 5
    recorder.close()


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise RuntimeError('end')"])
def test_a_program_that_ends_without_closing_leaves_its_records(tmp_path: Path, end: str) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from knowledge_lookup.pipeline.storage import BackgroundInvocationRecorder, Database, InvocationRepository\n"
        "from tests.pipeline.storage.test_invocation_recorder import invocation\n"
        "database = Database(None, data_dir=Path(sys.argv[1]))\n"
        "database.ensure_current()\n"
        "recorder = BackgroundInvocationRecorder(InvocationRepository(database))\n"
        "for number in range(3):\n"
        "    recorder.record(invocation(str(number)))\n"
    )
    subprocess.run(
        [sys.executable, "-c", program + end, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=False,
        timeout=60,
    )
    database = Database(None, data_dir=tmp_path)
    assert queries(database) == ["0", "1", "2"]
    database.close()


def test_invocations_of_many_threads_are_all_written(database: Database) -> None:
    recorder = BackgroundInvocationRecorder(InvocationRepository(database))

    def work(thread: int) -> None:
        for number in range(50):
            recorder.record(invocation(f"{thread}-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close(60)
    assert queries(database) == sorted(f"{thread}-{number}" for thread in range(8) for number in range(50))


def test_no_thread_is_started_before_the_first_record_and_none_is_left_after_closing(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    database.ensure_current()
    recorder = BackgroundInvocationRecorder(InvocationRepository(database))
    assert writing_threads() == 0
    recorder.record(invocation())
    assert writing_threads() == 1
    recorder.close(30)
    await_true(lambda: writing_threads() == 0)
    database.close()


def test_a_failing_database_is_tried_again_until_it_works(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    repository = ScriptedRepository(database, [unavailable, unavailable])
    recorder = BackgroundInvocationRecorder(repository)
    with caplog.at_level(logging.INFO):
        recorder.record(invocation("a"))
        assert recorder.flush(30) is True
    assert queries(database) == ["a"]
    assert repository.calls == 3
    recorder.close()
    assert [record.getMessage() for record in caplog.records if "invocation" in record.name] == [
        "tool invocations can't be written at the moment, will try again: database is away; check that the server runs",
        "tool invocations are written to the database again",
    ]


def test_somebody_who_waits_makes_the_next_attempt_come_at_once(tmp_path: Path) -> None:
    database = Database(None, data_dir=tmp_path)
    database.ensure_current()
    repository = ScriptedRepository(database, [unavailable] * 6)  # the pauses after them add up to 6 seconds
    recorder = BackgroundInvocationRecorder(repository)
    recorder.record(invocation("a"))
    await_true(lambda: repository.calls == 5)
    started = time.monotonic()
    assert recorder.flush(30) is True
    assert time.monotonic() - started < 1.5
    assert queries(database) == ["a"]
    recorder.close()
    database.close()


def test_an_error_that_nobody_expected_does_not_end_the_writing(database: Database) -> None:
    def broken() -> None:
        raise ZeroDivisionError("never thought of")

    recorder = BackgroundInvocationRecorder(ScriptedRepository(database, [broken]))
    recorder.record(invocation("a"))
    assert recorder.flush(30) is True
    assert queries(database) == ["a"]
    recorder.close()


def test_a_database_that_hangs_delays_nobody(tmp_path: Path) -> None:
    release = threading.Event()
    database = Database(None, data_dir=tmp_path)
    database.ensure_current()
    recorder = BackgroundInvocationRecorder(ScriptedRepository(database, [lambda: release.wait(30)]))
    started = time.monotonic()
    for number in range(500):
        recorder.record(invocation(f"{number}"))
    assert recorder.flush(0.05) is False
    assert time.monotonic() - started < 5
    release.set()
    recorder.close(30)
    assert len(queries(database)) == 500
    database.close()


def test_an_unreachable_server_costs_the_records_and_one_error_but_no_exception(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    # A folder in the way of the embedded database: no attempt can ever succeed.
    (tmp_path / "file").write_text("in the way")
    recorder = BackgroundInvocationRecorder(InvocationRepository(Database(None, data_dir=tmp_path / "file")))
    for _ in range(300):
        recorder.record(invocation())
    recorder.close(0.5)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith("300 tool invocations were not written to the database within 0.5 seconds and are lost")
    assert "Not a directory" in errors[0] or "File exists" in errors[0]
    assert recorder.dropped == 300
    await_true(lambda: writing_threads() == 0)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_write_that_ends_after_closing_ends_the_thread_in_peace(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    recorder = BackgroundInvocationRecorder(ScriptedRepository(database, [lambda: release.wait(30)]))
    recorder.record(invocation("a"))
    recorder.close(0.1)
    assert recorder.dropped == 1
    release.set()
    await_true(lambda: writing_threads() == 0)
    assert recorder.dropped == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "1 tool invocations were not written to the database within 0.1 seconds and are lost: it doesn't answer"
    ]


def test_a_full_queue_drops_the_newest_warns_once_and_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    database = Database(None, data_dir=tmp_path)
    database.ensure_current()
    repository = ScriptedRepository(database, [lambda: release.wait(30)])
    recorder = BackgroundInvocationRecorder(repository, max_pending=10)
    for number in range(15):
        recorder.record(invocation(f"{number:02}"))
    release.set()
    recorder.close(30)
    assert queries(database) == [f"{number:02}" for number in range(10)]
    assert recorder.dropped == 5
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "a tool invocation is not recorded, and neither are those after it: "
        "10 invocations wait for the database already"
    ]
    database.close()


def test_an_invocation_that_can_never_be_stored_does_not_hold_up_the_others(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    recorder = BackgroundInvocationRecorder(
        ScriptedRepository(database, [lambda: time.sleep(0.2)])  # so that the others come as one batch
    )
    recorder.record(invocation("first"))
    for number in range(5):
        recorder.record(invocation(f"a{number}"))
    recorder.record(invocation("broken", details=endless))
    recorder.record(invocation("last"))
    recorder.close(30)
    assert queries(database) == ["a0", "a1", "a2", "a3", "a4", "first", "last"]
    assert recorder.dropped == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith("a tool invocation can't be stored and is lost: invocation ")


def test_a_batch_that_fails_in_the_middle_of_being_written_one_by_one_loses_nothing(database: Database) -> None:
    def refused() -> None:
        raise UnstorableValueError("something in the batch")

    recorder = BackgroundInvocationRecorder(
        ScriptedRepository(database, [lambda: time.sleep(0.2), refused, lambda: None, unavailable])
    )
    recorder.record(invocation("first"))
    for number in range(4):
        recorder.record(invocation(f"a{number}"))
    recorder.close(30)
    assert queries(database) == ["a0", "a1", "a2", "a3", "first"]
    assert recorder.dropped == 0


def test_a_closed_recorder_takes_nothing_more_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(None, data_dir=tmp_path)
    database.ensure_current()
    recorder = BackgroundInvocationRecorder(InvocationRepository(database))
    recorder.close()
    recorder.close()
    recorder.record(invocation())
    recorder.record(invocation())
    assert recorder.dropped == 2
    assert [record.getMessage() for record in caplog.records] == [
        "a tool invocation is not recorded, and neither are those after it: the recorder is closed"
    ]
    assert queries(database) == []
    database.close()


def test_a_queue_without_room_is_refused(tmp_path: Path) -> None:
    repository = InvocationRepository(Database(None, data_dir=tmp_path))
    with pytest.raises(ValueError, match="max_pending is 0; it must be at least 1"):
        BackgroundInvocationRecorder(repository, max_pending=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_records_with_a_thread_of_its_own_and_nothing_twice(database: Database) -> None:
    release = threading.Event()
    repository = ScriptedRepository(database, [lambda: release.wait(30)])
    recorder = BackgroundInvocationRecorder(repository)
    recorder.record(invocation("parent before"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            repository.script.clear()
            recorder.record(invocation("child"))
            recorder.close(30)
            status = 0 if recorder.dropped == 0 else 2
        finally:
            os._exit(status)
    assert exit_code(child) == 0
    assert queries(database) == ["child"]
    release.set()
    recorder.record(invocation("parent after"))
    recorder.close(30)
    assert queries(database) == ["child", "parent after", "parent before"]
