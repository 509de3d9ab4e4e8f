"""Writes tool invocations behind the back of the look-ups that made them."""

import atexit
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage.errors import UnstorableValueError
from knowledge_lookup.pipeline.storage.invocation_repository import InvocationRepository
from knowledge_lookup.retrievers.fork_safety import call_after_fork

_LOGGER = logging.getLogger(__name__)

_BATCH_SIZE = 500
_GATHERING_SECONDS = 0.25
"""So long the writer waits for more before it writes: a transaction for each record would take a look-up's time."""
_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 30.0
# While somebody waits for the records to be written, a long pause would use up his time.
_LONGEST_RETRY_SECONDS_WHILE_AWAITED = 0.5
_FAILING_CLOSE_SECONDS = 1.0
"""What failed a moment ago, the database and the spool, is tried once more or twice, but nobody waits for long."""


class BackgroundInvocationRecorder:
    """An ``InvocationRecorder`` with a queue in memory and one thread that writes it in batches.

    The thread starts with the first record. A record is written within half a second, together with those that come
    meanwhile; at the end of the program what is queued is written first. A database that fails is tried again, ever
    more slowly, until it works; the callers notice nothing. May be used from many threads, and in a forked child, which
    starts with an empty queue (what was queued before the fork is written by the parent).

    :param repository: Where the invocations go.
    :param max_pending: Most invocations that wait in memory while the database fails; later ones are dropped
        and counted. At least 1.
    """

    def __init__(self, repository: InvocationRepository, *, max_pending: int = 100_000) -> None:
        if max_pending < 1:
            raise ValueError(f"max_pending is {max_pending}; it must be at least 1")
        self._repository = repository
        self._max_pending = max_pending
        self._closed = False
        self._at_exit = _closing(weakref.ref(self))
        self._reset()
        call_after_fork(self._reset)

    @property
    def dropped(self) -> int:
        """How many invocations of this process were given up and will never be written."""
        with self._changed:
            return self._dropped

    def record(self, invocation: ToolInvocation) -> None:
        """Queue one invocation; returns at once and never raises.

        :param invocation: The finished call.
        """
        with self._changed:
            if self._closed:
                self._drop("the recorder is closed")
            elif len(self._pending) >= self._max_pending:
                self._drop(f"{self._max_pending} invocations wait for the database already")
            else:
                self._pending.append(invocation)
                self._accepted += 1
                self._ensure_thread()
                # Waking the writer for nothing would take time from the look-ups.
                if len(self._pending) in (1, _BATCH_SIZE):
                    self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until everything recorded before this call is written.

        :param timeout: Most seconds to wait.
        :returns: False when the time was up first.
        """
        with self._changed:
            target = self._accepted
            return self._await_settled(target, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Write what is queued and end the thread; what can't be written in time is lost, and logged as an error.

        :param timeout: Most seconds to wait for the database.
        """
        atexit.unregister(self._at_exit)
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            if self._failure is not None:
                timeout = min(timeout, _FAILING_CLOSE_SECONDS)
            if not self._await_settled(self._accepted, timeout):
                lost = self._accepted - self._settled
                self._dropped += lost
                self._pending.clear()
                self._given_up = True
                self._changed.notify_all()
                _LOGGER.error(
                    "%d tool invocations were not written to the database within %.1f seconds and are lost: %s",
                    lost,
                    timeout,
                    "it doesn't answer" if self._failure is None else self._failure,
                )

    def _reset(self) -> None:
        """Set up the queue; in a forked child again, with nothing of the parent's."""
        self._changed = threading.Condition()
        self._pending: deque[ToolInvocation] = deque()
        self._thread: threading.Thread | None = None
        self._accepted = 0
        self._settled = 0
        self._dropped = 0
        self._awaiting = 0
        self._given_up = False
        self._warned_of_drop = False
        self._failure: str | None = None

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        if not self._warned_of_drop:
            self._warned_of_drop = True
            _LOGGER.warning("a tool invocation is not recorded, and neither are those after it: %s", reason)

    def _ensure_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._write_until_closed, name="invocation-recorder", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no thread left, or the interpreter is ending; the next record tries again.
            self._failure = f"no thread could be started: {error}"
            return
        self._thread = thread
        # A program may end without closing its pipeline, and this thread would end with it.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _await_settled(self, target: int, timeout: float) -> bool:
        self._awaiting += 1
        self._changed.notify_all()
        try:
            return self._changed.wait_for(lambda: self._settled >= target, timeout)
        finally:
            self._awaiting -= 1

    def _write_until_closed(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while batch := self._next_batch():
            if self._write(batch):
                pause = _FIRST_RETRY_SECONDS
            else:
                self._pause(pause)
                pause = min(pause * 2, _LONGEST_RETRY_SECONDS)

    def _next_batch(self) -> Sequence[ToolInvocation]:
        """Wait for invocations and return the first ones, which stay queued; empty when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            self._changed.wait_for(self._should_write, _GATHERING_SECONDS)
            return list(islice(self._pending, _BATCH_SIZE))

    def _should_write(self) -> bool:
        return len(self._pending) >= _BATCH_SIZE or self._closed or self._awaiting > 0

    def _write(self, batch: Sequence[ToolInvocation]) -> bool:
        """Write the first invocations of the queue; False when that must be tried again."""
        try:
            self._repository.insert_many(batch)
        except UnstorableValueError as error:
            if len(batch) > 1:
                return all(self._write([invocation]) for invocation in batch)
            _LOGGER.error("a tool invocation can't be stored and is lost: %s", error)
            self._settle(1, dropped=1)
        except Exception as error:
            # Whatever it is, this thread must outlive it: the next records would have nobody to write them.
            with self._changed:
                if self._failure is None and not self._closed:
                    _LOGGER.warning("tool invocations can't be written at the moment, will try again: %s", error)
                self._failure = str(error)
            return False
        else:
            self._settle(len(batch))
        return True

    def _settle(self, count: int, *, dropped: int = 0) -> None:
        """Take the first invocations off the queue."""
        with self._changed:
            if self._given_up:
                return
            for _ in range(count):
                self._pending.popleft()
            self._settled += count
            self._dropped += dropped
            self._warned_of_drop = False
            if self._failure is not None:
                _LOGGER.info("tool invocations are written to the database again")
                self._failure = None
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, but not for long while somebody waits for it."""
        with self._changed:
            if self._awaiting > 0:
                self._changed.wait_for(lambda: self._given_up, min(seconds, _LONGEST_RETRY_SECONDS_WHILE_AWAITED))
            else:
                self._changed.wait_for(lambda: self._awaiting > 0 or self._given_up, seconds)


def _closing(recorder: "weakref.ref[BackgroundInvocationRecorder]") -> Callable[[], None]:
    """Make a function that closes a recorder if it is still there."""

    def close() -> None:
        left = recorder()
        if left is not None:
            left.close()

    return close
