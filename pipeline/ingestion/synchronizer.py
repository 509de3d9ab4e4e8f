"""Bringing rows, chunks and keyword index to what the folder of documents says."""

from collections.abc import Mapping

from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles, SkippedFile
from knowledge_lookup.pipeline.ingestion.source_document import (
    EXPLICIT_CATEGORY,
    content_hash,
    read_source_document,
)
from knowledge_lookup.pipeline.ingestion.sync_report import Progress, SyncReport, tell
from knowledge_lookup.pipeline.storage import (
    DocumentDigest,
    DocumentLeases,
    DocumentRepository,
    DocumentStatus,
    IndexChanges,
    UnstorableValueError,
)
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError
from knowledge_lookup.retrievers.errors import EmbeddingModelMismatchError
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore

SYNC_LEASE = "/sync"
"""Lease that a sync with work to do holds; no document's path begins with a slash. One left behind tells that a sync
was cut off."""


class Synchronizer:
    """Compares the files with the rows by content hash, and embeds only what changed.

    Several processes may sync at once: each document is written by the one that gets its lease first, and the others
    find it done.

    :param files: The folder.
    :param documents: The rows.
    :param leases: Leases on documents.
    :param changes: The sequence of changes, of which old ones are pruned.
    :param chunk_store: The chunks; dropped by a rebuild.
    :param writer: Indexes and removes one document.
    """

    def __init__(
        self,
        *,
        files: KnowledgeFiles,
        documents: DocumentRepository,
        leases: DocumentLeases,
        changes: IndexChanges,
        chunk_store: MilvusChunkStore,
        writer: DocumentWriter,
    ) -> None:
        self._files = files
        self._documents = documents
        self._leases = leases
        self._changes = changes
        self._chunk_store = chunk_store
        self._writer = writer

    def sync(self, *, rebuild: bool = False, progress: Progress | None = None) -> SyncReport:
        """Bring everything up to date with the folder.

        :param rebuild: Drop the collection first and embed all documents again; needed after a change of the
            embedding model. Other processes must not write meanwhile.
        :param progress: Told about each document that is about to be written or removed.
        :returns: What was done.
        :raises KnowledgeBaseError: If the folder isn't there.
        :raises EmbeddingModelMismatchError: If documents were embedded by another model and ``rebuild`` is False.
        :raises EmbeddingError: If the model fails; documents done by then stay done.
        :raises VectorStoreError: If Milvus can't be used; documents done by then stay done.
        :raises DatabaseError: If the database can't be used.
        """
        digests = dict(self._documents.iter_digests())
        self._check_model(digests, rebuild)
        if not rebuild and any(d.status is DocumentStatus.READY for d in digests.values()):
            digests = self._without_lost_chunks(digests)
        report = SyncReport()
        changed, present = self._compare(digests, report, rebuild)
        gone = [path for path in digests if path not in present]
        self._files.remove_leftovers()
        if not changed and not gone and not self._leases.was_abandoned(SYNC_LEASE):
            self._writer.finish()
            tell(progress, 0, 0, "")
            return report
        with self._leases.try_hold(SYNC_LEASE):
            if rebuild:
                # Rows first: cut off after the drop, the next sync must know that no document has its chunks.
                for file_path in digests:
                    self._documents.set_status(file_path, DocumentStatus.PENDING)
                self._chunk_store.drop()
            self._apply(changed, gone, digests, report, progress)
            self._writer.finish()
            self._changes.prune()
        return report

    def _check_model(self, digests: Mapping[str, DocumentDigest], rebuild: bool) -> None:
        model = self._writer.embedding_model
        with_chunks = [digest for digest in digests.values() if digest.status is not DocumentStatus.PENDING]
        others = sorted({digest.embedding_model for digest in with_chunks} - {model})
        if others and not rebuild:
            raise EmbeddingModelMismatchError(
                f"the knowledge base was indexed with the embedding model '{others[0]}', the settings say '{model}': "
                "go back to the old model, or embed everything again with `knowledge-lookup sync --rebuild`"
            )

    def _without_lost_chunks(self, digests: dict[str, DocumentDigest]) -> dict[str, DocumentDigest]:
        """Set the documents back whose chunks went with the collection, or stayed in another one."""
        if not self._chunk_store.is_empty():
            return digests
        for file_path in digests:
            self._documents.set_status(file_path, DocumentStatus.PENDING)
        return {path: digest._replace(status=DocumentStatus.PENDING) for path, digest in digests.items()}

    def _compare(
        self, digests: Mapping[str, DocumentDigest], report: SyncReport, rebuild: bool
    ) -> tuple[list[str], set[str]]:
        """Find the documents to write, and those whose file is there."""
        changed: list[str] = []
        present: set[str] = set()
        for found in self._files.scan():
            if isinstance(found, SkippedFile):
                report.skipped.append(found)
                continue
            try:
                raw = self._files.read(found)
            except DocumentNotFoundError as error:
                report.skipped.append(SkippedFile(found, str(error)))
                continue
            digest = digests.get(found)
            present.add(found)
            if not rebuild and digest is not None and _is_current(digest, raw):
                report.unchanged += 1
            else:
                changed.append(found)
        return changed, present

    def _apply(
        self,
        changed: list[str],
        gone: list[str],
        digests: Mapping[str, DocumentDigest],
        report: SyncReport,
        progress: Progress | None,
    ) -> None:
        total = len(changed) + len(gone)
        done = 0
        for file_path in gone:
            tell(progress, done, total, file_path)
            self._remove(file_path, report)
            done += 1
        # What another process is writing at the moment comes last, when it is probably done.
        waiting: list[str] = []
        for file_path in changed:
            tell(progress, done, total, file_path)
            with self._leases.try_hold(file_path) as is_mine:
                if is_mine:
                    self._write(file_path, is_new=file_path not in digests, report=report)
                    done += 1
                else:
                    waiting.append(file_path)
        for file_path in waiting:
            tell(progress, done, total, file_path)
            with self._leases.hold(file_path):
                self._write(file_path, is_new=file_path not in digests, report=report)
            done += 1
        tell(progress, total, total, "")

    def _write(self, file_path: str, *, is_new: bool, report: SyncReport) -> None:
        """Index a document under its lease, unless another process has done so since it was compared."""
        before = self._documents.get(file_path)
        explicit = before.metadata.get(EXPLICIT_CATEGORY) if before is not None else None
        try:
            raw = self._files.read(file_path)
            document = read_source_document(raw, file_path=file_path, explicit_category=explicit)
            if not document.body.strip():
                raise UnreadableDocumentError("it has no text")
            if before is not None and self._writer.is_current(before, document):
                report.note("unchanged", file_path, 0)
                return
            chunks = self._writer.write(document)
        except (UnreadableDocumentError, UnstorableValueError, DocumentNotFoundError) as error:
            report.skipped.append(SkippedFile(file_path, str(error)))
            if before is not None:
                # What is indexed of it is an older text than the file's.
                self._writer.remove(file_path)
                report.removed.append(file_path)
            return
        report.warnings.extend(document.warnings)
        report.note("added" if is_new else "updated", file_path, chunks)

    def _remove(self, file_path: str, report: SyncReport) -> None:
        with self._leases.hold(file_path):
            if self._documents.get(file_path) is None or self._files.has(file_path):
                return  # another process removed it, or uploaded it anew, in the meantime
            self._writer.remove(file_path)
        report.removed.append(file_path)


def _is_current(digest: DocumentDigest, raw: bytes) -> bool:
    return digest.status is DocumentStatus.READY and digest.content_hash == content_hash(raw)
