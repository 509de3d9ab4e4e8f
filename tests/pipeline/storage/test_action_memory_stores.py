"""One contract for every store of the action memory: in memory, in SQLite, in MariaDB."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.pipeline.storage import Database, DatabaseUnavailableError, SqlActionMemoryStore

T = TypeVar("T")
TTL = 100.0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class StoreFactory(Protocol):
    def __call__(self, *, ttl_seconds: float = TTL, max_sessions: int = 1000) -> ActionMemoryStore: ...


@pytest.fixture
def clock() -> Clock:
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
    opened = make_store()
    yield opened
    opened.close()


def test_a_claimed_document_and_its_domain_are_remembered(store: ActionMemoryStore) -> None:
    assert store.documents("s1") == frozenset()
    assert store.domains("s1") == []
    assert store.claim("s1", "infrastructure", "a.md") is True
    assert store.documents("s1") == {"a.md"}
    assert store.domains("s1") == ["infrastructure"]
    assert store.claim("s1", "api", "b.md") is True
    assert store.documents("s1") == {"a.md", "b.md"}
    assert store.domains("s1") == ["infrastructure", "api"]


def test_a_claim_is_won_once_whatever_the_domain(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s1", "api", "a.md") is False
    assert store.claim("s1", "other", "a.md") is False
    assert store.domains("s1") == ["api"]


def test_sections_of_a_document_are_claimed_by_themselves_and_count_as_the_document(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md", "Retries") is True
    assert store.claim("s1", "api", "a.md", "Retries") is False
    assert store.claim("s1", "api", "a.md", "Time-outs") is True
    assert store.claim("s1", "api", "a.md") is True
    assert store.documents("s1") == {"a.md"}
    store.release("s1", "a.md", "Retries")
    assert store.documents("s1") == {"a.md"}
    assert store.claim("s1", "api", "a.md", "Retries") is True


def test_domains_are_in_order_of_first_retrieval_each_once(store: ActionMemoryStore) -> None:
    for number, domain in enumerate(["z", "支付", "a", "z", "m", "a", "支付", "b"]):
        store.claim("s1", domain, f"{number}.md")
    assert store.domains("s1") == ["z", "支付", "a", "m", "b"]


def test_sessions_do_not_see_each_other(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s2", "infra", "a.md") is True
    assert store.claim("s2", "infra", "b.md") is True
    store.clear("s2")
    assert store.documents("s1") == {"a.md"}
    assert store.domains("s1") == ["api"]
    assert store.documents("s2") == frozenset()
    assert store.domains("s2") == []


def test_a_cleared_session_begins_anew(store: ActionMemoryStore) -> None:
    store.claim("s1", "api", "a.md")
    store.claim("s1", "infra", "b.md")
    store.clear("s1")
    assert store.documents("s1") == frozenset()
    assert store.domains("s1") == []
    assert store.claim("s1", "infra", "b.md") is True
    assert store.domains("s1") == ["infra"]
    store.clear("never seen")


def test_a_released_claim_can_be_won_again_and_its_domain_is_gone(store: ActionMemoryStore) -> None:
    store.claim("s1", "api", "a.md")
    store.claim("s1", "infra", "b.md")
    store.release("s1", "a.md")
    store.release("s1", "a.md")
    store.release("s1", "never.md")
    store.release("never seen", "a.md")
    assert store.documents("s1") == {"b.md"}
    assert store.domains("s1") == ["infra"]
    assert store.claim("s1", "api", "a.md") is True
    assert store.domains("s1") == ["infra", "api"]
    store.release("s1", "a.md")
    store.release("s1", "b.md")
    assert store.documents("s1") == frozenset()
    assert store.claim("s1", "infra", "b.md") is True


@pytest.mark.parametrize(
    "sessions",
    [
        ["s1", "S1", "s1 ", " s1", "ｓ1", "ß", "ss", "é", "e"],
        ["", " ", "\0", "\n"],
        ["x" * 255, "x" * 256, "x" * 10_000, "x" * 9_999 + "y"],
        ["\ud800", "\udfff", "\ufffd", "a\0b", "a\ufffdb", "🙂"],
        ["'; DROP TABLE retrieved_document; --", "%", "_", '"', "\\"],
    ],
    ids=["alike", "empty", "long", "broken", "hostile"],
)
def test_any_text_is_a_session_id_of_its_own(store: ActionMemoryStore, sessions: list[str]) -> None:
    for number, session in enumerate(sessions):
        assert store.claim(session, f"domain {number}", "a.md") is True
    for number, session in enumerate(sessions):
        assert store.domains(session) == [f"domain {number}"]
        assert store.claim(session, "again", "a.md") is False
    store.clear(sessions[0])
    assert store.claim(sessions[0], "again", "a.md") is True
    assert store.domains(sessions[1]) == ["domain 1"]


def test_paths_and_sections_are_told_apart_exactly(store: ActionMemoryStore) -> None:
    claims = [("a.md", ""), ("A.md", ""), ("a.md ", ""), ("á.md", ""), ("a.md", "b"), ("a.mdb", ""), ("a", ".mdb")]
    claims += [("a.md", "x" * 600), ("a.md", "x" * 601), ("p" * 2000, ""), ("p" * 2001, ""), ("\udcff.md", "")]
    for path, section in claims:
        assert store.claim("s1", "api", path, section) is True
    for path, section in claims:
        assert store.claim("s1", "api", path, section) is False
    assert {"a.md", "A.md", "á.md", "a.mdb", "a"} <= store.documents("s1")
    assert len(store.documents("s1")) == 9


def test_the_session_and_the_path_cannot_be_shifted_into_each_other(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md", "b") is True
    assert store.claim("s", "api", "1a.md", "b") is True
    assert store.claim("s1", "api", "a.mdb") is True
    assert store.claim("s1a.md", "api", "", "b") is True
    assert store.claim("2:s14:a.md", "api", "1:b") is True


def test_a_session_that_was_not_used_for_its_time_to_live_has_expired(store: ActionMemoryStore, clock: Clock) -> None:
    store.claim("s1", "api", "a.md")
    clock.now += TTL
    assert store.documents("s1") == {"a.md"}
    clock.now += TTL + 0.001
    assert store.documents("s1") == frozenset()
    assert store.domains("s1") == []


def test_an_expired_claim_neither_blocks_a_new_one_nor_comes_back_with_it(
    store: ActionMemoryStore, clock: Clock
) -> None:
    store.claim("s1", "api", "a.md")
    store.claim("s1", "infra", "b.md")
    clock.now += TTL + 1
    assert store.claim("s1", "api", "a.md") is True
    assert store.documents("s1") == {"a.md"}
    assert store.domains("s1") == ["api"]
    assert store.claim("s1", "infra", "b.md") is True


def claim_and_release(store: ActionMemoryStore) -> None:
    store.claim("s1", "x", "c.md")
    store.release("s1", "c.md")


USES: dict[str, Callable[[ActionMemoryStore], object]] = {
    "a read of the documents": lambda store: store.documents("s1"),
    "a read of the domains": lambda store: store.domains("s1"),
    "a claim that is won": lambda store: store.claim("s1", "infra", "b.md"),
    "a claim that is lost": lambda store: store.claim("s1", "api", "a.md"),
    "a release": claim_and_release,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_every_use_prolongs_the_session(
    store: ActionMemoryStore, clock: Clock, use: Callable[[ActionMemoryStore], object]
) -> None:
    store.claim("s1", "api", "a.md")
    clock.now += TTL * 0.9
    use(store)
    clock.now += TTL * 0.9
    assert "a.md" in store.documents("s1")
    assert store.claim("s1", "api", "a.md") is False
    clock.now += TTL + 1
    assert store.documents("s1") == frozenset()


def test_a_session_in_steady_use_never_expires(store: ActionMemoryStore, clock: Clock) -> None:
    store.claim("s1", "api", "a.md")
    for _ in range(200):
        clock.now += TTL / 40
        assert store.documents("s1") == {"a.md"}


def test_the_least_recently_used_sessions_go_when_there_are_too_many(make_store: StoreFactory, clock: Clock) -> None:
    store = make_store(max_sessions=3)
    for session in ("s1", "s2", "s3"):
        clock.now += 10
        store.claim(session, "api", "a.md")
        store.claim(session, "api", "b.md")
    clock.now += 10
    assert store.documents("s1") == {"a.md", "b.md"}
    clock.now += 10
    store.claim("s4", "api", "a.md")
    # s2 is now the one that was not used for longest.
    present = [session for session in ("s1", "s2", "s3", "s4") if store.documents(session)]
    assert present == ["s1", "s3", "s4"]
    clock.now += 10
    for session in ("s5", "s6", "s7"):
        clock.now += 1
        store.claim(session, "api", "a.md")
    assert [session for session in ("s1", "s2", "s3", "s4") if store.documents(session)] == []
    assert store.claim("s2", "api", "a.md") is True


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"ttl_seconds": 0}, "ttl_seconds is 0; it must be above 0"),
        ({"ttl_seconds": float("nan")}, "ttl_seconds is nan; it must be above 0"),
        ({"max_sessions": 0}, "max_sessions is 0; it must be at least 1"),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        InMemoryActionMemoryStore(**limits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{message}$"):
        SqlActionMemoryStore(Database(None, data_dir=tmp_path), **limits)  # type: ignore[arg-type]


def test_exactly_one_of_32_threads_gets_a_document(make_store: StoreFactory) -> None:
    stores = [make_store() for _ in range(4)]
    start = threading.Barrier(32)

    def claim(number: int) -> bool:
        start.wait(30)
        return stores[number % 4].claim("s1", "api", "a.md")

    with ThreadPoolExecutor(32) as threads:
        won = list(threads.map(claim, range(32)))
    assert sorted(won) == [False] * 31 + [True]
    assert stores[0].documents("s1") == {"a.md"}
    assert stores[0].domains("s1") == ["api"]


def test_exactly_one_of_32_threads_gets_a_document_of_an_expired_session(
    make_store: StoreFactory, clock: Clock
) -> None:
    stores = [make_store() for _ in range(4)]
    for path in ("a.md", "b.md"):
        stores[0].claim("s1", "old", path)
    clock.now += TTL + 1
    start = threading.Barrier(32)

    def claim(number: int) -> bool:
        start.wait(30)
        return stores[number % 4].claim("s1", "new", "a.md")

    with ThreadPoolExecutor(32) as threads:
        won = list(threads.map(claim, range(32)))
    assert sorted(won) == [False] * 31 + [True]
    assert stores[0].documents("s1") == {"a.md"}
    assert stores[0].domains("s1") == ["new"]


def test_claims_in_opposite_order_by_many_threads_all_end_and_each_is_won_once(make_store: StoreFactory) -> None:
    paths = [f"{number}.md" for number in range(12)]
    start = threading.Barrier(8)

    def claim(number: int) -> list[str]:
        store = make_store()
        start.wait(30)
        ordered = paths if number % 2 else paths[::-1]
        return [path for path in ordered if store.claim("s1", "api", path)]

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(claim, range(8)))
    assert sorted(path for some in won for path in some) == sorted(paths)


def test_sessions_that_are_used_cleared_and_expired_at_once_do_not_fail(make_store: StoreFactory, clock: Clock) -> None:
    start = threading.Barrier(8)

    def work(number: int) -> None:
        store = make_store(max_sessions=5)
        choices = random.Random(number)
        start.wait(30)
        for _ in range(15):
            session = f"s{choices.randrange(8)}"
            path = f"{choices.randrange(4)}.md"
            action = choices.randrange(8)
            if action == 0:
                store.clear(session)
            elif action == 1:
                store.release(session, path)
            elif action == 2:
                store.documents(session)
            elif action == 3:
                clock.now += 30
            else:
                store.claim(session, "api", path)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    store = make_store()
    clock.now += 2 * TTL
    assert all(store.claim(f"s{number}", "api", "0.md") for number in range(8))


class Model:
    """The contract in the plainest words."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.claims: dict[str, dict[tuple[str, str], str]] = {}
        self.last_use: dict[str, float] = {}

    def use(self, session: str) -> dict[tuple[str, str], str]:
        claims = self.claims.setdefault(session, {})
        if self.last_use.get(session, self.clock.now) < self.clock.now - TTL:
            claims.clear()
        self.last_use[session] = self.clock.now
        return claims

    def claim(self, session: str, domain: str, path: str, section: str) -> bool:
        claims = self.use(session)
        if (path, section) in claims:
            return False
        claims[(path, section)] = domain
        return True

    def release(self, session: str, path: str, section: str) -> None:
        self.use(session).pop((path, section), None)


session_ids = st.sampled_from(["s1", "s1 ", "\ud800"])
paths = st.sampled_from(["a.md", "b.md", "b"])
sections = st.sampled_from(["", "", "Retries"])
steps = st.one_of(
    st.tuples(st.just("claim"), session_ids, st.sampled_from(["api", "infra", "支付"]), paths, sections),
    st.tuples(st.just("claim"), session_ids, st.sampled_from(["api", "infra", "支付"]), paths, sections),
    st.tuples(st.just("release"), session_ids, paths, sections),
    st.tuples(st.just("read"), session_ids),
    st.tuples(st.just("clear"), session_ids),
    # A read less than a twentieth of the time to live after the last use may count or not, so there is none.
    st.tuples(st.just("wait"), st.sampled_from([0.0, 6.0, 60.0, TTL, TTL + 1])),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, max_size=25))
def test_a_store_behaves_like_a_plain_dictionary(
    make_store: StoreFactory, clock: Clock, history: list[tuple[str, ...]]
) -> None:
    clock.now += 10 * TTL  # what the example before this one left behind has expired
    store, model = make_store(), Model(clock)
    for step, *arguments in history:
        if step == "claim":
            assert store.claim(*arguments) is model.claim(*arguments)
        elif step == "release":
            store.release(*arguments)
            model.release(*arguments)
        elif step == "read":
            [session] = arguments
            expected = model.use(session)
            assert store.domains(session) == list(dict.fromkeys(expected.values()))
            assert store.documents(session) == {path for path, _ in expected}
        elif step == "clear":
            store.clear(*arguments)
            model.claims.pop(arguments[0], None)
        else:
            clock.now += float(arguments[0])


# What only the store in the database promises.


def count(database: Database) -> int:
    query = text("SELECT COUNT(*) FROM retrieved_document")
    return int(database.read(lambda connection: connection.execute(query).scalar_one()))


def test_claims_outlive_the_process_that_made_them(database: Database) -> None:
    first = SqlActionMemoryStore(database)
    assert first.claim("s1", "api", "a.md") is True
    first.close()
    second = SqlActionMemoryStore(database)
    assert second.claim("s1", "api", "a.md") is False
    assert second.domains("s1") == ["api"]


def test_expired_sessions_of_others_are_deleted_even_by_processes_that_claim_only_once(
    database: Database, clock: Clock
) -> None:
    for number in range(3):
        SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).claim(f"old {number}", "api", "a.md")
    assert count(database) == 3
    clock.now += TTL + 1
    SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock).claim("new", "api", "a.md")
    assert count(database) == 1


def test_reading_often_does_not_write_often(database: Database, clock: Clock) -> None:
    store = SqlActionMemoryStore(database, ttl_seconds=TTL, clock=clock)
    store.claim("s1", "api", "a.md")
    query = text("SELECT retrieved_at FROM retrieved_document")
    seen = set()
    for _ in range(100):
        clock.now += TTL / 100
        store.documents("s1")
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
            if work.__qualname__.startswith("SqlActionMemoryStore._clean_up"):
                raise DatabaseUnavailableError("database is away")
            return database.read(work)

        def write(self, work: Callable[[Connection], T]) -> T:
            return database.write(work)

    store = SqlActionMemoryStore(WithoutReading(None, data_dir=Path()))
    assert store.claim("s1", "api", "a.md") is True
    assert store.documents("s1") == {"a.md"}
    assert [record.getMessage() for record in caplog.records] == [
        "old sessions could not be deleted, will try again later: database is away"
    ]
