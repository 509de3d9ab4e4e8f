"""Bringing rows, chunks and keyword index to what the folder of documents says."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack

from knowledge_lookup.pipeline.ingestion.document_batch import DocumentBatch, DocumentInBatch, batches_of
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.file_states import FileStates
from knowledge_lookup.pipeline.ingestion.folder_scan import FoundFile, Leftover, SkippedFile
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.passage_embedder import PassageEmbedder
from knowledge_lookup.pipeline.ingestion.source_document import (
    EXPLICIT_CATEGORY,
    content_hash,
    read_source_document,
)
from knowledge_lookup.pipeline.ingestion.sync_report import Progress, ProgressCounter, SyncReport
from knowledge_lookup.pipeline.storage import (
    DocumentDigest,
    DocumentLeases,
    DocumentRecord,
    DocumentRepository,
    DocumentStatus,
    IndexChanges,
)
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError
from knowledge_lookup.retrievers.errors import EmbeddingModelMismatchError
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore

SYNC_LEASE = "/sync"
"""Lease that a sync with work to do holds; no document's path begins with a slash. One left behind tells that a sync
was cut off."""

_POLL_SECONDS = 0.1


class Synchronizer:
    """Compares the files with the rows by content hash, and embeds only what changed.

    Several processes may sync at once: each document is written by the one that gets its lease first, and the others
    find it done. Documents go by in batches: no more than a few are in memory at once.

    :param files: The folder.
    :param states: Knows which files haven't changed since they were last read.
    :param documents: The rows.
    :param leases: Leases on documents.
    :param changes: The sequence of changes, of which old ones are pruned.
    :param chunk_store: The chunks; dropped by a rebuild.
    :param writer: Indexes and removes documents.
    """

    def __init__(
        self,
        *,
        files: KnowledgeFiles,
        states: FileStates,
        documents: DocumentRepository,
        leases: DocumentLeases,
        changes: IndexChanges,
        chunk_store: MilvusChunkStore,
        writer: DocumentWriter,
    ) -> None:
        self._files = files
        self._states = states
        self._documents = documents
        self._leases = leases
        self._changes = changes
        self._chunk_store = chunk_store
        self._writer = writer

    def sync(
        self,
        *,
        rebuild: bool = False,
        embedder: PassageEmbedder | None = None,
        progress: Progress | None = None,
    ) -> SyncReport:
        """Bring everything up to date with the folder.

        :param rebuild: Drop the collection first and embed all documents again; needed after a change of the
            embedding model. Other processes must not write meanwhile.
        :param embedder: Embeds the chunks; None does so in this process.
        :param progress: Told about each document that is about to be written or removed.
        :returns: What was done.
        :raises KnowledgeBaseError: If the folder isn't there.
        :raises EmbeddingModelMismatchError: If documents were embedded by another model and ``rebuild`` is False.
        :raises EmbeddingError: If the model fails; documents done by then stay done.
        :raises VectorStoreError: If Milvus can't be used; documents done by then stay done.
        :raises DatabaseError: If the database can't be used.
        """
        digests = dict(self._documents.iter_digests())
        if not rebuild:
            digests = self._checked(digests)
        report = SyncReport()
        self._states.load()
        changed, present = self._compare(digests, report, rebuild)
        gone = [path for path in digests if path not in present]
        if changed or gone or self._leases.was_abandoned(SYNC_LEASE):
            with self._leases.try_hold(SYNC_LEASE):
                if rebuild:
                    self._drop_chunks()
                counter = ProgressCounter(progress, total=len(changed) + len(gone))
                self._remove(gone, report, counter)
                self._write(changed, digests, report, counter, embedder)
                counter.end()
                self._writer.finish()
                self._changes.prune()
        else:
            self._writer.finish()
            ProgressCounter(progress, total=0).end()
        self._states.save()
        return report

    def _checked(self, digests: dict[str, DocumentDigest]) -> dict[str, DocumentDigest]:
        """Set the documents back whose chunks went with the collection, or stayed in another one."""
        models = {digest.embedding_model for digest in digests.values() if digest.status is not DocumentStatus.PENDING}
        if not models:
            return digests
        others = sorted(models - {self._writer.embedding_model})
        if others:
            raise EmbeddingModelMismatchError(
                f"the knowledge base was indexed with the embedding model '{others[0]}', the settings say "
                f"'{self._writer.embedding_model}': go back to the old model, or embed everything again with "
                "`knowledge-lookup sync --rebuild`"
            )
        if not self._chunk_store.is_empty():
            return digests
        self._documents.reset(DocumentStatus.PENDING)
        return {path: digest._replace(status=DocumentStatus.PENDING) for path, digest in digests.items()}

    def _drop_chunks(self) -> None:
        # Rows first: cut off in between, the next sync must know that no document has all its chunks.
        self._documents.reset(DocumentStatus.INDEXING)
        self._chunk_store.drop()
        self._documents.reset(DocumentStatus.PENDING)

    def _compare(
        self, digests: Mapping[str, DocumentDigest], report: SyncReport, rebuild: bool
    ) -> tuple[list[FoundFile], set[str]]:
        """Find the documents to write, and those whose file is there."""
        changed: list[FoundFile] = []
        present: set[str] = set()
        for found in self._files.scan_states():
            if isinstance(found, Leftover):
                self._files.remove_leftover(found)
            elif isinstance(found, SkippedFile):
                report.skipped.append(found)
            else:
                present.add(found.file_path)
                digest = digests.get(found.file_path)
                if rebuild or digest is None or digest.status is not DocumentStatus.READY:
                    changed.append(found)
                elif self._hash_of(found) == digest.content_hash:
                    report.unchanged += 1
                else:
                    changed.append(found)
        return changed, present

    def _hash_of(self, found: FoundFile) -> str | None:
        known = self._states.hash_of(found)
        if known is not None:
            return known
        try:
            known = content_hash(self._files.read(found.file_path))
        except DocumentNotFoundError:
            return None  # reported when it is about to be written
        self._states.note(found, known)
        return known

    def _remove(self, gone: Sequence[str], report: SyncReport, counter: ProgressCounter) -> None:
        for file_paths in batches_of((path, 0) for path in gone):
            for file_path in file_paths:
                counter.begin(file_path)
            waiting: Collection[str] = file_paths
            while waiting:
                with self._leases.try_hold_all(waiting) as mine:
                    # Another process may have removed it, or uploaded it anew, in the meantime.
                    rows = self._documents.get_all(mine)
                    still_gone = [path for path in file_paths if path in rows and not self._files.has(path)]
                    if still_gone:
                        self._writer.remove(still_gone)
                        report.removed.extend(still_gone)
                waiting = [path for path in waiting if path not in mine]
                if waiting:
                    time.sleep(_POLL_SECONDS)

    def _write(
        self,
        changed: Sequence[FoundFile],
        digests: Mapping[str, DocumentDigest],
        report: SyncReport,
        counter: ProgressCounter,
        embedder: PassageEmbedder | None,
    ) -> None:
        # What another process is writing at the moment comes last, when it is probably done.
        waiting: Sequence[FoundFile] = changed
        is_first_round = True
        while waiting:
            busy: list[FoundFile] = []
            batches = self._batches(waiting, digests, busy)
            for batch in self._writer.write_batches(batches, embedder=embedder, on_begin=counter.begin):
                report.take(batch)
            if busy and not is_first_round:
                time.sleep(_POLL_SECONDS)
            waiting, is_first_round = busy, False

    def _batches(
        self, found: Sequence[FoundFile], digests: Mapping[str, DocumentDigest], busy: list[FoundFile]
    ) -> Iterator[DocumentBatch]:
        """Read documents batch by batch, each when it is asked for, those that nobody else is writing."""
        sized = ((file, file.state.size) for file in found)
        for files in batches_of(sized, asked_about=self._writer.asks_language_model):
            with ExitStack() as stack:
                mine = stack.enter_context(self._leases.try_hold_all([file.file_path for file in files]))
                busy.extend(file for file in files if file.file_path not in mine)
                rows = self._documents.get_all(mine)
                entries = [
                    self._read(file, rows.get(file.file_path), is_new=file.file_path not in digests)
                    for file in files
                    if file.file_path in mine
                ]
                batch = DocumentBatch(entries, stack.pop_all())
            yield batch

    def _read(self, file: FoundFile, before: DocumentRecord | None, *, is_new: bool) -> DocumentInBatch:
        """Read a document under its lease; another process may have indexed it since it was compared."""
        explicit = before.metadata.get(EXPLICIT_CATEGORY) if before is not None else None
        try:
            raw = self._files.read(file.file_path)
            document = read_source_document(raw, file_path=file.file_path, explicit_category=explicit)
            if not document.body.strip():
                raise UnreadableDocumentError("it has no text")
        except (UnreadableDocumentError, DocumentNotFoundError) as error:
            return DocumentInBatch(file.file_path, "skipped", before=before, reason=str(error))
        self._states.note(file, document.content_hash)
        if before is not None and self._writer.is_current(before, document):
            return DocumentInBatch(file.file_path, "unchanged", before=before)
        return DocumentInBatch(file.file_path, "added" if is_new else "updated", document, before)
