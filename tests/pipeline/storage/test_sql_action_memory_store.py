"""What only the action memory's store in the database promises: it outlives processes, and cleans up after them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection, text

from knowledge_lookup.pipeline.storage import Database, DatabaseUnavailableError, SqlActionMemoryStore
from tests.pipeline.storage.action_memory import TTL, Clock, documents, domains, looked_up, text_of

T = TypeVar("T")


def count(database: Database, table: str = "retrieved_document") -> int:
    query = text(f"SELECT COUNT(*) FROM {table}")
    return int(database.read(lambda connection: connection.execute(query).scalar_one()))


def test_claims_outlive_the_process_that_made_them(database: Database) -> None:
    first = SqlActionMemoryStore(database)
    assert first.claim("s1", "api", "a.md") is True
    first.close()
    second = SqlActionMemoryStore(database)
    assert second.claim("s1", "api", "a.md") is False
    assert domains(second, "s1") == ["api"]


def test_look_ups_outlive_the_process_that_made_them(database: Database) -> None:
    lookup = looked_up(1, text_of("a.md", "Retries", spans=[(3, 9)]))
    assert SqlActionMemoryStore(database).remember("s1", lookup) is True
    later = SqlActionMemoryStore(database)
    assert later.recall("s1").lookups == (lookup,)
    assert later.remember("s1", looked_up(1)) is False
    assert later.claim("s1", "api", "a.md") is False


def test_expired_sessions_of_others_are_deleted_even_by_processes_that_claim_only_once(
    database: Database, clock: Clock
) -> None:
    for number in range(3):
        SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).claim(f"old {number}", "api", "a.md")
    assert count(database) == 3
    clock.now += TTL + 1
    SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).claim("new", "api", "a.md")
    assert count(database) == 1


def test_look_ups_of_expired_sessions_are_deleted_with_their_claims(database: Database, clock: Clock) -> None:
    SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).remember("old", looked_up(1, text_of("a.md")))
    SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).remember("fruitless", looked_up(1))
    clock.now += TTL + 1
    SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).remember("new", looked_up(1))
    assert (count(database), count(database, "session_lookup")) == (0, 1)


def test_the_surplus_of_sessions_goes_whatever_they_consist_of(database: Database, clock: Clock) -> None:
    store = SqlActionMemoryStore(database, ttl_seconds=TTL, max_sessions=2, clock=clock)
    for number in range(6):
        clock.now += 1
        if number % 2:
            store.claim(f"s{number}", "api", "a.md")
        else:
            store.remember(f"s{number}", looked_up(1, text_of("a.md")))
    assert [bool(documents(store, f"s{number}")) for number in range(6)] == [False] * 4 + [True] * 2
    assert (count(database), count(database, "session_lookup")) == (2, 1)


def test_reading_often_does_not_write_often(database: Database, clock: Clock) -> None:
    store = SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock)
    store.claim("s1", "api", "a.md")
    query = text("SELECT retrieved_at FROM retrieved_document")
    seen = set()
    for _ in range(100):
        clock.now += TTL / 100
        documents(store, "s1")
        seen.add(database.read(lambda connection: connection.execute(query).scalar_one()))
    assert 10 <= len(seen) <= 21


def test_a_night_full_of_expired_sessions_is_deleted_bit_by_bit(database: Database, clock: Clock) -> None:
    moment = "2020-01-01 00:00:00"
    statement = text(
        "INSERT INTO retrieved_document (session_id, domain, file_path, section, retrieved_at, claim_key) "
        f"VALUES (:session, 'api', :path, '', '{moment}', :key)"
    )
    old = [
        {"session": f"old {session}", "path": f"{path}.md", "key": f"{session}/{path}"}
        for session in range(450)
        for path in range(3)
    ]
    database.write(lambda connection: connection.execute(statement, old) and None)
    left: list[int] = []
    for _ in range(4):
        # A new process each time, whose first claim cleans up.
        SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).claim(f"new {len(left)}", "api", "a.md")
        left.append(count(database))
    assert left == [751, 152, 3, 4]


def test_a_clean_up_that_fails_does_not_take_the_claim_away(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class WithoutReading(Database):
        """A database that fails when a clean-up looks for old sessions."""

        def read(self, work: Callable[[Connection], T]) -> T:
            if ".clean_up." in work.__qualname__:
                raise DatabaseUnavailableError("database is away")
            return database.read(work)

        def write(self, work: Callable[[Connection], T]) -> T:
            return database.write(work)

    store = SqlActionMemoryStore(WithoutReading(None, data_dir=Path()))
    assert store.claim("s1", "api", "a.md") is True
    assert SqlActionMemoryStore(WithoutReading(None, data_dir=Path())).remember("s1", looked_up(1, text_of("b.md")))
    assert documents(store, "s1") == {"a.md", "b.md"}
    assert [record.getMessage() for record in caplog.records] == [
        "old sessions could not be deleted, will try again later: database is away"
    ] * 2


TAKING_ALL = """
import json, sys
from pathlib import Path
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup
from knowledge_lookup.pipeline.storage import Database, SqlActionMemoryStore

url, name = sys.argv[1:]
store = SqlActionMemoryStore(Database(url, data_dir=Path()))
print("ready", flush=True)
sys.stdin.readline()
claimed, delivered, numbers = [], [], []
for position in range(40):
    if store.claim("s1", "api", f"claimed {position}.md"):
        claimed.append(position)
    while True:
        memory = store.recall("s1")
        path = f"delivered {position}.md"
        texts = () if path in memory.documents else (
            DeliveredText(domain="api", file_path=path, version="v1", way="exact"),
        )
        lookup = RememberedLookup(
            number=memory.next_number, question=name, corpus="c", outcome="delivered" if texts else "withheld",
            delivered=texts,
        )
        if store.remember("s1", lookup):
            break
    numbers.append(lookup.number)
    if texts:
        delivered.append(position)
print(json.dumps({"claimed": claimed, "delivered": delivered, "numbers": numbers}))
"""


@pytest.mark.mariadb
def test_two_processes_give_one_session_each_text_once(mariadb_with_tables: Database, mariadb_database: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TAKING_ALL, mariadb_database, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "other")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    taken = [json.loads(out) for out, _ in ends]
    for way in ("claimed", "delivered"):
        assert sorted(taken[0][way] + taken[1][way]) == list(range(40))
    assert sorted(taken[0]["numbers"] + taken[1]["numbers"]) == list(range(1, 81))
    memory = SqlActionMemoryStore(mariadb_with_tables).recall("s1")
    assert [lookup.number for lookup in memory.lookups] == list(range(1, 81))
    assert len(memory.documents) == 80
