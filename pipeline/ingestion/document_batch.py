"""Documents that are written together: how many at once, and what is known about each on its way."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from llama_index.core.schema import MetadataMode, TextNode

from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument
from knowledge_lookup.pipeline.storage import DocumentRecord, DocumentStatus

MOST_DOCUMENTS = 128
MOST_DOCUMENTS_ASKED_ABOUT = 8
"""Where a language model is asked about each document first, which takes seconds: what a kill may lose of that."""
MOST_BYTES = 256_000
"""Of the files of a batch, unless a single one is larger: about three hundred chunks, some megabytes with vectors."""

Outcome = Literal["added", "updated", "unchanged", "skipped"]
Item = TypeVar("Item")


@dataclass(slots=True)
class DocumentInBatch:
    """One document of a batch.

    :param file_path: Its path relative to the base path.
    :param outcome: What is done with it.
    :param document: What is to be written; None for a document that needs nothing or is skipped.
    :param before: The row as it was before.
    :param reason: Why it is skipped.
    :param nodes: Its chunks, once the document is cut.
    """

    file_path: str
    outcome: Outcome
    document: SourceDocument | None = None
    before: DocumentRecord | None = None
    reason: str = ""
    nodes: list[TextNode] = field(default_factory=list)

    @property
    def is_outdated(self) -> bool:
        """Whether it is skipped and an older version of it is indexed."""
        return self.outcome == "skipped" and self.before is not None

    @property
    def known_chunks(self) -> int:
        """How many chunks of an older version there are; 0 where the row can't tell and they were deleted."""
        if self.before is None or self.before.status not in (DocumentStatus.PENDING, DocumentStatus.READY):
            return 0
        return self.before.chunk_count


@dataclass(slots=True)
class DocumentBatch:
    """Some documents, in order of their paths, and the leases on them.

    :param documents: The documents.
    :param held: Gives the leases back when it is closed.
    """

    documents: list[DocumentInBatch]
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def to_write(self) -> list[DocumentInBatch]:
        """Those that have to be written."""
        return [entry for entry in self.documents if entry.document is not None]

    def slices(self, size: int) -> Iterator[tuple[list[str], int]]:
        """Cut the chunks of all documents into slices.

        :param size: Most chunks of a slice, at least 1.
        :returns: For each slice the texts to embed, and how many of the batch's documents have begun by then.
        """
        texts: list[str] = []
        for begun, entry in enumerate(self.documents, start=1):
            for node in entry.nodes:
                if len(texts) == size:
                    yield texts, begun - 1 if node is entry.nodes[0] else begun
                    texts = []
                texts.append(node.get_content(metadata_mode=MetadataMode.EMBED))
        if texts:
            yield texts, len(self.documents)


def batches_of(items: Iterable[tuple[Item, int]], *, asked_about: bool = False) -> Iterator[list[Item]]:
    """Group documents, bounded in number and in bytes.

    :param items: Documents and the sizes of their files in bytes.
    :param asked_about: Whether a language model is asked about each of them.
    :returns: Groups of at least one, in the same order.
    """
    most = MOST_DOCUMENTS_ASKED_ABOUT if asked_about else MOST_DOCUMENTS
    batch: list[Item] = []
    total = 0
    for item, size in items:
        if batch and (len(batch) == most or total + size > MOST_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
