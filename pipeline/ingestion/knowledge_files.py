"""The folder of documents: which files it has, and their texts."""

import os
import stat
import time
import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.ingestion.folder_scan import (
    TEMPORARY_SUFFIX,
    FoundFile,
    Leftover,
    SkippedFile,
    scan_folder,
)
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError, read_body
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError

DEFAULT_MAX_FILE_BYTES = 2_000_000
_CACHED_BODIES = 256
_DONT_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_TEMPORARY_KEPT_SECONDS = 3600.0


class KnowledgeFiles:
    """The files below the base path.

    Markdown (``.md``, ``.markdown``) and plain text (``.txt``) are documents; files and folders whose name
    begins with a dot are passed over.

    :param base_path: The folder.
    :param max_file_bytes: Larger files are skipped.
    """

    def __init__(self, base_path: Path, *, max_file_bytes: int = DEFAULT_MAX_FILE_BYTES) -> None:
        self.base_path = base_path
        self.max_file_bytes = max_file_bytes
        self._read_parsed = lru_cache(maxsize=_CACHED_BODIES)(self._parse)

    @property
    def root_name(self) -> str:
        """The base path's own name, with which every source begins."""
        return self.base_path.resolve().name

    def scan(self) -> Iterator[str | SkippedFile]:
        """List the documents, in order of their paths.

        :returns: File paths relative to the base path; a ``SkippedFile`` for what looks like a document and
            can't be one.
        :raises KnowledgeBaseError: If the base path isn't a folder or can't be read.
        """
        for found in self.scan_states():
            if isinstance(found, SkippedFile):
                yield found
            elif isinstance(found, FoundFile):
                yield found.file_path

    def scan_states(self) -> Iterator[FoundFile | SkippedFile | Leftover]:
        """List the documents with their states, and what uploads may have left behind.

        :returns: What there is, in order of the paths.
        :raises KnowledgeBaseError: If the base path isn't a folder or can't be read.
        """
        if not self.base_path.is_dir():
            raise KnowledgeBaseError(
                f"there is no knowledge base folder at '{self.base_path}': set knowledge.base-path, or run "
                "`knowledge-lookup init` to create one with the bundled documents"
            )
        for found in scan_folder(self.base_path):
            reason = self.too_large(found.state.size) if isinstance(found, FoundFile) else None
            yield found if reason is None else SkippedFile(found.file_path, reason)

    def too_large(self, size: int) -> str | None:
        """Say why a file of some size can't be a document.

        :param size: Bytes.
        :returns: The reason; None for a size that is allowed.
        """
        if size <= self.max_file_bytes:
            return None
        return (
            f"it has {size:,} bytes, at most {self.max_file_bytes:,} are indexed: split it, or raise "
            "knowledge.max-file-bytes"
        )

    def write(self, file_path: str, raw: bytes) -> None:
        """Write a file so that it is there wholly or not at all.

        :param file_path: Path relative to the base path; must have been checked.
        :param raw: Its bytes.
        :raises KnowledgeBaseError: If it can't be written; an older version is then still there.
        """
        target = self.base_path / file_path
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{TEMPORARY_SUFFIX}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise KnowledgeBaseError(
                f"'{target}' can't be written ({error.strerror}): check the folder's permissions and free space"
            ) from error

    def remove_leftover(self, leftover: Leftover) -> bool:
        """Delete what an upload that was killed while writing left behind; one of less than an hour may be alive.

        :param leftover: What :meth:`scan_states` found.
        :returns: Whether it was old enough to be deleted.
        """
        if time.time() - leftover.modified_ns / 1e9 <= _TEMPORARY_KEPT_SECONDS:
            return False
        (self.base_path / leftover.file_path).unlink(missing_ok=True)
        return True

    def has(self, file_path: str) -> bool:
        """Tell whether a document's file is there.

        :param file_path: Path relative to the base path.
        :returns: True for a file.
        """
        return (self.base_path / file_path).is_file()

    def read_elsewhere(self, path: Path) -> bytes:
        """Read a file outside the base path that is to become a document.

        :param path: The file.
        :returns: Its bytes; of a device, which may have no end, no more than tell that it is too large.
        :raises UnreadableDocumentError: If it is too large.
        :raises OSError: If it can't be read.
        """
        with path.open("rb") as file:
            reason = self.too_large(os.fstat(file.fileno()).st_size)
            if reason is not None:
                raise UnreadableDocumentError(f"{path.name}: {reason}")
            return file.read(self.max_file_bytes + 1)

    def read(self, file_path: str) -> bytes:
        """Read a file.

        :param file_path: Path relative to the base path.
        :returns: Its bytes.
        :raises DocumentNotFoundError: If it is gone or can't be read.
        """
        path = f"{self.base_path}/{file_path}"
        # Since the folder was read something else may have come in the place of the file: a link that leads out, or a
        # pipe, of which opening wouldn't return.
        if not os.path.realpath(path).startswith(os.path.join(os.path.realpath(self.base_path), "")):
            raise DocumentNotFoundError(
                f"document '{file_path}' leads through a symbolic link out of the knowledge base"
            )
        try:
            with open(os.open(path, os.O_RDONLY | _DONT_WAIT), "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DocumentNotFoundError(f"document '{file_path}' isn't a regular file any more")
                return file.read()
        except OSError as error:
            raise DocumentNotFoundError(
                f"document '{file_path}' can't be read from '{self.base_path}' ({error.strerror}): "
                "run `knowledge-lookup sync` to bring the index up to date"
            ) from error

    def read_body(self, file_path: str) -> str:
        r"""Read a document without its front matter; the parsed text is kept until the file changes.

        :param file_path: Path relative to the base path.
        :returns: The text, lines separated by ``\n``.
        :raises DocumentNotFoundError: If the document is gone or can't be read.
        """
        try:
            # A plain string: each exact hit passes here, and pathlib takes longer than the look at the file.
            status = os.stat(f"{self.base_path}/{file_path}")
        except OSError as error:
            raise DocumentNotFoundError(
                f"document '{file_path}' is no longer in '{self.base_path}' ({error.strerror}): "
                "run `knowledge-lookup sync` to bring the index up to date"
            ) from error
        # By the same marks as a sync tells that a file has changed: a modification time can be set back.
        state = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        return self._read_parsed(file_path, state)

    def _parse(self, file_path: str, _state: tuple[int, ...]) -> str:
        try:
            return read_body(self.read(file_path), file_path=file_path)
        except UnreadableDocumentError as error:
            raise DocumentNotFoundError(str(error)) from error
