"""Indexing and removing documents, in the order that a crash can't break.

A document lives in four places, written in this order: file, row (``pending``), chunks (``indexing``), row
(``ready``), keyword index. A write that is cut off between any two leaves a row that isn't ``ready`` (or a file
without a row), and the next sync does that document again from its file. Removal begins with the file; the row says
``deleting`` until the chunks are gone, and goes last.

Documents go this way in batches: the rows of a batch change in one transaction, its chunks are embedded and written
together, and a batch that is cut off is done again document by document as each one's row says.

The number of chunks in a row is right as long as it says ``pending`` or ``ready``. Milvus is asked for chunks to
delete only where there can be some: all of them before a row that says ``indexing`` or ``deleting`` becomes
``pending``, and afterwards those that a shorter version doesn't have.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from llama_index.core.schema import TextNode

from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.document_batch import DocumentBatch, DocumentInBatch
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.passage_embedder import PassageEmbedder
from knowledge_lookup.pipeline.ingestion.pending_rows import PendingRows
from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument
from knowledge_lookup.pipeline.storage import (
    DocumentRecord,
    DocumentRepository,
    DocumentStatus,
    UnstorableValueError,
)
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.unit_vector import unit_vector

_MOST_VECTORS = 1000
"""So many chunks are written at once; a document with more of them doesn't hold all its vectors in memory."""


class RefreshesDomains(Protocol):
    """What must be told which domains changed; ``KnowledgeDomainService`` is."""

    def refresh(self, domain_ids: Iterable[str]) -> None:
        """Bring the description and the count of some domains up to date."""
        ...

    def ensure_all(self) -> None:
        """Bring those domains up to date that are missing or miscounted."""
        ...


class DocumentWriter:
    """Writes rows, chunks and keyword index; whoever calls it holds the documents' leases.

    :param documents: The rows.
    :param chunk_store: The chunks.
    :param keyword_index: The keyword index of this process.
    :param bm25_index: The search by words of this process; told which documents changed.
    :param embedding_model: Name of the model that embeds the chunks.
    :param embedder: Embeds the chunks where a caller names no other.
    :param chunker: Cuts the documents.
    :param fields: Generates what the author didn't write.
    :param domains: Told which domains changed.
    """

    def __init__(
        self,
        *,
        documents: DocumentRepository,
        chunk_store: MilvusChunkStore,
        keyword_index: KeywordIndex,
        bm25_index: Bm25Index,
        embedding_model: str,
        embedder: PassageEmbedder,
        chunker: MarkdownChunker,
        fields: DocumentFieldGenerator,
        domains: RefreshesDomains,
    ) -> None:
        self._documents = documents
        self._chunk_store = chunk_store
        self._keyword_index = keyword_index
        self._bm25_index = bm25_index
        self.embedding_model = embedding_model
        self.asks_language_model = fields.asks_language_model
        self._embedder = embedder
        self._chunker = chunker
        self._pending_rows = PendingRows(documents, fields, embedding_model=embedding_model)
        self._domains = domains
        self._lock = threading.Lock()
        self._touched_domains: set[str] = set()

    def is_current(self, record: DocumentRecord, document: SourceDocument) -> bool:
        """Tell whether a document is indexed as its file says.

        :param record: The document's row.
        :param document: The document as its file says.
        :returns: True when nothing has to be written.
        """
        return (
            record.status is DocumentStatus.READY
            and record.content_hash == document.content_hash
            and record.embedding_model == self.embedding_model
            and record.category == document.domain
        )

    def write(self, document: SourceDocument, before: DocumentRecord | None) -> int:
        """Index one document whose file is in place, replacing what an earlier version left.

        :param document: The document.
        :param before: Its row.
        :returns: Number of chunks.
        :raises UnstorableValueError: If the front matter doesn't fit the database; the document isn't indexed.
        :raises EmbeddingError: If the model fails.
        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        entry = DocumentInBatch(document.file_path, "updated", document, before)
        for _ in self.write_batches([DocumentBatch([entry])]):
            pass
        if entry.outcome == "skipped":
            raise UnstorableValueError(entry.reason)
        return len(entry.nodes)

    def write_batches(
        self,
        batches: Iterable[DocumentBatch],
        *,
        embedder: PassageEmbedder | None = None,
        on_begin: Callable[[str], None] | None = None,
    ) -> Iterator[DocumentBatch]:
        """Index batches of documents whose files are in place.

        A document that is skipped, be it that its front matter doesn't fit the database, is taken out of the index.

        :param batches: The batches; taken one by one as the embedder needs texts.
        :param embedder: Embeds the chunks; None takes that of the writer.
        :param on_begin: Told the path of each document when the embedder takes its first chunk.
        :returns: The batches when they are done, in order. Leases are given back when a batch is done, or when
            something fails.
        :raises EmbeddingError: If the model fails; batches done by then stay done.
        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        embedder = self._embedder if embedder is None else embedder
        begun: deque[_BatchInWriting] = deque()

        def slices() -> Iterator[list[str]]:
            for batch in batches:
                writing = _BatchInWriting(batch)
                begun.append(writing)
                self._begin(writing)
                told = 0
                if writing.expected:
                    for texts, until in batch.slices(embedder.slice_size):
                        _tell(on_begin, batch.documents[told:until])
                        told = until
                        yield texts
                else:
                    # There is nothing to wait for, and other processes may wait for the leases.
                    self._complete(writing)
                _tell(on_begin, batch.documents[told:])

        try:
            for vectors in embedder.embed(slices()):
                while begun[0].is_complete:
                    yield begun.popleft().batch
                self._take(begun[0], vectors)
                if begun[0].taken == begun[0].expected:
                    self._complete(begun[0])
                    yield begun.popleft().batch
            while begun:
                yield begun.popleft().batch
        finally:
            for writing in begun:
                writing.batch.held.close()

    def remove(self, file_paths: Sequence[str]) -> None:
        """Take documents out of the index; their files are gone already.

        :param file_paths: The documents; one without a row is no error.
        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        before = self._documents.get_all(file_paths)
        self._documents.set_all_status(file_paths, DocumentStatus.DELETING)
        for file_path in file_paths:
            self._keyword_index.remove(file_path)
        try:
            self._chunk_store.delete_documents(file_paths)
        finally:
            self._mark_changed(file_paths)
        for file_path in file_paths:
            self._documents.delete(file_path)
        self._touch(record.category for record in before.values())

    def finish(self) -> None:
        """Make what was written quick to search, and bring the domains up to date that it touched.

        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        with self._lock:
            touched, self._touched_domains = self._touched_domains, set()
        if touched:
            self._chunk_store.flush()
            self._domains.refresh(sorted(touched))
        self._domains.ensure_all()

    def _begin(self, writing: "_BatchInWriting") -> None:
        unknown = [
            entry.file_path
            for entry in writing.batch.to_write
            if entry.before is not None and entry.before.status in (DocumentStatus.INDEXING, DocumentStatus.DELETING)
        ]
        if unknown:
            try:
                self._chunk_store.delete_documents(unknown)
            finally:
                self._mark_changed(unknown)
        self._pending_rows.write(writing.batch.to_write)
        # What is indexed of a skipped document is an older text than the file's.
        outdated = [entry.file_path for entry in writing.batch.documents if entry.is_outdated]
        if outdated:
            self.remove(outdated)
        for entry in writing.batch.to_write:
            assert entry.document is not None
            entry.nodes = self._chunker.chunk(entry.document, embedding_model=self.embedding_model)
            writing.expected += len(entry.nodes)

    def _take(self, writing: "_BatchInWriting", vectors: Sequence[Sequence[float]]) -> None:
        for vector in vectors:
            node = next(writing.nodes)
            node.embedding = unit_vector(vector, model_name=self.embedding_model)
            writing.embedded.append(node)
        writing.taken += len(vectors)
        if len(writing.embedded) >= _MOST_VECTORS:
            self._write_chunks(writing)

    def _write_chunks(self, writing: "_BatchInWriting") -> None:
        file_paths = [entry.file_path for entry in writing.batch.to_write]
        if not writing.is_indexing:
            self._documents.set_all_status(file_paths, DocumentStatus.INDEXING)
            writing.is_indexing = True
        try:
            self._chunk_store.upsert(writing.embedded)
        finally:
            self._mark_changed(file_paths)
        for node in writing.embedded:
            node.embedding = None
        writing.embedded = []

    def _complete(self, writing: "_BatchInWriting") -> None:
        entries = writing.batch.to_write
        if entries:
            self._write_chunks(writing)
            for entry in entries:
                if entry.known_chunks > len(entry.nodes):
                    self._chunk_store.delete_chunks_from(entry.file_path, len(entry.nodes))
                    self._mark_changed([entry.file_path])
            self._documents.set_all_ready({entry.file_path: len(entry.nodes) for entry in entries})
        for entry in entries:
            assert entry.document is not None
            self._keyword_index.add(entry.document.keyword_entry())
            self._touch([entry.document.domain, *([] if entry.before is None else [entry.before.category])])
        writing.batch.held.close()
        writing.is_complete = True

    def _mark_changed(self, file_paths: Iterable[str]) -> None:
        for file_path in file_paths:
            self._bm25_index.mark_changed(file_path)

    def _touch(self, domains: Iterable[str]) -> None:
        with self._lock:
            self._touched_domains.update(domains)


class _BatchInWriting:
    """How far a batch is: of its chunks some are with the embedder, some have vectors, some are written."""

    def __init__(self, batch: DocumentBatch) -> None:
        self.batch = batch
        self.nodes = (node for entry in batch.documents for node in entry.nodes)
        self.embedded: list[TextNode] = []
        """Chunks that have their vectors and aren't written yet."""
        self.expected = 0
        self.taken = 0
        self.is_indexing = False
        self.is_complete = False


def _tell(on_begin: Callable[[str], None] | None, entries: Iterable[DocumentInBatch]) -> None:
    if on_begin is not None:
        for entry in entries:
            on_begin(entry.file_path)
