"""What an action memory needs from the place where it keeps its claims."""

from typing import Protocol


class ActionMemoryStore(Protocol):
    """Remembers which documents (or sections of them) each session has been given.

    A session begins with its first claim and expires when nothing was claimed, released or read in it for
    the store's time to live; from then on it is as if it had never been. All methods may be called from many
    threads at once.
    """

    def claim(self, session_id: str, domain: str, file_path: str, section: str = "") -> bool:
        """Record that a session gets a document, in one atomic step.

        :param session_id: Any text.
        :param domain: The domain of the document.
        :param file_path: The document's path, relative to the base path.
        :param section: The section that is given; empty for the document itself.
        :returns: True for exactly one caller per session, path and section; False for everybody else.
        """
        ...

    def release(self, session_id: str, file_path: str, section: str = "") -> None:
        """Take a claim back, so that the document can be claimed again; no claim, no effect.

        :param session_id: The session of the claim.
        :param file_path: The path of the claim.
        :param section: The section of the claim.
        """
        ...

    def documents(self, session_id: str) -> frozenset[str]:
        """Return the paths of which the session has the document or any section.

        :param session_id: The session; an unknown one has nothing.
        :returns: The paths as they were claimed.
        """
        ...

    def domains(self, session_id: str) -> list[str]:
        """Return the domains of what the session has.

        :param session_id: The session; an unknown one has nothing.
        :returns: Each domain once, in order of its first claim that still stands.
        """
        ...

    def clear(self, session_id: str) -> None:
        """Forget everything that a session has been given.

        :param session_id: The session.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds in this process; claims in a database stay."""
        ...
