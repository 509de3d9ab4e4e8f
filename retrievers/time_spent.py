"""How long a piece of work has waited for something, so that several waits can share one time limit."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHARED: "ContextVar[TimeSpent | None]" = ContextVar("knowledge_lookup_time_spent", default=None)


class TimeSpent:
    """Adds up waits; what is waited for at the same time counts once. May be used from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = 0.0
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far, with the wait that is going on."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._since if self._waiting else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time that the block takes."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._seconds += time.monotonic() - self._since


@contextmanager
def shared_time() -> Iterator[None]:
    """Have all questions to Milvus inside the block, in whatever thread, take no longer together than one may."""
    token = _SHARED.set(TimeSpent())
    try:
        yield
    finally:
        _SHARED.reset(token)


def time_spent() -> TimeSpent:
    """Return the time that the questions of the same block have taken.

    :returns: That of the innermost :func:`shared_time`; a new one outside of any.
    """
    shared = _SHARED.get()
    return TimeSpent() if shared is None else shared
