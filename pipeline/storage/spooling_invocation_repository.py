"""Tool invocations that reach the database in the end, whether it is there or not."""

import logging
import threading
from collections.abc import Sequence

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import DatabaseError, UnstorableValueError
from knowledge_lookup.pipeline.storage.invocation_repository import InvocationRepository
from knowledge_lookup.pipeline.storage.record_spool import RecordSpool
from knowledge_lookup.retrievers.background import in_background
from knowledge_lookup.retrievers.circuit_breaker import CircuitBreaker
from knowledge_lookup.retrievers.fork_safety import call_after_fork

_LOGGER = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0
"""A server that hangs gives no error before its own time limits are over: the records are safe on disk by then."""
_BATCH_SIZE = 500
_RETRY_SECONDS = 1.0


class SpoolingInvocationRepository(InvocationRepository):
    """Writes to the database, and to a spool on disk while the database is away.

    What is in the spool, also that of processes that are gone, is written by a thread of its own once the database is
    back, each record once: the database knows a record by its id.

    :param database: The database.
    :param spool: Where records wait.
    """

    def __init__(self, database: Database, spool: RecordSpool) -> None:
        super().__init__(database)
        self._spool = spool
        self._breaker = CircuitBreaker()
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        """Set up the thread's state; in a forked child again, with nothing of the parent's."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_away = False

    def insert_many(self, invocations: Sequence[ToolInvocation]) -> None:
        """Write invocations to the database or, while that is away, to the spool.

        :param invocations: What to write.
        :raises UnstorableValueError: An invocation has no form that can be stored; nothing was written.
        :raises DatabaseError: Neither the database nor the spool can be written.
        """
        if self._spool.path.exists():
            self._ensure_thread()
        if self._breaker.refusal() is None:
            try:
                in_background(lambda: self._insert(invocations), name="record-writer").result(_PATIENCE_SECONDS)
            except UnstorableValueError:
                raise
            except (DatabaseError, TimeoutError) as error:
                self._note(error)
            else:
                self._breaker.succeeded()
                return
        self._spool.add(invocations)
        self._ensure_thread()

    def close(self, timeout: float = 2.0) -> None:
        """End the thread that empties the spool; what is still in the spool waits for the next process.

        :param timeout: Most seconds to wait for what it is writing.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopped.set()
        if thread is not None:
            thread.join(timeout)
        try:
            left = len(self._spool)
        except DatabaseError as error:
            # Whether anything is in it or not: it stays where it is.
            _LOGGER.warning("records that may wait on disk could not be counted: %s", error)
            return
        if left:
            _LOGGER.warning(
                "%d records wait in %s: the next look-up writes them once the database is back", left, self._spool.path
            )

    def _insert(self, invocations: Sequence[ToolInvocation]) -> None:
        super().insert_many(invocations)

    def _note(self, error: Exception) -> None:
        reason = str(error) or f"the database didn't answer within {_PATIENCE_SECONDS:g} seconds"
        if not self._is_away:
            _LOGGER.warning("records are kept in %s until they can be written: %s", self._spool.path, reason)
        self._is_away = True
        self._breaker.failed(reason, timed_out=False)

    def _ensure_thread(self) -> None:
        with self._lock:
            if not self._stopped.is_set() and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._empty_spool, name="record-spool", daemon=True)
                self._thread.start()

    def _empty_spool(self) -> None:
        is_first = True
        while is_first or not self._stopped.wait(_RETRY_SECONDS):
            is_first = False
            if self._breaker.refusal() is not None:
                continue
            try:
                while not self._stopped.is_set() and (records := self._spool.first(_BATCH_SIZE)):
                    self._write(records)
                    self._spool.remove(records)
            except DatabaseError as error:
                self._note(error)
                continue
            self._breaker.succeeded()
            if self._is_away:
                _LOGGER.info("all records are in the database again")
            self._is_away = False
            return

    def _write(self, records: Sequence[ToolInvocation]) -> None:
        try:
            self._insert(records)
        except UnstorableValueError as error:
            if len(records) > 1:
                for record in records:
                    self._write([record])
            else:
                _LOGGER.error("a tool invocation can't be stored and is lost: %s", error)
