"""An action memory in the database that goes on in this process while the database is away."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.session_memory import Claim, RememberedLookup
from knowledge_lookup.agents.session_memory import SessionMemory as Memory
from knowledge_lookup.pipeline.storage.errors import DatabaseError, SchemaNotCurrentError, UnstorableValueError
from knowledge_lookup.retrievers.background import in_background
from knowledge_lookup.retrievers.circuit_breaker import CircuitBreaker
from knowledge_lookup.retrievers.fork_safety import call_after_fork

Answer = TypeVar("Answer")

_LOGGER = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_MOST_ATTEMPTS = 100
"""A look-up is overtaken once by each other that is going on in its session."""


class FallbackActionMemoryStore:
    """An ``ActionMemoryStore`` that no look-up has to wait for longer than a time limit.

    The database's memory is mirrored in this process. While the database is away, sessions go on from the mirror, so
    that one that this process knows isn't given anything twice; what other processes do meanwhile isn't known. When the
    database is back, what happened since is written to it, by the next use of the session or by a thread.

    :param store: The store in the database.
    :param mirror: A store in this process with the same limits; closed with this one.
    :param timeout_seconds: Seconds that a look-up waits for the database, above 0.
    """

    def __init__(
        self, store: ActionMemoryStore, mirror: InMemoryActionMemoryStore, *, timeout_seconds: float = 2.0
    ) -> None:
        if timeout_seconds <= 0:
            raise ValueError(f"timeout_seconds must be above 0, got {timeout_seconds}")
        self._store = store
        self._mirror = mirror
        self._timeout = timeout_seconds
        self._breaker = CircuitBreaker()
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        """Set up threads and locks; in a forked child again: what is owed is the parent's business."""
        self._lock = threading.Lock()
        self._catching_up = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._owed: dict[str, list[_Entry]] = {}
        self._is_away = False

    def claim(self, session_id: str, domain: str, file_path: str) -> bool:
        """Record a claim; see ``ActionMemoryStore.claim``.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path.
        :returns: True for exactly one caller per session and path, while the database is away in this process.
        :raises DatabaseError: The tables aren't those of this version.
        """
        try:
            self._catch_up(session_id)
            won = self._ask(lambda: self._store.claim(session_id, domain, file_path))
        except _AwayError:
            won = self._mirror.claim(session_id, domain, file_path)
            if won:
                self._owe(session_id, Claim(domain, file_path))
        else:
            self._mirror.claim(session_id, domain, file_path)
        return won

    def recall(self, session_id: str) -> Memory:
        """Return the memory of a session.

        :param session_id: The session.
        :returns: Its claims and look-ups; while the database is away those that this process knows.
        :raises DatabaseError: The tables aren't those of this version.
        """
        try:
            self._catch_up(session_id)
            memory = self._ask(lambda: self._store.recall(session_id))
        except _AwayError:
            return self._mirror.recall(session_id)
        self._mirror.replace(session_id, memory)
        return memory

    def remember(self, session_id: str, lookup: RememberedLookup) -> bool:
        """Record a look-up and what it delivers; see ``ActionMemoryStore.remember``.

        :param session_id: Any text.
        :param lookup: The look-up.
        :returns: False if it must be decided again.
        :raises DatabaseError: The tables aren't those of this version.
        """
        try:
            self._catch_up(session_id)
            is_first = self._ask(lambda: self._store.remember(session_id, lookup))
        except _AwayError:
            is_first = self._mirror.remember(session_id, lookup)
            if is_first:
                self._owe(session_id, lookup)
        else:
            self._mirror.remember(session_id, lookup)
        return is_first

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        :raises DatabaseError: The tables aren't those of this version.
        """
        self._mirror.clear(session_id)
        with self._lock:
            self._owed.pop(session_id, None)
        try:
            self._ask(lambda: self._store.clear(session_id))
        except _AwayError:
            self._owe(session_id, None)

    def close(self) -> None:
        """Write what the database doesn't have yet, if it is there, and end the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(self._timeout)
        self._breaker = CircuitBreaker()  # for one last try, however short ago the last failure is
        self._catch_up_all()
        if self._owed:
            _LOGGER.warning(
                "what %d sessions were given while the database was away is not in it and is forgotten", len(self._owed)
            )
        self._mirror.close()
        self._store.close()

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        refusal = self._breaker.refusal()
        if refusal is not None:
            raise _AwayError(refusal)
        try:
            # The driver's time limits are longer, and each of its attempts has its own.
            answer = in_background(question, name="action-memory").result(self._timeout)
        except (SchemaNotCurrentError, UnstorableValueError):
            raise
        except (DatabaseError, TimeoutError) as error:
            reason = str(error) or f"the database didn't answer within {self._timeout:g} seconds"
            if not self._is_away:
                _LOGGER.warning("sessions are remembered in this process until the database is back: %s", reason)
            self._is_away = True
            self._breaker.failed(reason, timed_out=False)
            raise _AwayError(reason) from error
        self._breaker.succeeded()
        if self._is_away:
            _LOGGER.warning("sessions are remembered in the database again")
        self._is_away = False
        return answer

    def _owe(self, session_id: str, entry: "_Entry") -> None:
        """Note what the database is still to be told."""
        with self._lock:
            self._owed.setdefault(session_id, []).append(entry)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._follow, name="action-memory-return", daemon=True)
                self._thread.start()

    def _follow(self) -> None:
        while self._owed and not self._stopped.wait(_RETRY_SECONDS):
            self._catch_up_all()

    def _catch_up_all(self) -> None:
        with self._lock:
            sessions = list(self._owed)
        for session_id in sessions:
            try:
                self._catch_up(session_id)
            except _AwayError:
                return
            except DatabaseError as error:
                _LOGGER.error("what session %r was given can't be written and is forgotten: %s", session_id, error)
                with self._lock:
                    self._owed.pop(session_id, None)

    def _catch_up(self, session_id: str) -> None:
        """Tell the database what it missed of a session, before anything else happens there."""
        if session_id not in self._owed:
            return
        with self._catching_up:
            while entries := self._owed.get(session_id):
                entry = entries[0]
                self._ask(lambda entry=entry: self._tell(session_id, entry))  # type: ignore[misc]
                with self._lock:
                    del entries[0]
                    if not entries:
                        self._owed.pop(session_id, None)

    def _tell(self, session_id: str, entry: "_Entry") -> None:
        if entry is None:
            self._store.clear(session_id)
        elif isinstance(entry, Claim):
            self._store.claim(session_id, entry.domain, entry.file_path)
        else:
            self._tell_of_lookup(session_id, entry)

    def _tell_of_lookup(self, session_id: str, lookup: RememberedLookup) -> None:
        for _ in range(_MOST_ATTEMPTS):
            memory = self._store.recall(session_id)
            if lookup in memory.lookups:
                return  # the attempt that came too late for the look-up did arrive
            taken = {(claim.file_path, claim.section) for claim in memory.claims}
            number = memory.next_number
            delivered = tuple(
                text.model_copy(update={"part": f"{text.part} #{number}.{at}"})
                if (text.file_path, text.part) in taken
                else text
                for at, text in enumerate(lookup.delivered)
            )
            if self._store.remember(session_id, lookup.model_copy(update={"number": number, "delivered": delivered})):
                return
        raise DatabaseError(f"session {session_id!r} changes faster than it can be written")


_Entry = RememberedLookup | Claim | None
"""What the database is to be told of a session; None: to forget it."""


class _AwayError(Exception):
    """The database can't be asked at the moment."""
