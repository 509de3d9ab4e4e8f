"""Where an uploaded document may be saved: below the base path, under a name that every system can hold."""

import unicodedata
from pathlib import Path, PurePosixPath

from knowledge_lookup.pipeline.ingestion.folder_scan import DOCUMENT_SUFFIXES
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

_MOST_BYTES_OF_A_NAME = 200
"""File systems allow 255 bytes; the temporary name that a file is first written under is longer than its own."""
_MOST_CHARACTERS_OF_A_PATH = 1024


class UnsafePathError(KnowledgeLookupError):
    """A category or a file name that would lead out of the knowledge base, or that can't be stored."""


def safe_file_path(*parts: str) -> str:
    """Put a path together from a category and a file name, or from the folders of an import.

    :param parts: Relative pieces, each of one or several names separated by ``/``; empty ones are left out.
    :returns: The path relative to the base path, Unicode NFC.
    :raises UnsafePathError: If a name is empty, ``.`` or ``..``, begins with a dot, is too long or holds NUL, control
        characters, a backslash or what isn't valid Unicode; if the path is absolute; or if the ending isn't one of a
        document.
    """
    given = "/".join(part for part in parts if part)
    if len(given) > _MOST_CHARACTERS_OF_A_PATH:
        # Before anything else is done with it.
        raise UnsafePathError(
            f"{given[:60]!a}... has {len(given)} characters, at most {_MOST_CHARACTERS_OF_A_PATH} are allowed"
        )
    for part in parts:
        if part.startswith("/") or part[1:2] == ":":
            raise UnsafePathError(f"{part!a} is an absolute path: give a name relative to the knowledge base")
    names = unicodedata.normalize("NFC", given).split("/")
    for name in names:
        reason = _why_not(name)
        if reason is not None:
            raise UnsafePathError(f"{given!a} can't be a path in the knowledge base: {reason}")
    path = "/".join(names)
    if PurePosixPath(path).suffix.lower() not in DOCUMENT_SUFFIXES:
        raise UnsafePathError(
            f"{given!a} isn't a document: its name must end in one of {', '.join(sorted(DOCUMENT_SUFFIXES))}"
        )
    return path


def inside(base_path: Path, file_path: str) -> Path:
    """Find the place of a document on disk, and see that no symbolic link leads out of the knowledge base.

    :param base_path: The knowledge base.
    :param file_path: What :func:`safe_file_path` returned.
    :returns: The place; its folder may not exist yet.
    :raises UnsafePathError: If a folder on the way is a symbolic link to somewhere else.
    """
    target = base_path / file_path
    root = base_path.resolve()
    if not target.parent.resolve().is_relative_to(root):
        raise UnsafePathError(
            f"'{file_path}' leads through a symbolic link out of the knowledge base at '{base_path}': "
            "choose another category"
        )
    return target


def _why_not(name: str) -> str | None:
    reasons = {
        "a name in it is empty": not name.strip(),
        f"the name {name!a} begins with a dot": name.startswith("."),
        f"the name {name!a} holds a backslash": "\\" in name,
        f"the name {name!a} holds a control character, a line end or isn't valid Unicode": _has_unprintable(name),
        f"the name {name!a} begins or ends with white space": name != name.strip(),
    }
    for reason, applies in reasons.items():
        if applies:
            return reason
    size = len(name.encode())
    return (
        f"a name has {size} bytes, at most {_MOST_BYTES_OF_A_NAME} are allowed"
        if size > _MOST_BYTES_OF_A_NAME
        else None
    )


def _has_unprintable(name: str) -> bool:
    return any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in name)
