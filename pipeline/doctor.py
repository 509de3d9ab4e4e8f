"""Comparing the four places in which a document lives, and mending what differs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.source_document import content_hash
from knowledge_lookup.pipeline.ingestion.synchronizer import SYNC_LEASE, Synchronizer
from knowledge_lookup.pipeline.keyword_index_follower import keyword_entry
from knowledge_lookup.pipeline.storage import (
    DocumentLeases,
    DocumentRecord,
    DocumentRepository,
    DocumentStatus,
    DomainRepository,
)
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore

Place = Literal["file", "row", "chunks", "keyword index", "domain"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that isn't as it should be.

    :param file_path: The document, or the domain.
    :param place: Where it differs from what the file says.
    :param message: What is wrong, one line.
    """

    file_path: str
    place: Place
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON values."""
        return {"file": self.file_path, "place": self.place, "message": self.message}

    def __str__(self) -> str:
        return f"{self.file_path}: {self.place}: {self.message}"


class Doctor:
    """Examines files, rows, chunks and keyword index.

    :param files: The folder.
    :param documents: The rows.
    :param domains: The rows of the domains.
    :param chunk_store: The chunks.
    :param keyword_index: The keyword index of this process.
    :param leases: Tell which documents another process is writing; those aren't judged.
    :param synchronizer: Mends.
    """

    def __init__(
        self,
        *,
        files: KnowledgeFiles,
        documents: DocumentRepository,
        domains: DomainRepository,
        chunk_store: MilvusChunkStore,
        keyword_index: KeywordIndex,
        leases: DocumentLeases,
        synchronizer: Synchronizer,
    ) -> None:
        self._files = files
        self._documents = documents
        self._domains = domains
        self._chunk_store = chunk_store
        self._keyword_index = keyword_index
        self._leases = leases
        self._synchronizer = synchronizer

    def examine(self) -> list[Difference]:
        """Compare the four places.

        :returns: Every difference, in order of the paths; none when all say the same.
        :raises KnowledgeLookupError: If the folder, the database or Milvus can't be read.
        """
        rows = {record.file_path: record for record in self._documents.list()}
        chunks = self._chunk_store.documents()
        indexed = {entry.file_path: entry for entry in self._keyword_index}
        paths = {path for path in self._files.scan() if isinstance(path, str)}
        found: list[Difference] = []
        for file_path in sorted({*paths, *rows, *chunks, *indexed}):
            if self._leases.is_held(file_path):
                continue
            found.extend(self._examine_file(file_path, file_path in paths, rows.get(file_path)))
            found.extend(_examine_chunks(file_path, chunks.get(file_path, 0), rows.get(file_path)))
            record = rows.get(file_path)
            should = keyword_entry(record) if record is not None and record.status is DocumentStatus.READY else None
            if indexed.get(file_path) != should:
                what = "missing" if file_path not in indexed else "not what the row says"
                found.append(Difference(file_path, "keyword index", what))
        if self._leases.was_abandoned(SYNC_LEASE):
            found.append(Difference("", "row", "a sync was cut off before it was done"))
        return [*found, *self._examine_domains(rows)]

    def fix(self) -> None:
        """Mend every difference from the files.

        :raises KnowledgeLookupError: If the folder, the database, the model or Milvus can't be used.
        """
        rows = {record.file_path: record for record in self._documents.list()}
        chunks = self._chunk_store.documents()
        self._chunk_store.delete_documents([path for path in chunks if path not in rows])
        for file_path, record in rows.items():
            if _examine_chunks(file_path, chunks.get(file_path, 0), record):
                self._documents.set_status(file_path, DocumentStatus.INDEXING)  # its chunks aren't what its row says
        self._synchronizer.sync()
        ready = {r.file_path: keyword_entry(r) for r in self._documents.list() if r.status is DocumentStatus.READY}
        for entry in [entry for entry in self._keyword_index if entry.file_path not in ready]:
            self._keyword_index.remove(entry.file_path)
        for entry in ready.values():
            if self._keyword_index.get(entry.file_path) != entry:
                self._keyword_index.add(entry)

    def _examine_file(self, file_path: str, is_there: bool, record: DocumentRecord | None) -> list[Difference]:
        if not is_there:
            return [] if record is None else [Difference(file_path, "file", "gone, but there is a row")]
        if record is None:
            try:
                is_empty = not self._files.read_body(file_path).strip()
            except DocumentNotFoundError:
                return []  # unreadable: sync reports it as skipped
            return [] if is_empty else [Difference(file_path, "row", "missing")]
        if record.status is not DocumentStatus.READY:
            return [Difference(file_path, "row", f"unfinished ({record.status.value})")]
        if record.content_hash != content_hash(self._files.read(file_path)):
            return [Difference(file_path, "file", "changed since it was indexed")]
        return []

    def _examine_domains(self, rows: Mapping[str, DocumentRecord]) -> list[Difference]:
        counts: dict[str, int] = {}
        for record in rows.values():
            if record.status is DocumentStatus.READY:
                counts[record.category] = counts.get(record.category, 0) + 1
        stored = {domain.domain_id: domain.document_count for domain in self._domains.list()}
        return [
            Difference(domain, "domain", f"counts {stored.get(domain, 0)} documents, there are {counts.get(domain, 0)}")
            for domain in sorted({*counts, *stored})
            if counts.get(domain, 0) != stored.get(domain, 0)
        ]


def _examine_chunks(file_path: str, count: int, record: DocumentRecord | None) -> list[Difference]:
    if record is None:
        return [Difference(file_path, "chunks", f"{count} chunks without a row")] if count else []
    if record.status is DocumentStatus.READY and count != record.chunk_count:
        return [Difference(file_path, "chunks", f"{count} in Milvus, {record.chunk_count} in the row")]
    return []
