"""What a folder of documents holds: the files with their states, in order of their paths, one look at each."""

import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from knowledge_lookup.pipeline.errors import KnowledgeBaseError

DOCUMENT_SUFFIXES = frozenset({".md", ".markdown", ".txt"})
TEMPORARY_SUFFIX = ".uploading"
"""Ending of the name that a file has while it is being written; the name begins with a dot as well."""


class FileState(NamedTuple):
    """What tells, without reading it, whether a file is still the same.

    :param modified_ns: Time of the last change of the content, in nanoseconds since 1970.
    :param changed_ns: Time of the last change of content, name or rights, which no program can set.
    :param size: Bytes.
    :param inode: The file's number in its file system: another file under the same name has another one.
    """

    modified_ns: int
    changed_ns: int
    size: int
    inode: int


class FoundFile(NamedTuple):
    """A file that is a document.

    :param file_path: Path relative to the folder, ``/`` as separator.
    :param state: Its state; of a symbolic link that of the file it leads to.
    """

    file_path: str
    state: FileState


class Leftover(NamedTuple):
    """A file that was being written when its writer was killed, or that is being written.

    :param file_path: Path relative to the folder.
    :param modified_ns: Time of its last change, in nanoseconds since 1970.
    """

    file_path: str
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that isn't indexed, and why.

    :param file_path: Path relative to the base path.
    :param reason: One line for people.
    """

    file_path: str
    reason: str


def scan_folder(root: Path) -> Iterator[FoundFile | SkippedFile | Leftover]:
    """List what is below a folder. Names that begin with a dot and links to folders are passed over.

    Only symbolic links are resolved: what is reached through real folders is inside.

    :param root: The folder.
    :returns: Documents, in order of their paths; what looks like a document and can't be one; what was being written.
    :raises KnowledgeBaseError: If a folder can't be read.
    """
    real_root = root.resolve()
    # Folders that are being read, outermost first: a recursion would end at a thousand.
    reading = [("", iter(_entries(os.fspath(root))))]
    while reading:
        prefix, entries = reading[-1]
        for entry in entries:
            if entry.is_dir():
                if not entry.is_symlink() and not entry.name.startswith("."):
                    reading.append((f"{prefix}{entry.name}/", iter(_entries(entry.path))))
                    break
                continue
            found = _judge(entry, prefix + entry.name, real_root)
            if found is not None:
                yield found
        else:
            reading.pop()


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            # As whole paths are sorted, in which a slash follows the name of a folder.
            return sorted(entries, key=lambda entry: f"{entry.name}/" if entry.is_dir() else entry.name)
    except OSError as error:
        raise KnowledgeBaseError(
            f"folder '{error.filename}' can't be read ({error.strerror}): check its permissions"
        ) from error


def _judge(entry: "os.DirEntry[str]", file_path: str, real_root: Path) -> FoundFile | SkippedFile | Leftover | None:
    name = entry.name
    is_hidden = name.startswith(".")
    try:
        if is_hidden and name.endswith(TEMPORARY_SUFFIX):
            return Leftover(file_path, entry.stat(follow_symlinks=False).st_mtime_ns)
        if is_hidden or name[name.rfind(".") :].lower() not in DOCUMENT_SUFFIXES:
            return None
        unusable = _unusable_name(file_path)
        if unusable is not None:
            return unusable
        if entry.is_symlink():
            return _follow(entry, file_path, real_root)
        return _found(file_path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None  # deleted since the folder was read


def _follow(entry: "os.DirEntry[str]", file_path: str, real_root: Path) -> FoundFile | SkippedFile:
    try:
        target = Path(entry.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return SkippedFile(file_path, "it is a symbolic link to nothing")
    if not target.is_relative_to(real_root):
        return SkippedFile(file_path, "it is a symbolic link out of the knowledge base: copy the file instead")
    return _found(file_path, target.stat())


def _found(file_path: str, status: os.stat_result) -> FoundFile | SkippedFile:
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile(file_path, "it isn't a regular file")
    return FoundFile(file_path, FileState(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))


def _unusable_name(file_path: str) -> SkippedFile | None:
    if not _is_utf8(file_path):
        printable = file_path.encode("utf-8", "replace").decode("utf-8")
        return SkippedFile(printable, "its name isn't valid UTF-8: rename it")
    if _has_control_characters(file_path):
        return SkippedFile(repr(file_path)[1:-1], "its name holds a control character: rename it")
    return None


def _has_control_characters(text: str) -> bool:
    # A line end in a name would be one in every list and label that names the file.
    return not text.isprintable() and any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in text)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
