"""The texts of documents as the look-up needs them, each version read into sections once."""

from collections.abc import Callable
from functools import lru_cache

from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError, DocumentReader
from knowledge_lookup.retrievers.document_text import DocumentText

_KEPT_DOCUMENTS = 256


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
