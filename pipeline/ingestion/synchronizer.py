"""Bringing rows, chunks and keyword index to what the folder of documents says.

A document lives in four places, written in this order: file, row (``pending``), chunks (``indexing``), row
(``ready``), keyword index. A sync that is cut off between any two leaves a row that isn't ``ready``, and the
next one does that document again from its file. Removal goes the other way: the row says ``deleting`` until the
chunks are gone, and goes last.
"""

from collections.abc import Callable, Iterable, Sequence

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, TextNode

from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles, SkippedFile
from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument, content_hash, read_source_document
from knowledge_lookup.pipeline.ingestion.sync_report import SyncReport
from knowledge_lookup.pipeline.storage import DocumentDigest, DocumentRepository, DocumentStatus, UnstorableValueError
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError
from knowledge_lookup.retrievers.errors import EmbeddingModelMismatchError
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.unit_vector import embedding_errors, unit_vector

Progress = Callable[[int, int, str], None]
"""Called with the number of documents done, their total, and the document that comes next (empty at the end)."""


class Synchronizer:
    """Compares the files with the rows by content hash, and embeds only what changed.

    :param files: The folder.
    :param documents: The rows.
    :param chunk_store: The chunks.
    :param keyword_index: The keyword index of this process.
    :param embed_model: Embeds the chunks.
    :param chunker: Cuts the documents.
    """

    def __init__(
        self,
        *,
        files: KnowledgeFiles,
        documents: DocumentRepository,
        chunk_store: MilvusChunkStore,
        keyword_index: KeywordIndex,
        embed_model: BaseEmbedding,
        chunker: MarkdownChunker,
    ) -> None:
        self._files = files
        self._documents = documents
        self._chunk_store = chunk_store
        self._keyword_index = keyword_index
        self._embed_model = embed_model
        self._chunker = chunker

    def sync(self, *, rebuild: bool = False, progress: Progress | None = None) -> SyncReport:
        """Bring everything up to date with the folder.

        :param rebuild: Drop the collection first and embed all documents again; needed after a change of the
            embedding model.
        :param progress: Told about each document that is about to be written or removed.
        :returns: What was done.
        :raises KnowledgeBaseError: If the folder isn't there.
        :raises EmbeddingModelMismatchError: If documents were embedded by another model and ``rebuild`` is False.
        :raises EmbeddingError: If the model fails; documents done by then stay done.
        :raises VectorStoreError: If Milvus can't be used; documents done by then stay done.
        """
        digests = dict(self._documents.iter_digests())
        self._check_model(digests, rebuild)
        report = SyncReport()
        changed, present = self._compare(digests, report, rebuild)
        gone = [path for path in digests if path not in present]
        if rebuild:
            # Rows first: cut off after the drop, the next sync must know that no document has its chunks.
            for file_path in digests:
                self._documents.set_status(file_path, DocumentStatus.PENDING)
            self._chunk_store.drop()
        total = len(changed) + len(gone)
        done = 0
        for file_path in gone:
            _tell(progress, done, total, file_path)
            self.remove(file_path)
            report.removed.append(file_path)
            done += 1
        for document in changed:
            _tell(progress, done, total, document.file_path)
            done += 1
            try:
                report.chunks += self.write(document)
            except UnstorableValueError as error:
                report.skipped.append(SkippedFile(document.file_path, str(error)))
                if document.file_path in digests:
                    # What is indexed of it is an older text than the file's.
                    self.remove(document.file_path)
                continue
            (report.updated if document.file_path in digests else report.added).append(document.file_path)
        if total:
            self._chunk_store.flush()
        _tell(progress, done, total, "")
        return report

    def write(self, document: SourceDocument) -> int:
        """Index one document whose file is in place, replacing what an earlier version left.

        :param document: The document.
        :returns: Number of chunks.
        :raises UnstorableValueError: If the front matter doesn't fit the database; nothing was written.
        :raises EmbeddingError: If the model fails.
        :raises VectorStoreError: If Milvus can't be used.
        """
        model = self._embed_model.model_name
        self._documents.ensure_pending(
            file_path=document.file_path,
            title=document.title,
            category=document.domain,
            content_hash=document.content_hash,
            embedding_model=model,
            metadata=document.metadata,
        )
        nodes = self._chunker.chunk(document, embedding_model=model)
        self._embed(nodes)
        self._documents.set_status(document.file_path, DocumentStatus.INDEXING)
        self._chunk_store.upsert(nodes)
        self._chunk_store.delete_chunks_from(document.file_path, len(nodes))
        self._documents.set_status(document.file_path, DocumentStatus.READY, chunk_count=len(nodes))
        self._keyword_index.add(document.keyword_entry())
        return len(nodes)

    def remove(self, file_path: str) -> None:
        """Take one document out of the index; its file is gone already.

        :param file_path: The document.
        :raises VectorStoreError: If Milvus can't be used.
        """
        self._documents.set_status(file_path, DocumentStatus.DELETING)
        self._keyword_index.remove(file_path)
        self._chunk_store.delete_documents([file_path])
        self._documents.delete(file_path)

    def _check_model(self, digests: dict[str, DocumentDigest], rebuild: bool) -> None:
        model = self._embed_model.model_name
        with_chunks = [digest for digest in digests.values() if digest.status is not DocumentStatus.PENDING]
        others = sorted({digest.embedding_model for digest in with_chunks} - {model})
        if others and not rebuild:
            raise EmbeddingModelMismatchError(
                f"the knowledge base was indexed with the embedding model '{others[0]}', the settings say '{model}': "
                "go back to the old model, or embed everything again with `knowledge-lookup sync --rebuild`"
            )

    def _compare(
        self, digests: dict[str, DocumentDigest], report: SyncReport, rebuild: bool
    ) -> tuple[list[SourceDocument], set[str]]:
        changed: list[SourceDocument] = []
        present: set[str] = set()
        for found in self._files.scan():
            if isinstance(found, SkippedFile):
                report.skipped.append(found)
                continue
            try:
                raw = self._files.read(found)
                digest = digests.get(found)
                if (
                    not rebuild
                    and digest is not None
                    and digest.status is DocumentStatus.READY
                    and digest.content_hash == content_hash(raw)
                ):
                    report.unchanged += 1
                    present.add(found)
                    continue
                document = read_source_document(raw, file_path=found)
            except (UnreadableDocumentError, DocumentNotFoundError) as error:
                report.skipped.append(SkippedFile(found, str(error)))
                continue
            report.warnings.extend(document.warnings)
            if not document.body.strip():
                report.skipped.append(SkippedFile(found, "it has no text"))
                continue
            changed.append(document)
            present.add(found)
        return changed, present

    def _embed(self, nodes: Sequence[TextNode]) -> None:
        model = self._embed_model.model_name
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        with embedding_errors(model):
            embeddings: Iterable[list[float]] = self._embed_model.get_text_embedding_batch(texts) if texts else []
        for node, embedding in zip(nodes, embeddings, strict=True):
            node.embedding = unit_vector(embedding, model_name=model)


def _tell(progress: Progress | None, done: int, total: int, file_path: str) -> None:
    if progress is not None:
        progress(done, total, file_path)
