"""One contract for every store of the action memory, in memory, in SQLite, in MariaDB: claims and expiry."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.pipeline.storage import Database, SqlActionMemoryStore
from tests.pipeline.storage.action_memory import TTL, Clock, StoreFactory, documents, domains, looked_up, text_of


def test_a_claimed_document_and_its_domain_are_remembered(store: ActionMemoryStore) -> None:
    assert documents(store, "s1") == frozenset()
    assert domains(store, "s1") == []
    assert store.claim("s1", "infrastructure", "a.md") is True
    assert documents(store, "s1") == {"a.md"}
    assert domains(store, "s1") == ["infrastructure"]
    assert store.claim("s1", "api", "b.md") is True
    assert documents(store, "s1") == {"a.md", "b.md"}
    assert domains(store, "s1") == ["infrastructure", "api"]


def test_a_claim_is_won_once_whatever_the_domain(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s1", "api", "a.md") is False
    assert store.claim("s1", "other", "a.md") is False
    assert domains(store, "s1") == ["api"]


def test_sections_of_a_document_are_claimed_by_look_ups_and_count_as_the_document(store: ActionMemoryStore) -> None:
    assert store.remember("s1", looked_up(1, text_of("a.md", "Retries", way="section"))) is True
    assert documents(store, "s1") == {"a.md"}
    assert domains(store, "s1") == ["api"]
    assert store.remember("s1", looked_up(2, text_of("a.md", "Time-outs", way="section"))) is True
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s1", "api", "a.md") is False
    assert documents(store, "s1") == {"a.md"}
    store.clear("s1")
    assert store.remember("s1", looked_up(1, text_of("a.md", "Retries", way="section"))) is True


def test_domains_are_in_order_of_first_retrieval_each_once(store: ActionMemoryStore) -> None:
    for number, domain in enumerate(["z", "支付", "a", "z", "m", "a", "支付", "b"]):
        store.claim("s1", domain, f"{number}.md")
    assert domains(store, "s1") == ["z", "支付", "a", "m", "b"]


def test_sessions_do_not_see_each_other(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s2", "infra", "a.md") is True
    assert store.claim("s2", "infra", "b.md") is True
    store.clear("s2")
    assert documents(store, "s1") == {"a.md"}
    assert domains(store, "s1") == ["api"]
    assert documents(store, "s2") == frozenset()
    assert domains(store, "s2") == []


def test_a_cleared_session_begins_anew(store: ActionMemoryStore) -> None:
    store.claim("s1", "api", "a.md")
    store.claim("s1", "infra", "b.md")
    store.clear("s1")
    assert documents(store, "s1") == frozenset()
    assert domains(store, "s1") == []
    assert store.claim("s1", "infra", "b.md") is True
    assert domains(store, "s1") == ["infra"]
    store.clear("never seen")


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
        assert domains(store, session) == [f"domain {number}"]
        assert store.claim(session, "again", "a.md") is False
    store.clear(sessions[0])
    assert store.claim(sessions[0], "again", "a.md") is True
    assert domains(store, sessions[1]) == ["domain 1"]


def test_paths_are_told_apart_exactly(store: ActionMemoryStore) -> None:
    paths = [
        "a.md",
        "A.md",
        "a.md ",
        " a.md",
        "á.md",
        "a.mdb",
        "a",
        "p" * 1024,
        "p" * 1025,
        "p" * 2000,
        "\udcff.md",
        "",
    ]
    for path in paths:
        assert store.claim("s1", "api", path) is True
    for path in paths:
        assert store.claim("s1", "api", path) is False
    assert {"a.md", "A.md", " a.md", "á.md", "a.mdb", "a", "p" * 1024, ""} <= documents(store, "s1")
    assert len(documents(store, "s1")) == len(paths)


def test_session_path_and_section_cannot_be_shifted_into_each_other(store: ActionMemoryStore) -> None:
    assert store.claim("s1", "api", "a.md") is True
    assert store.claim("s", "api", "1a.md") is True
    assert store.claim("s1a.md", "api", "") is True
    assert store.claim("2:s14:a.md", "api", "") is True
    assert store.remember("s1", looked_up(1, text_of("a.md", "b", way="section"))) is True
    assert store.claim("s1", "api", "a.mdb #1") is True
    assert store.claim("s1", "api", "a.md4:b #1") is True
    assert store.remember("s1", looked_up(2, text_of("a", ".mdb", way="section"))) is True


def test_a_session_that_was_not_used_for_its_time_to_live_has_expired(store: ActionMemoryStore, clock: Clock) -> None:
    store.claim("s1", "api", "a.md")
    clock.now += TTL
    assert documents(store, "s1") == {"a.md"}
    clock.now += TTL + 0.001
    assert documents(store, "s1") == frozenset()
    assert domains(store, "s1") == []


def test_an_expired_claim_neither_blocks_a_new_one_nor_comes_back_with_it(
    store: ActionMemoryStore, clock: Clock
) -> None:
    store.claim("s1", "api", "a.md")
    store.claim("s1", "infra", "b.md")
    clock.now += TTL + 1
    assert store.claim("s1", "api", "a.md") is True
    assert documents(store, "s1") == {"a.md"}
    assert domains(store, "s1") == ["api"]
    assert store.claim("s1", "infra", "b.md") is True


USES: dict[str, Callable[[ActionMemoryStore], object]] = {
    "a read": lambda store: store.recall("s1"),
    "a claim that is won": lambda store: store.claim("s1", "infra", "b.md"),
    "a claim that is lost": lambda store: store.claim("s1", "api", "a.md"),
    "a look-up that delivers": lambda store: store.remember("s1", looked_up(1, text_of("b.md"))),
    "a look-up that finds nothing": lambda store: store.remember("s1", looked_up(1)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_every_use_prolongs_the_session(
    store: ActionMemoryStore, clock: Clock, use: Callable[[ActionMemoryStore], object]
) -> None:
    store.claim("s1", "api", "a.md")
    clock.now += TTL * 0.9
    use(store)
    clock.now += TTL * 0.9
    assert "a.md" in documents(store, "s1")
    assert store.claim("s1", "api", "a.md") is False
    clock.now += TTL + 1
    assert documents(store, "s1") == frozenset()


def test_a_session_in_steady_use_never_expires(store: ActionMemoryStore, clock: Clock) -> None:
    store.claim("s1", "api", "a.md")
    for _ in range(200):
        clock.now += TTL / 40
        assert documents(store, "s1") == {"a.md"}


def test_the_least_recently_used_sessions_go_when_there_are_too_many(make_store: StoreFactory, clock: Clock) -> None:
    store = make_store(max_sessions=3)
    for session in ("s1", "s2", "s3"):
        clock.now += 10
        store.claim(session, "api", "a.md")
        store.claim(session, "api", "b.md")
    clock.now += 10
    assert documents(store, "s1") == {"a.md", "b.md"}
    clock.now += 10
    store.claim("s4", "api", "a.md")
    # s2 is now the one that was not used for longest.
    present = [session for session in ("s1", "s2", "s3", "s4") if documents(store, session)]
    assert present == ["s1", "s3", "s4"]
    clock.now += 10
    for session in ("s5", "s6", "s7"):
        clock.now += 1
        store.claim(session, "api", "a.md")
    assert [session for session in ("s1", "s2", "s3", "s4") if documents(store, session)] == []
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
    assert documents(stores[0], "s1") == {"a.md"}
    assert domains(stores[0], "s1") == ["api"]


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
    assert documents(stores[0], "s1") == {"a.md"}
    assert domains(stores[0], "s1") == ["new"]


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
            elif action in {1, 2}:
                number = store.recall(session).next_number
                store.remember(session, looked_up(number, *([text_of(path)] if action == 1 else [])))
            elif action == 3:
                clock.now += 30
            else:
                store.claim(session, "api", path)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    store = make_store()
    clock.now += 2 * TTL
    assert all(store.claim(f"s{number}", "api", "0.md") for number in range(8))
