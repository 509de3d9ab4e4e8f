"""Spares callers the wait for something that is known not to answer.

The libraries at hand hold a lock while the protected call runs, which would have all searches wait for one another.
"""

import threading
import time
from collections.abc import Callable

from knowledge_lookup.retrievers.fork_safety import hold_during_fork

PAUSE_SECONDS = 5.0
"""So long nobody asks; then one caller tries."""
TIMEOUTS_IN_A_ROW = 3
"""A single answer that comes too late may be the question's fault; so many are not."""


class CircuitBreaker:
    """Tells whether it is worth asking, from how the last questions went.

    Closed at first: everybody asks. It opens with a failure that leaves no doubt, or with three time-outs in a row.
    While it is open nobody asks, but for one caller every five seconds; an answer closes it. May be used from many
    threads.

    :param clock: Gives the time in seconds; must not go backwards.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        hold_during_fork(self._lock)
        self._timeouts = 0
        self._reason: str | None = None
        self._next_try = 0.0

    def refusal(self) -> str | None:
        """Tell whether to ask now; who gets None must report how it went.

        :returns: None to ask; otherwise what the last failure was.
        """
        if self._reason is None:  # without the lock: that's the way of every search
            return None
        with self._lock:
            now = self._clock()
            if self._reason is not None and now < self._next_try:
                return self._reason
            # For the others; also if this caller never comes back.
            self._next_try = now + PAUSE_SECONDS
            return None

    def succeeded(self) -> None:
        """Report an answer."""
        if self._timeouts or self._reason is not None:
            with self._lock:
                self._timeouts, self._reason = 0, None

    def failed(self, reason: str, *, timed_out: bool) -> bool:
        """Report a failure.

        :param reason: What it was, for those who are refused from now on.
        :param timed_out: Whether the answer only came too late.
        :returns: True if the breaker is open now.
        """
        with self._lock:
            self._timeouts += 1
            if timed_out and self._timeouts < TIMEOUTS_IN_A_ROW and self._reason is None:
                return False
            self._reason = reason
            self._next_try = self._clock() + PAUSE_SECONDS
            return True
