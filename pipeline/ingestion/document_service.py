"""Uploading, importing and deleting documents."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.ingestion.document_path import UnsafePathError, inside, safe_file_path
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.folder_scan import SkippedFile
from knowledge_lookup.pipeline.ingestion.front_matter import FrontMatterWarning, UnreadableDocumentError
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.source_document import GENERAL_DOMAIN, read_source_document
from knowledge_lookup.pipeline.ingestion.sync_report import Progress, SyncReport, tell
from knowledge_lookup.pipeline.storage import DocumentLeases, DocumentRepository, UnstorableValueError
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError

UploadAction = Literal["added", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class UploadResult:
    """What an upload did.

    :param file_path: Where the document is now, relative to the base path.
    :param action: ``added``, ``updated`` (an older version was replaced whole) or ``unchanged`` (the same text was
        indexed already).
    :param title: The document's title.
    :param domain: The document's domain.
    :param chunks: Number of chunks embedded.
    :param warnings: What had to be mended to read the file.
    """

    file_path: str
    action: UploadAction
    title: str
    domain: str
    chunks: int
    warnings: tuple[FrontMatterWarning, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "file": self.file_path,
            "action": self.action,
            "title": self.title,
            "domain": self.domain,
            "chunks": self.chunks,
            "warnings": [warning.to_dict() for warning in self.warnings],
        }


class DocumentService:
    """Changes the knowledge base document by document: the file first, then everything made from it.

    :param files: The folder.
    :param documents: The rows.
    :param leases: Keep other processes from writing the same document meanwhile.
    :param writer: Indexes and removes one document.
    """

    def __init__(
        self, files: KnowledgeFiles, documents: DocumentRepository, leases: DocumentLeases, writer: DocumentWriter
    ) -> None:
        self._files = files
        self._documents = documents
        self._leases = leases
        self._writer = writer

    def upload(self, raw: bytes, *, name: str, category: str | None = None) -> UploadResult:
        """Save a document as ``{base path}/{category}/{name}`` and index it; one at that path is replaced whole.

        :param raw: The file's bytes, kept as they are.
        :param name: File name.
        :param category: The domain; wins over the front matter. None takes the front matter's, else ``general``.
        :returns: What was done.
        :raises UnsafePathError: If category or name would lead out of the knowledge base or can't be stored; nothing
            was written.
        :raises UnreadableDocumentError: If the file is no text or too large; nothing was written.
        :raises KnowledgeLookupError: If the file can't be written, or the model, Milvus or the database fails; what
            was begun by then is completed by the next sync.
        """
        if "/" in name:
            raise UnsafePathError(f"{name!a} isn't a file name: give the folder as the category")
        # The front matter is read once under the bare name: the path depends on its category.
        category_of_file = read_source_document(self._checked(raw, name), file_path=name).metadata.get("category")
        folder = category if category is not None else (category_of_file or GENERAL_DOMAIN)
        result = self._put(raw, safe_file_path(folder, name), explicit_category=category)
        self._writer.finish()
        return result

    def import_folder(
        self, folder: Path, *, category_from_folder: bool = False, progress: Progress | None = None
    ) -> SyncReport:
        """Copy the documents of a folder into the knowledge base, keeping its subfolders, and index them.

        Interrupted and started again it goes on where it was: a document that is indexed with the same text isn't
        embedded again. One document that can't be imported doesn't stop the others.

        :param folder: The folder.
        :param category_from_folder: Make the first subfolder each document's domain, over its front matter.
        :param progress: Told about each document that is about to be imported.
        :returns: What was done; what was skipped is in it with the reason.
        :raises KnowledgeBaseError: If the folder isn't there, or is part of the knowledge base.
        :raises KnowledgeLookupError: If the model, Milvus or the database fails; documents done by then stay done.
        """
        source = KnowledgeFiles(folder, max_file_bytes=self._files.max_file_bytes)
        if not folder.is_dir():
            raise KnowledgeBaseError(f"there is no folder at '{folder}' to import")
        inner, outer = folder.resolve(), self._files.base_path.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise KnowledgeBaseError(
                f"'{folder}' and the knowledge base at '{self._files.base_path}' are one inside the other: "
                "use `knowledge-lookup sync` for documents that are in their place already"
            )
        report = SyncReport()
        found = list(source.scan())
        for done, entry in enumerate(found):
            if isinstance(entry, SkippedFile):
                report.skipped.append(entry)
                continue
            tell(progress, done, len(found), entry)
            category = entry.partition("/")[0] if category_from_folder and "/" in entry else None
            try:
                result = self._put(source.read(entry), safe_file_path(entry), explicit_category=category)
            except (
                UnsafePathError,
                UnreadableDocumentError,
                UnstorableValueError,
                DocumentNotFoundError,
            ) as error:
                report.skipped.append(SkippedFile(entry, str(error)))
                continue
            report.note(result.action, result.file_path, result.chunks)
            report.warnings.extend(result.warnings)
        self._writer.finish()
        tell(progress, len(found), len(found), "")
        return report

    def delete(self, file_path: str) -> bool:
        """Delete a document: its file, then everything made from it.

        :param file_path: Path relative to the base path.
        :returns: False when there was no such document.
        :raises UnsafePathError: If the path leads out of the knowledge base.
        :raises KnowledgeLookupError: If the file can't be deleted, or Milvus or the database fails; what was begun
            by then is completed by the next sync.
        """
        target = inside(self._files.base_path, safe_file_path(file_path))
        with self._leases.hold(file_path):
            try:
                target.unlink()
                had_file = True
            except FileNotFoundError:
                had_file = False
            except OSError as error:
                raise KnowledgeBaseError(
                    f"'{target}' can't be deleted ({error.strerror}): check the folder's permissions"
                ) from error
            had_row = self._documents.get(file_path) is not None
            if had_row:
                self._writer.remove([file_path])
        self._writer.finish()
        return had_file or had_row

    def _put(self, raw: bytes, file_path: str, *, explicit_category: str | None) -> UploadResult:
        target = inside(self._files.base_path, file_path)
        document = read_source_document(
            self._checked(raw, file_path), file_path=file_path, explicit_category=explicit_category
        )
        if not document.body.strip():
            raise UnreadableDocumentError(f"{file_path}: it has no text")
        self._documents.check_storable(
            file_path=file_path, title=document.title, category=document.domain, metadata=document.metadata
        )
        with self._leases.hold(file_path):
            before = self._documents.get(file_path)
            if before is not None and self._writer.is_current(before, document) and target.is_file():
                return UploadResult(file_path, "unchanged", before.title, before.category, 0, document.warnings)
            self._files.write(file_path, raw)
            chunks = self._writer.write(document, before)
        action: UploadAction = "added" if before is None else "updated"
        return UploadResult(file_path, action, document.title, document.domain, chunks, document.warnings)

    def _checked(self, raw: bytes, name: str) -> bytes:
        reason = self._files.too_large(len(raw))
        if reason is not None:
            raise UnreadableDocumentError(f"{name}: {reason}")
        return raw
