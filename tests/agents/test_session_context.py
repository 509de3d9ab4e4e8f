"""The session as a context variable (REQ-01)."""

import asyncio

import pytest

from knowledge_lookup.agents import RetrievedDocTracker, session_context
from knowledge_lookup.agents.session_context import current_session_id


def test_outside_of_a_session_there_is_none() -> None:
    assert current_session_id(RetrievedDocTracker()) is None


def test_the_end_of_the_session_clears_the_memories_that_used_it() -> None:
    used, unused = RetrievedDocTracker(), RetrievedDocTracker()
    used.mark_retrieved("s1", "api", "a.md")
    unused.mark_retrieved("s1", "api", "a.md")
    with session_context("s1"):
        assert current_session_id(used) == "s1"
        assert used.is_doc_retrieved("s1", "a.md")
    assert not used.is_doc_retrieved("s1", "a.md")
    assert unused.is_doc_retrieved("s1", "a.md")


def test_the_session_is_cleared_when_the_block_fails() -> None:
    memory = RetrievedDocTracker()

    def fail() -> None:
        with session_context("s1"):
            memory.mark_retrieved("s1", "api", "a.md")
            current_session_id(memory)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert memory.get_retrieved_domains("s1") == []


def test_an_inner_session_ends_before_the_outer_one_goes_on() -> None:
    memory = RetrievedDocTracker()
    with session_context("outer"):
        with session_context("inner"):
            assert current_session_id(memory) == "inner"
        assert current_session_id(memory) == "outer"
    assert current_session_id(memory) is None


def test_an_empty_session_id_is_refused() -> None:
    with pytest.raises(ValueError, match="session_id must not be empty"), session_context(""):
        pass


async def test_tasks_and_threads_started_inside_are_in_the_session() -> None:
    memory = RetrievedDocTracker()

    async def ask() -> str | None:
        return current_session_id(memory)

    with session_context("s1"):
        assert await asyncio.gather(ask(), asyncio.create_task(ask())) == ["s1", "s1"]
        assert await asyncio.to_thread(current_session_id, memory) == "s1"


async def test_sessions_in_tasks_at_once_do_not_mix() -> None:
    memory = RetrievedDocTracker()

    async def run(session_id: str) -> str | None:
        with session_context(session_id):
            await asyncio.sleep(0.01)
            return current_session_id(memory)

    names = [f"s{number}" for number in range(8)]
    assert await asyncio.gather(*(run(name) for name in names)) == names
