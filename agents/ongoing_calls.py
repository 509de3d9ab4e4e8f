"""How many calls are going on, so that what they use is not closed under them."""

import threading
from types import TracebackType
from typing import Self

from knowledge_lookup.retrievers.fork_safety import call_after_fork


class OngoingCalls:
    """Counts the threads that are inside a ``with`` block, and waits for them to leave."""

    def __init__(self) -> None:
        self._begin_anew()
        call_after_fork(self._begin_anew)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def wait(self, seconds: float) -> bool:
        """Wait until nobody is inside.

        :param seconds: Most seconds to wait.
        :returns: False when the time was up first.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, seconds)

    def __enter__(self) -> Self:
        with self._changed:
            self._count += 1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._count -= 1
            if not self._count:
                self._changed.notify_all()
