"""What an action memory needs from the place where it keeps its claims and look-ups."""

from typing import Protocol

from knowledge_lookup.agents.session_memory import RememberedLookup, SessionMemory

LOOKUPS_KEPT_WITHOUT_TEXT = 200
"""Look-ups that delivered nothing are forgotten when so many have come after them, or an endless session would grow."""


class ActionMemoryStore(Protocol):
    """Remembers what each session has asked and been given.

    A session begins with its first claim or look-up and expires when nothing was claimed, remembered or read in it
    for the store's time to live; from then on it is as if it had never been. All methods may be called from many
    threads at once.
    """

    def claim(self, session_id: str, domain: str, file_path: str) -> bool:
        """Record that a session gets a document as a whole, in one atomic step.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path, relative to the base path.
        :returns: True for exactly one caller per session and path; False for everybody else.
        """
        ...

    def recall(self, session_id: str) -> SessionMemory:
        """Return the memory of a session.

        :param session_id: The session; an unknown one has nothing.
        :returns: Its claims and look-ups.
        """
        ...

    def remember(self, session_id: str, lookup: RememberedLookup) -> bool:
        """Record a look-up, and claim what it delivers, in one atomic step.

        :param session_id: Any text.
        :param lookup: The look-up, with the next number of the memory that it was decided on.
        :returns: True if it is recorded; False if another look-up of the session was faster, or another claim on what
            it delivers: nothing is recorded then, and the look-up must be decided again on the memory as it is now.
        """
        ...

    def clear(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds in this process; what is in a database stays."""
        ...
