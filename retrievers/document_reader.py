"""How a retriever gets at the text of a document that a keyword matched."""

from typing import Protocol

from knowledge_lookup.retrievers.errors import KnowledgeLookupError


class DocumentNotFoundError(KnowledgeLookupError):
    """A document that the index knows isn't there (any more)."""


class DocumentReader(Protocol):
    """Reads the documents of a knowledge base."""

    def read_body(self, file_path: str) -> str:
        r"""Read a document without its front matter.

        :param file_path: Path relative to the base path.
        :returns: The Markdown text, lines separated by ``\n``.
        :raises DocumentNotFoundError: If the document is gone or can't be read.
        """
        ...
