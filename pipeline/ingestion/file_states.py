"""A cache of what files held when they were last read, so that a sync without changes reads none of them.

It works as git's index does: a file with the same times, size and inode has the same content, unless it was changed so
shortly before it was looked at that a second change could have got the same time. Such an entry isn't kept, and the
file is read again. The cache holds nothing that isn't in the files: it may be deleted at any time.
"""

import json
import os
import time
import uuid
import zlib
from pathlib import Path
from typing import Any

from knowledge_lookup.pipeline.ingestion.folder_scan import FileState, FoundFile

_FORMAT = "knowledge-lookup file states"
_VERSION = 1
_RACY_NS = 2_000_000_000
"""File systems count time in steps of up to two seconds."""

_Entry = tuple[FileState, str]


class FileStates:
    """Knows the content hashes of files whose state hasn't changed; one sync at a time uses it.

    :param path: The cache's file; its folder is made when it is first written.
    :param base_path: The folder of the documents: a cache of another one isn't used.
    """

    def __init__(self, path: Path, *, base_path: Path) -> None:
        self._path = path
        self._base_path = base_path
        self._looked_ns = 0
        self._before: dict[str, _Entry] = {}
        self._now: dict[str, _Entry] = {}

    def load(self) -> None:
        """Read the cache, before any file is looked at; one that is damaged or another's counts as empty."""
        self._looked_ns = time.time_ns()
        self._now = {}
        try:
            header_line, _, body = self._path.read_bytes().partition(b"\n")
            is_ours = json.loads(header_line) == self._header(body)
            entries: dict[str, list[Any]] = json.loads(body) if is_ours else {}
            self._before = {path: (FileState(*state), known) for path, (*state, known) in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            self._before = {}

    def hash_of(self, found: FoundFile) -> str | None:
        """Tell what a file holds, if it is the same as when it was last read.

        :param found: The file.
        :returns: The content hash; None when the file must be read.
        """
        entry = self._before.get(found.file_path)
        if entry is None or entry[0] != found.state:
            return None
        self._now[found.file_path] = entry
        return entry[1]

    def note(self, found: FoundFile, content_hash: str) -> None:
        """Keep what a file holds.

        :param found: The file as it was found after :meth:`load` and before it was read.
        :param content_hash: The hash of what was read.
        """
        if max(found.state.modified_ns, found.state.changed_ns) + _RACY_NS < self._looked_ns:
            self._now[found.file_path] = (found.state, content_hash)

    def save(self) -> None:
        """Write the cache if it has changed; files that weren't found are dropped. A failure is none of a sync's."""
        if self._now == self._before:
            return
        body = json.dumps(
            {path: (*state, known) for path, (state, known) in self._now.items()}, ensure_ascii=False
        ).encode()
        content = json.dumps(self._header(body)).encode() + b"\n" + body
        temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex[:8]}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(content)
                os.replace(temporary, self._path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError:
            return  # the next sync reads the files instead
        self._before = self._now

    def _header(self, body: bytes) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "basePath": os.path.abspath(self._base_path),
            "checksum": zlib.crc32(body),
        }
