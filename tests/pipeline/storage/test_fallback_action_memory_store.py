"""Sessions in the database while it is away, and after."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup
from knowledge_lookup.pipeline.storage import (
    Database,
    DatabaseUnavailableError,
    FallbackActionMemoryStore,
    SchemaNotCurrentError,
    SqlActionMemoryStore,
)
from knowledge_lookup.retrievers import circuit_breaker

from .test_invocation_recorder import await_true


class Outage:
    """Stands before a database and refuses, or hangs, as long as it is on."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.hangs = 0.0
        for name in ("read", "write"):
            monkeypatch.setattr(database, name, self._before(getattr(database, name)))

    def begin(self) -> None:
        self.error = DatabaseUnavailableError("database is away; check that the server runs")

    def end(self) -> None:
        self.error = None

    def _before(self, use: Callable[..., object]) -> Callable[..., object]:
        def refuse_or_use(work: Callable[..., object]) -> object:
            time.sleep(self.hangs)
            if self.error is not None:
                raise self.error
            return use(work)

        return refuse_or_use


@pytest.fixture
def outage(database: Database, monkeypatch: pytest.MonkeyPatch) -> Outage:
    monkeypatch.setattr(circuit_breaker, "PAUSE_SECONDS", 0.2)
    return Outage(database, monkeypatch)


@pytest.fixture
def in_database(database: Database) -> SqlActionMemoryStore:
    return SqlActionMemoryStore(database)


@pytest.fixture
def store(in_database: SqlActionMemoryStore) -> Iterator[FallbackActionMemoryStore]:
    store = FallbackActionMemoryStore(in_database, InMemoryActionMemoryStore(), timeout_seconds=0.5)
    yield store
    store.close()


def lookup(number: int, *paths: str, question: str = "q", part: str = "") -> RememberedLookup:
    delivered = tuple(DeliveredText(domain="api", file_path=p, version="v", way="exact", part=part) for p in paths)
    return RememberedLookup(number=number, question=question, corpus="c", outcome="delivered", delivered=delivered)


def test_a_session_goes_on_with_what_this_process_knows(store: FallbackActionMemoryStore, outage: Outage) -> None:
    assert store.remember("s1", lookup(1, "a.md"))
    outage.begin()
    assert store.recall("s1").documents == {"a.md"}
    assert store.remember("s1", lookup(1, "b.md")) is False
    assert store.remember("s1", lookup(2, "b.md")) is True
    assert store.recall("s1").documents == {"a.md", "b.md"}


def test_what_a_session_was_given_meanwhile_is_in_the_database_afterwards_without_another_use(
    store: FallbackActionMemoryStore, in_database: SqlActionMemoryStore, outage: Outage
) -> None:
    store.remember("s1", lookup(1, "a.md"))
    outage.begin()
    store.remember("s1", lookup(2, "b.md"))
    store.claim("s1", "api", "c.md")
    store.remember("s2", lookup(1, "d.md"))
    outage.end()
    await_true(lambda: in_database.recall("s2").documents == {"d.md"})
    await_true(lambda: in_database.recall("s1").documents == {"a.md", "b.md", "c.md"})
    assert [known.number for known in in_database.recall("s1").lookups] == [1, 2]
    assert store.recall("s1").documents == {"a.md", "b.md", "c.md"}


def test_another_process_that_knew_better_keeps_what_it_did_and_nothing_of_ours_is_lost(
    store: FallbackActionMemoryStore, database: Database, outage: Outage, in_database: SqlActionMemoryStore
) -> None:
    outage.begin()
    store.remember("s1", lookup(1, "a.md", "b.md", question="ours"))
    error, outage.error = outage.error, None
    other = SqlActionMemoryStore(database)
    other.remember("s1", lookup(1, "a.md", question="theirs"))
    outage.error = error
    outage.end()
    await_true(lambda: len(in_database.recall("s1").lookups) == 2)
    memory = store.recall("s1")
    assert [known.question for known in memory.lookups] == ["theirs", "ours"]
    assert [known.number for known in memory.lookups] == [1, 2]
    assert memory.documents == {"a.md", "b.md"}
    assert in_database.recall("s1").documents == {"a.md", "b.md"}


def test_a_database_that_hangs_is_given_up_and_what_it_did_after_all_counts_once(
    store: FallbackActionMemoryStore, in_database: SqlActionMemoryStore, outage: Outage
) -> None:
    outage.hangs = 1.0
    started = time.monotonic()
    assert store.remember("s1", lookup(1, "a.md"))
    assert store.recall("s1").documents == {"a.md"}
    assert time.monotonic() - started < 0.9
    outage.hangs = 0.0
    time.sleep(1.0)
    assert [known.number for known in store.recall("s1").lookups] == [1]
    assert [known.number for known in in_database.recall("s1").lookups] == [1]


def test_an_outage_and_its_end_are_said_once(
    store: FallbackActionMemoryStore, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        outage.begin()
        for number in range(1, 5):
            store.remember("s1", lookup(number))
        outage.end()
        await_true(lambda: any("again" in record.message for record in caplog.records))
    assert [record.getMessage() for record in caplog.records if "fallback" in record.name] == [
        "sessions are remembered in this process until the database is back: "
        "database is away; check that the server runs",
        "sessions are remembered in the database again",
    ]


def test_a_session_that_is_cleared_meanwhile_is_cleared(
    store: FallbackActionMemoryStore, in_database: SqlActionMemoryStore, outage: Outage
) -> None:
    store.remember("s1", lookup(1, "a.md"))
    outage.begin()
    store.clear("s1")
    assert store.recall("s1").documents == frozenset()
    store.remember("s1", lookup(1, "b.md"))
    outage.end()
    await_true(lambda: in_database.recall("s1").documents == {"b.md"})


def test_tables_of_another_version_are_no_outage(store: FallbackActionMemoryStore, outage: Outage) -> None:
    outage.error = SchemaNotCurrentError("run `knowledge-lookup migrate`")
    with pytest.raises(SchemaNotCurrentError):
        store.recall("s1")


def test_only_one_of_many_threads_wins_while_the_database_is_away(
    store: FallbackActionMemoryStore, outage: Outage
) -> None:
    outage.begin()
    won: list[bool] = []

    def compete() -> None:
        won.append(store.remember("s1", lookup(1, "a.md")))

    threads = [threading.Thread(target=compete) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1


def test_closing_writes_what_is_owed_and_ends_the_thread(
    in_database: SqlActionMemoryStore, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    for is_back in (True, False):
        store = FallbackActionMemoryStore(in_database, InMemoryActionMemoryStore(), timeout_seconds=0.5)
        outage.begin()
        store.remember(f"closed {is_back}", lookup(1, "a.md"))
        if is_back:
            outage.end()
        store.close()
        assert not any(thread.name == "action-memory-return" for thread in threading.enumerate())
    assert "what 1 sessions were given while the database was away" in caplog.text
    outage.end()
    assert in_database.recall("closed True").documents == {"a.md"}
    assert in_database.recall("closed False").documents == frozenset()
