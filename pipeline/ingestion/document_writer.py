"""Indexing and removing one document, in the order that a crash can't break.

A document lives in four places, written in this order: file, row (``pending``), chunks (``indexing``), row
(``ready``), keyword index. A write that is cut off between any two leaves a row that isn't ``ready`` (or a file
without a row), and the next sync does that document again from its file. Removal begins with the file; the row says
``deleting`` until the chunks are gone, and goes last.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, TextNode

from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
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
from knowledge_lookup.retrievers.unit_vector import embedding_errors, unit_vector

_GENERATED = ("covers", "whenToRetrieve")


class RefreshesDomains(Protocol):
    """What must be told which domains changed; ``KnowledgeDomainService`` is."""

    def refresh(self, domain_ids: Iterable[str]) -> None:
        """Bring the description and the count of some domains up to date."""
        ...

    def ensure_all(self) -> None:
        """Bring those domains up to date that are missing or miscounted."""
        ...


class DocumentWriter:
    """Writes rows, chunks and keyword index; whoever calls it holds the document's lease.

    :param documents: The rows.
    :param chunk_store: The chunks.
    :param keyword_index: The keyword index of this process.
    :param bm25_index: The search by words of this process; told which documents changed.
    :param embed_model: Embeds the chunks.
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
        embed_model: BaseEmbedding,
        chunker: MarkdownChunker,
        fields: DocumentFieldGenerator,
        domains: RefreshesDomains,
    ) -> None:
        self._documents = documents
        self._chunk_store = chunk_store
        self._keyword_index = keyword_index
        self._bm25_index = bm25_index
        self._embed_model = embed_model
        self._chunker = chunker
        self._fields = fields
        self._domains = domains
        self._lock = threading.Lock()
        self._touched_domains: set[str] = set()

    @property
    def embedding_model(self) -> str:
        """Name of the model that embeds the chunks."""
        return self._embed_model.model_name

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

    def write(self, document: SourceDocument) -> int:
        """Index one document whose file is in place, replacing what an earlier version left.

        :param document: The document.
        :returns: Number of chunks.
        :raises UnstorableValueError: If the front matter doesn't fit the database; nothing was written.
        :raises EmbeddingError: If the model fails.
        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        before = self._documents.get(document.file_path)
        self._write_pending(document, self._generated_fields(document, before))
        nodes = self._chunker.chunk(document, embedding_model=self.embedding_model)
        self._embed(nodes)
        self._documents.set_status(document.file_path, DocumentStatus.INDEXING)
        try:
            self._chunk_store.upsert(nodes)
            self._chunk_store.delete_chunks_from(document.file_path, len(nodes))
        finally:
            self._bm25_index.mark_changed(document.file_path)
        self._documents.set_status(document.file_path, DocumentStatus.READY, chunk_count=len(nodes))
        self._keyword_index.add(document.keyword_entry())
        self._touch(document.domain, *([before.category] if before is not None else []))
        return len(nodes)

    def remove(self, file_path: str) -> None:
        """Take one document out of the index; its file is gone already.

        :param file_path: The document; one without a row is no error.
        :raises VectorStoreError: If Milvus can't be used.
        :raises DatabaseError: If the database can't be used.
        """
        before = self._documents.get(file_path)
        self._documents.set_status(file_path, DocumentStatus.DELETING)
        self._keyword_index.remove(file_path)
        try:
            self._chunk_store.delete_documents([file_path])
        finally:
            self._bm25_index.mark_changed(file_path)
        self._documents.delete(file_path)
        if before is not None:
            self._touch(before.category)

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

    def _generated_fields(self, document: SourceDocument, before: DocumentRecord | None) -> dict[str, Any]:
        if before is not None and before.content_hash == document.content_hash:
            # The same text, embedded anew: a language model need not be asked again.
            return {key: before.metadata[key] for key in _GENERATED if key in before.metadata}
        return self._fields.generate(document).to_metadata()

    def _write_pending(self, document: SourceDocument, generated: dict[str, Any]) -> None:
        def write(metadata: Mapping[str, Any]) -> None:
            self._documents.ensure_pending(
                file_path=document.file_path,
                title=document.title,
                category=document.domain,
                content_hash=document.content_hash,
                embedding_model=self.embedding_model,
                metadata=metadata,
            )

        try:
            write({**document.metadata, **generated})
        except UnstorableValueError:
            # What was generated may be a little too much for a front matter that just fits.
            write(document.metadata)

    def _touch(self, *domains: str) -> None:
        with self._lock:
            self._touched_domains.update(domains)

    def _embed(self, nodes: Sequence[TextNode]) -> None:
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        with embedding_errors(self.embedding_model):
            embeddings = self._embed_model.get_text_embedding_batch(texts) if texts else []
        for node, embedding in zip(nodes, embeddings, strict=True):
            node.embedding = unit_vector(embedding, model_name=self.embedding_model)
