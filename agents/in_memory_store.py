"""The action memory's store inside one process: a dictionary behind a lock.

Sessions are kept in order of their last use. The idle ones are therefore always at the front, and both the
expiry and the limit take from there, without ever looking through all sessions.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class _Session:
    last_used: float
    # (file path, section) -> domain; the order of insertion is the order of the claims.
    claims: dict[tuple[str, str], str] = field(default_factory=dict)


class InMemoryActionMemoryStore:
    """An ``ActionMemoryStore`` for one process.

    >>> store = InMemoryActionMemoryStore()
    >>> store.claim("s1", "api", "api/payment-errors.md")
    True
    >>> store.claim("s1", "api", "api/payment-errors.md")
    False
    >>> store.domains("s1")
    ['api']

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
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def claim(self, session_id: str, domain: str, file_path: str, section: str = "") -> bool:
        """Record a claim; see :meth:`ActionMemoryStore.claim`.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path.
        :param section: The section that is given; empty for the document itself.
        :returns: True for exactly one caller per session, path and section.
        """
        with self._lock:
            session = self._use(session_id)
            if session is None:
                session = self._sessions[session_id] = _Session(last_used=self._clock())
                if len(self._sessions) > self._max_sessions:
                    self._sessions.popitem(last=False)
            if (file_path, section) in session.claims:
                return False
            session.claims[(file_path, section)] = domain
            return True

    def release(self, session_id: str, file_path: str, section: str = "") -> None:
        """Take a claim back.

        :param session_id: The session of the claim.
        :param file_path: The path of the claim.
        :param section: The section of the claim.
        """
        with self._lock:
            session = self._use(session_id)
            if session is None:
                return
            session.claims.pop((file_path, section), None)
            if not session.claims:
                del self._sessions[session_id]

    def documents(self, session_id: str) -> frozenset[str]:
        """Return the paths that the session has.

        :param session_id: The session.
        :returns: The paths, whatever the section.
        """
        with self._lock:
            session = self._use(session_id)
            return frozenset() if session is None else frozenset(path for path, _ in session.claims)

    def domains(self, session_id: str) -> list[str]:
        """Return the domains that the session has been in.

        :param session_id: The session.
        :returns: Each domain once, in order of its first claim.
        """
        with self._lock:
            session = self._use(session_id)
            return [] if session is None else list(dict.fromkeys(session.claims.values()))

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        """
        with self._lock:
            self._sessions.pop(session_id, None)

    def close(self) -> None:
        """Forget all sessions."""
        with self._lock:
            self._sessions.clear()

    def _use(self, session_id: str) -> _Session | None:
        """Drop what has expired, then return the session, marked as used now; None when there is none."""
        now = self._clock()
        while self._sessions:
            oldest_id, oldest = next(iter(self._sessions.items()))
            if oldest.last_used >= now - self._ttl_seconds:
                break
            del self._sessions[oldest_id]
        session = self._sessions.get(session_id)
        if session is not None:
            session.last_used = now
            self._sessions.move_to_end(session_id)
        return session
