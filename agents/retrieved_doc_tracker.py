"""The action memory: what each session has been given."""

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.session_memory import RememberedLookup, SessionMemory
from knowledge_lookup.retrievers.tracing import traced


class RetrievedDocTracker:
    """Remembers, session by session, what was asked, and the domains, documents and sections that were delivered.

    ::

        tracker = RetrievedDocTracker()
        tracker.mark_retrieved("s1", "infrastructure", "redis.md")
        tracker.is_doc_retrieved("s1", "redis.md")      # True
        tracker.get_retrieved_domains("s1")             # ["infrastructure"]

    All methods may be called from many threads at once. Sessions expire after a sliding time to live; an expired
    session is as empty as an unknown one.

    :param store: Where the memory is kept; None keeps it in this process.
    """

    def __init__(self, store: ActionMemoryStore | None = None) -> None:
        self._store: ActionMemoryStore = InMemoryActionMemoryStore() if store is None else store

    def mark_retrieved(self, session_id: str, domain: str, file_path: str) -> None:
        """Record that a session has been given a document, and with it the document's domain.

        :param session_id: The session.
        :param domain: The document's domain.
        :param file_path: The document's path relative to the base path.
        """
        self._store.claim(session_id, domain, file_path)

    def claim(self, session_id: str, domain: str, file_path: str) -> bool:
        """Record a document for a session, and learn whether this call was the first to do so.

        :param session_id: The session.
        :param domain: The document's domain.
        :param file_path: The document's path relative to the base path.
        :returns: True for exactly one of any number of calls at once; the others must not deliver the document.
        """
        return self._store.claim(session_id, domain, file_path)

    @traced
    def recall(self, session_id: str) -> SessionMemory:
        """Return all that is remembered of a session.

        :param session_id: The session.
        :returns: What it has asked and been given; empty for an unknown session.
        """
        return self._store.recall(session_id)

    @traced
    def remember(self, session_id: str, lookup: RememberedLookup) -> bool:
        """Record a look-up and claim what it delivers, in one atomic step.

        :param session_id: The session.
        :param lookup: The look-up, decided on what :meth:`recall` returned, with its next number.
        :returns: False if the memory has changed since: nothing is recorded then, and the look-up must be decided
            again.
        """
        return self._store.remember(session_id, lookup)

    def is_doc_retrieved(self, session_id: str, file_path: str) -> bool:
        """Tell whether a session has been given a document.

        :param session_id: The session.
        :param file_path: The document's path.
        :returns: True if it has.
        """
        return file_path in self._store.recall(session_id).documents

    def is_already_retrieved(self, session_id: str, file_path: str) -> bool:
        """Tell the same as :meth:`is_doc_retrieved`.

        :param session_id: The session.
        :param file_path: The document's path.
        :returns: True if the session has been given the document.
        """
        return self.is_doc_retrieved(session_id, file_path)

    def is_domain_retrieved(self, session_id: str, domain: str) -> bool:
        """Tell whether a session has been given a document of a domain.

        :param session_id: The session.
        :param domain: The domain.
        :returns: True if it has.
        """
        return domain in self._store.recall(session_id).domains

    def get_retrieved_domains(self, session_id: str) -> list[str]:
        """List the domains of which a session has been given something.

        :param session_id: The session.
        :returns: The domains in order of first retrieval.
        """
        return list(self._store.recall(session_id).domains)

    def get_retrieved_documents(self, session_id: str) -> frozenset[str]:
        """List the documents that a session has been given.

        :param session_id: The session.
        :returns: Their paths.
        """
        return self._store.recall(session_id).documents

    def clear_session(self, session_id: str) -> None:
        """Forget a session.

        :param session_id: The session; an unknown one is no error.
        """
        self._store.clear(session_id)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
