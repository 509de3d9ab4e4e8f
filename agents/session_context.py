"""The session of the code that is running, as a context variable."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol


class ClearsSessions(Protocol):
    """What must be told when a session ends; ``RetrievedDocTracker`` is."""

    def clear_session(self, session_id: str) -> None:
        """Forget the session."""
        ...


@dataclass(eq=False)
class _Session:
    session_id: str
    memories: list[ClearsSessions] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)


_current: ContextVar[_Session | None] = ContextVar("knowledge_lookup_session", default=None)


@contextmanager
def session_context(session_id: str) -> Iterator[str]:
    """Run the look-ups inside the ``with`` block in one session, and clear the session when it ends.

    ::

        with session_context("conversation-42"):
            await agent.run("...")

    The session is inherited by tasks and threads that LlamaIndex starts from inside the block. A look-up whose
    tool is bound to a session of its own, or whose workflow ``Context`` names one, stays in that one.

    :param session_id: The session, not empty.
    :returns: A context manager that yields the session id.
    :raises ValueError: If the session id is empty.
    """
    if not session_id:
        raise ValueError("session_id must not be empty; leave session_context out to look up without a session")
    session = _Session(session_id)
    token = _current.set(session)
    try:
        yield session_id
    finally:
        _current.reset(token)
        with session.lock:
            memories = list(session.memories)
        for memory in memories:
            memory.clear_session(session_id)


def current_session_id(memory: ClearsSessions) -> str | None:
    """Return the session of the code that is running, and have the memory cleared when the session ends.

    :param memory: The memory that the caller is about to use for the session.
    :returns: The session id; None outside :func:`session_context`.
    """
    session = _current.get()
    if session is None:
        return None
    with session.lock:
        if not any(known is memory for known in session.memories):
            session.memories.append(memory)
    return session.session_id
