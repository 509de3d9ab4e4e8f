"""The folder of documents: which files it has, and their texts."""

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError, parse_front_matter
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError

DOCUMENT_SUFFIXES = frozenset({".md", ".markdown", ".txt"})
DEFAULT_MAX_FILE_BYTES = 2_000_000
_CACHED_BODIES = 256
_TEMPORARY_SUFFIX = ".uploading"
_TEMPORARY_KEPT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that isn't indexed, and why.

    :param file_path: Path relative to the base path.
    :param reason: One line for people.
    """

    file_path: str
    reason: str


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
        root = self.base_path
        if not root.is_dir():
            raise KnowledgeBaseError(
                f"there is no knowledge base folder at '{root}': set knowledge.base-path, or run "
                "`knowledge-lookup init` to create one with the bundled documents"
            )
        real_root = root.resolve()
        found: list[tuple[str, Path]] = []
        for folder, subfolders, names in os.walk(root, onerror=_raise_unreadable):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            for name in names:
                path = Path(folder) / name
                if not name.startswith(".") and path.suffix.lower() in DOCUMENT_SUFFIXES:
                    found.append((path.relative_to(root).as_posix(), path))
        for file_path, path in sorted(found):
            reason = _why_not(path, real_root) or self.too_large(path.stat().st_size)
            yield file_path if reason is None else SkippedFile(_printable(file_path), reason)

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
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{_TEMPORARY_SUFFIX}")
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

    def remove_leftovers(self) -> list[str]:
        """Delete what uploads that were killed while writing left behind.

        :returns: Paths relative to the base path of what was deleted.
        """
        removed = []
        for path in self.base_path.rglob(f".*{_TEMPORARY_SUFFIX}"):
            if time.time() - path.stat().st_mtime > _TEMPORARY_KEPT_SECONDS:
                path.unlink(missing_ok=True)
                removed.append(path.relative_to(self.base_path).as_posix())
        return sorted(removed)

    def has(self, file_path: str) -> bool:
        """Tell whether a document's file is there.

        :param file_path: Path relative to the base path.
        :returns: True for a file.
        """
        return (self.base_path / file_path).is_file()

    def read(self, file_path: str) -> bytes:
        """Read a file.

        :param file_path: Path relative to the base path.
        :returns: Its bytes.
        :raises DocumentNotFoundError: If it is gone or can't be read.
        """
        try:
            return (self.base_path / file_path).read_bytes()
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
            status = (self.base_path / file_path).stat()
        except OSError as error:
            raise DocumentNotFoundError(
                f"document '{file_path}' is no longer in '{self.base_path}' ({error.strerror}): "
                "run `knowledge-lookup sync` to bring the index up to date"
            ) from error
        return self._read_parsed(file_path, status.st_mtime_ns, status.st_size)

    def _parse(self, file_path: str, _modified_ns: int, _size: int) -> str:
        try:
            return parse_front_matter(self.read(file_path), file_path=file_path).body
        except UnreadableDocumentError as error:
            raise DocumentNotFoundError(str(error)) from error


def _why_not(path: Path, real_root: Path) -> str | None:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return "its name isn't valid UTF-8: rename it"
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "it is a symbolic link to nothing"
    if not target.is_relative_to(real_root):
        return "it is a symbolic link out of the knowledge base: copy the file instead"
    if not target.is_file():
        return "it isn't a regular file"
    return None


def _printable(file_path: str) -> str:
    return file_path.encode("utf-8", "replace").decode("utf-8")


def _raise_unreadable(error: OSError) -> None:
    raise KnowledgeBaseError(f"folder '{error.filename}' can't be read ({error.strerror}): check its permissions")
