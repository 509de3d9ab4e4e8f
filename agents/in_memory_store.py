"""The action memory's store inside one process: a dictionary behind a lock.

Sessions are kept in order of their last use. The idle ones are therefore always at the front, and both the
expiry and the limit take from there, without ever looking through all sessions.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from knowledge_lookup.agents.action_memory_store import LOOKUPS_KEPT_WITHOUT_TEXT
from knowledge_lookup.agents.session_memory import Claim, RememberedLookup, SessionMemory
from knowledge_lookup.retrievers.fork_safety import hold_during_fork

_LONGEST_KEPT_ID = 255
"""A session's id may come from outside; of a longer one a digest is kept."""


@dataclass
class _Session:
    last_used: float
    # (file path, part) -> claim; the order of insertion is the order of the claims.
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    lookups: list[RememberedLookup] = field(default_factory=list)


class InMemoryActionMemoryStore:
    """An ``ActionMemoryStore`` for one process.

    >>> store = InMemoryActionMemoryStore()
    >>> store.claim("s1", "api", "api/payment-errors.md")
    True
    >>> store.claim("s1", "api", "api/payment-errors.md")
    False
    >>> store.recall("s1").domains
    ('api',)

    :param ttl_seconds: A session that was not used for longer than this many seconds is forgotten; above 0.
    :param max_sessions: How many sessions are kept; beyond that the least recently used goes. At least 1.
    :param clock: Gives the time in seconds; must not go backwards.
    :raises ValueError: A limit is out of its range.
    """

    def __init__(
        self,
        *,
        ttl_seconds: float = 3600,
        max_sessions: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl_seconds > 0:
            raise ValueError(f"ttl_seconds is {ttl_seconds}; it must be above 0")
        if max_sessions < 1:
            raise ValueError(f"max_sessions is {max_sessions}; it must be at least 1")
        self._ttl_seconds = ttl_seconds
        self._max_sessions = max_sessions
        self._clock = clock
        self._lock = threading.Lock()
        hold_during_fork(self._lock)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def claim(self, session_id: str, domain: str, file_path: str) -> bool:
        """Record a claim; see :meth:`ActionMemoryStore.claim`.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path.
        :returns: True for exactly one caller per session and path.
        """
        with self._lock:
            session = self._use(session_id) or self._begin(session_id)
            if (file_path, "") in session.claims:
                return False
            session.claims[(file_path, "")] = Claim(domain, file_path)
            return True

    def recall(self, session_id: str) -> SessionMemory:
        """Return the memory of a session.

        :param session_id: The session.
        :returns: Its claims and look-ups.
        """
        with self._lock:
            session = self._use(session_id)
            return SessionMemory() if session is None else SessionMemory(session.claims.values(), session.lookups)

    def remember(self, session_id: str, lookup: RememberedLookup) -> bool:
        """Record a look-up and what it delivers; see :meth:`ActionMemoryStore.remember`.

        :param session_id: Any text.
        :param lookup: The look-up.
        :returns: False if it must be decided again.
        """
        parts = [(text.file_path, text.part) for text in lookup.delivered]
        with self._lock:
            session = self._use(session_id) or self._begin(session_id)
            if session.lookups and session.lookups[-1].number >= lookup.number:
                return False
            if any(part in session.claims for part in parts):
                return False
            for (file_path, part), text in zip(parts, lookup.delivered, strict=True):
                session.claims[(file_path, part)] = Claim(text.domain, file_path, part)
            old = lookup.number - LOOKUPS_KEPT_WITHOUT_TEXT
            session.lookups = [known for known in session.lookups if known.number != old or known.delivered]
            session.lookups.append(lookup)
            return True

    def replace(self, session_id: str, memory: SessionMemory) -> None:
        """Put another memory in the place of a session's.

        :param session_id: The session.
        :param memory: What it has from now on; an empty one forgets the session.
        """
        with self._lock:
            if not memory.claims and not memory.lookups:
                self._sessions.pop(_key(session_id), None)
                return
            session = self._use(session_id) or self._begin(session_id)
            session.claims = {(claim.file_path, claim.section): claim for claim in memory.claims}
            session.lookups = list(memory.lookups)

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        """
        with self._lock:
            self._sessions.pop(_key(session_id), None)

    def close(self) -> None:
        """Forget all sessions."""
        with self._lock:
            self._sessions.clear()

    def _begin(self, session_id: str) -> _Session:
        session = self._sessions[_key(session_id)] = _Session(last_used=self._clock())
        if len(self._sessions) > self._max_sessions:
            self._sessions.popitem(last=False)
        return session

    def _use(self, session_id: str) -> _Session | None:
        """Drop what has expired, then return the session, marked as used now; None when there is none."""
        now = self._clock()
        while self._sessions:
            oldest_id, oldest = next(iter(self._sessions.items()))
            if oldest.last_used >= now - self._ttl_seconds:
                break
            del self._sessions[oldest_id]
        key = _key(session_id)
        session = self._sessions.get(key)
        if session is not None:
            session.last_used = now
            self._sessions.move_to_end(key)
        return session


def _key(session_id: str) -> str:
    if len(session_id) <= _LONGEST_KEPT_ID:
        return session_id
    return f"sha256:{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
