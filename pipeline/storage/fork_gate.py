"""Keeps transactions and forks apart."""

import threading
from types import TracebackType
from typing import Self

_MOST_SECONDS = 5.0
"""A fork waits no longer for the transactions that are going on."""


class ForkGate:
    """Lets any number of threads in, and none while the process forks.

    SQLite keeps in memory which locks a process has on a file. A child that is forked in the middle of a transaction
    would believe for ever that another thread of its own holds the lock for writing. ::

        with gate:
            ...  # a transaction

    Who is inside may enter again.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Open the gate in a forked child, in which nobody is inside."""
        self._changed = threading.Condition()
        self._own = threading.local()
        self._inside = 0
        self._closed = False

    def close(self) -> None:
        """Let nobody in any more, and wait some seconds for those who are inside."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._inside == 0, _MOST_SECONDS)

    def open(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()

    def __enter__(self) -> Self:
        depth = getattr(self._own, "depth", 0)
        self._own.depth = depth + 1
        if depth == 0:
            with self._changed:
                if self._closed:
                    self._changed.wait_for(lambda: not self._closed)
                self._inside += 1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._own.depth -= 1
        if self._own.depth == 0:
            with self._changed:
                self._inside -= 1
                if self._closed:
                    self._changed.notify_all()
