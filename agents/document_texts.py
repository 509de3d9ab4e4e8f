"""The texts of documents as the look-up needs them, each version read into sections once, and who has what of them."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from knowledge_lookup.agents.session_memory import SessionMemory
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError, DocumentReader
from knowledge_lookup.retrievers.document_text import DocumentText

_KEPT_DOCUMENTS = 256


class Held(NamedTuple):
    """What a session has, of documents as they are now.

    :param documents: Documents that aren't returned any more, neither by exact match nor by meaning.
    :param passages: Further documents, of which no passage is returned any more.
    """

    documents: frozenset[str]
    passages: frozenset[str]


class DocumentTexts:
    """Reads documents.

    :param reader: Gives the body of a document.
    :param title_of: Gives the title of a document.
    """

    def __init__(self, reader: DocumentReader, title_of: Callable[[str], str]) -> None:
        self._reader = reader
        self._title_of = title_of
        self._of_body = lru_cache(maxsize=_KEPT_DOCUMENTS)(DocumentText)

    def of(self, file_path: str) -> DocumentText | None:
        """Read a document.

        :param file_path: The document.
        :returns: Its present text; None if it is gone.
        """
        try:
            body = self._reader.read_body(file_path)
        except DocumentNotFoundError:
            return None
        return self._of_body(body, self._title_of(file_path))

    def held(self, memory: SessionMemory) -> Held:
        """Tell what a session has; a document that was replaced since is new, but for what it still has in common.

        :param memory: The session's memory.
        :returns: The documents.
        """
        documents, passages = set(), set()
        for file_path in memory.documents:
            text = None if file_path in memory.whole else self.of(file_path)
            if text is None or memory.is_matched_exactly(file_path, text.version):
                documents.add(file_path)
            elif memory.is_given(file_path, text.version):
                passages.add(file_path)
        return Held(frozenset(documents), frozenset(passages))
