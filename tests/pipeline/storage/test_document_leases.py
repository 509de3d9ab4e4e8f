"""Leases on documents, on both databases."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from knowledge_lookup.pipeline.storage import Database, DocumentLeases
from knowledge_lookup.pipeline.storage.lease_holder import LENGTH, is_dead, new_holder


@pytest.fixture
def leases(database: Database) -> DocumentLeases:
    return DocumentLeases(database)


def test_a_lease_is_held_by_one_and_free_again_afterwards(leases: DocumentLeases) -> None:
    with leases.try_hold("a.md") as first:
        assert first is True
        assert leases.is_held("a.md")
        with leases.try_hold("a.md") as second:
            assert second is False
        with leases.try_hold("b.md") as other:
            assert other is True
    assert not leases.is_held("a.md")
    assert not leases.was_abandoned("a.md")
    with leases.try_hold("a.md") as again:
        assert again is True


def test_a_lease_is_given_back_when_the_work_fails(leases: DocumentLeases) -> None:
    def fail() -> None:
        with leases.hold("a.md"):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert not leases.is_held("a.md")


def test_who_waits_gets_the_lease_when_it_is_given_back(leases: DocumentLeases) -> None:
    got = threading.Event()

    def wait() -> None:
        with leases.hold("a.md"):
            got.set()

    with leases.hold("a.md"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not got.wait(0.3)
    assert got.wait(5)
    waiter.join()


def test_of_many_at_once_one_at_a_time_works(leases: DocumentLeases) -> None:
    inside = 0
    most = 0

    def work(_: int) -> None:
        nonlocal inside, most
        with leases.hold("a.md"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.005)
            inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(16)))
    assert most == 1


def test_a_heartbeat_keeps_a_lease_beyond_its_time(database: Database) -> None:
    leases = DocumentLeases(database, ttl_seconds=0.4)
    with leases.hold("a.md"):
        time.sleep(1.2)
        assert leases.is_held("a.md")
        with leases.try_hold("a.md") as second:
            assert second is False


def test_a_lease_whose_holder_died_on_this_machine_is_free_at_once(database: Database, leases: DocumentLeases) -> None:
    pid = os.fork()
    if pid == 0:
        with leases.hold("a.md"):
            os._exit(0)
    os.waitpid(pid, 0)
    assert leases.was_abandoned("a.md")
    with leases.try_hold("a.md") as mine:
        assert mine is True


def test_a_holder_is_dead_only_when_its_process_is_known_to_be_gone() -> None:
    program = "from knowledge_lookup.pipeline.storage.lease_holder import new_holder; print(new_holder())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    gone = done.stdout.strip()
    assert len(gone) == LENGTH
    assert is_dead(gone)
    assert not is_dead(new_holder())
    assert not is_dead("00000000" + gone[8:])
    assert not is_dead("ffffffff" + gone[8:])


def test_of_many_leases_those_that_are_free_are_taken_and_given_back_together(
    database: Database, leases: DocumentLeases
) -> None:
    paths = [f"d{number}.md" for number in range(150)]
    pid = os.fork()
    if pid == 0:
        with leases.hold("d7.md"):
            os._exit(0)
    os.waitpid(pid, 0)
    with leases.hold("d5.md"), leases.try_hold_all(paths) as mine:
        assert mine == set(paths) - {"d5.md"}
        assert all(leases.is_held(path) for path in ("d0.md", "d7.md", "d149.md"))
        with DocumentLeases(database).try_hold_all(paths) as others:
            assert others == frozenset()
    assert not any(leases.is_held(path) or leases.was_abandoned(path) for path in paths)


def test_a_heartbeat_keeps_all_leases_of_many(database: Database) -> None:
    leases = DocumentLeases(database, ttl_seconds=0.4)
    with leases.try_hold_all(["a.md", "b.md"]):
        time.sleep(1.0)
        assert leases.is_held("a.md")
        assert leases.is_held("b.md")


def test_many_that_want_the_same_leases_at_once_share_them_out(leases: DocumentLeases) -> None:
    paths = [f"d{number}.md" for number in range(40)]
    ready = threading.Barrier(4)
    done = threading.Barrier(4)

    def take(order: int) -> frozenset[str]:
        ready.wait(20)
        with leases.try_hold_all(paths[order:] + paths[:order]) as mine:
            done.wait(20)
            return mine

    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(take, range(0, 40, 10)))
    assert sorted(path for share in shares for path in share) == sorted(paths)
