"""From the bytes of a document file to text, and what there is to say about it.

Nothing here reads a file. What is mended is warned about; only what has no honest reading is refused.
"""

import codecs
import re
from collections import Counter
from dataclasses import dataclass

from knowledge_lookup.retrievers.errors import KnowledgeLookupError

_MAX_WARNINGS = 50

# The four-byte mark begins with the two-byte one, so the order matters.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Bytes that aren't UTF-8, as `surrogateescape` decodes them.
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]+")

# A text in UTF-8 with a few damaged bytes has far more intact characters than damaged bytes; GBK read as UTF-8 has at
# most 0.6 intact ones for each.
_INTACT_PER_DAMAGED = 4

# Of the non-ASCII characters of Chinese technical text, at least 0.85 are common hanzi or punctuation of GB2312; of
# Big5, Shift-JIS and Cyrillic text read as GB18030 less than half are.
_LEAST_COMMON_SHARE = 0.7

_MOST_DAMAGED_SHARE = 0.01

_BINARY = "a binary file or UTF-16 without a mark (it has NUL characters), save it as UTF-8 text"


class UnreadableDocumentError(KnowledgeLookupError):
    """A document file that has no honest reading; it is skipped, and the reason reported."""


@dataclass(frozen=True)
class FrontMatterWarning:
    """Something in a document file that was mended or left out.

    :param file_path: The file, relative to the base path.
    :param line: The line it begins at, counted from 1; None if it is about the whole file.
    :param message: What was found and how it was read; one line.
    """

    file_path: str
    line: int | None
    message: str

    def to_dict(self) -> dict[str, str | int | None]:
        """Return the warning as JSON values."""
        return {"file": self.file_path, "line": self.line, "message": self.message}

    def __str__(self) -> str:
        return (
            f"{self.file_path}: {self.message}"
            if self.line is None
            else f"{self.file_path}:{self.line}: {self.message}"
        )


class WarningLog:
    """Collects the warnings about one file, at most 50 and then their number.

    :param file_path: The file that the warnings name.
    """

    def __init__(self, file_path: str) -> None:
        self.file_path = file_path
        self._warnings: list[FrontMatterWarning] = []
        self._left_out = 0

    def add(self, line: int | None, message: str) -> None:
        """Add a warning.

        :param line: The line it is about, counted from 1; None for the whole file.
        :param message: What was found and how it was read.
        """
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(FrontMatterWarning(self.file_path, line, message))
        else:
            self._left_out += 1

    def all(self) -> tuple[FrontMatterWarning, ...]:
        """Give the warnings, in the order in which they were found.

        :returns: The warnings; the last one says how many more there were.
        """
        if not self._left_out:
            return tuple(self._warnings)
        rest = FrontMatterWarning(self.file_path, None, f"{self._left_out} more warnings")
        return (*self._warnings, rest)


def decode_source(raw: bytes, *, log: WarningLog) -> str:
    """Decode a document file.

    UTF-8 is expected; a byte order mark decides for itself; Chinese text in GB18030 (GBK, GB2312) is recognized, with
    a warning; a few damaged bytes in UTF-8 become U+FFFD, with a warning.

    :param raw: The bytes of the file.
    :param log: Receives the warnings and names the file.
    :returns: The text, without byte order mark, with ``\\n`` for every line end.
    :raises UnreadableDocumentError: If the file is binary or its encoding can't be told.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if raw.startswith(mark):
            # A second mark is left where files with marks were joined or converted twice.
            return _unify_line_ends(_decode_marked(raw.removeprefix(mark), encoding, log).lstrip("\ufeff"))
    return _unify_line_ends(_decode_unmarked(raw, log))


def _decode_marked(raw: bytes, encoding: str, log: WarningLog) -> str:
    if encoding == "utf-8":
        return _decode_unmarked(raw, log)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableDocumentError(
            f"{log.file_path}: begins with the mark of {encoding} but isn't {encoding}, save it as UTF-8"
        ) from error
    if "\0" in text:
        raise UnreadableDocumentError(f"{log.file_path}: {_BINARY}")
    return text


def _decode_unmarked(raw: bytes, log: WarningLog) -> str:
    if b"\0" in raw:
        raise UnreadableDocumentError(f"{log.file_path}: {_BINARY}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return _decode_damaged(raw, log, error)


def _decode_damaged(raw: bytes, log: WarningLog, error: UnicodeDecodeError) -> str:
    escaped = raw.decode("utf-8", errors="surrogateescape")
    damaged = sum(len(run) for run in _ESCAPED_BYTES.findall(escaped))
    intact = sum(char > "\x7f" for char in escaped) - damaged
    if intact < _INTACT_PER_DAMAGED * damaged:
        chinese = _decode_chinese(raw)
        if chinese is not None:
            log.add(None, "not UTF-8, read as GB18030 (GBK); save it as UTF-8")
            return chinese
        if damaged > _MOST_DAMAGED_SHARE * len(raw):
            raise UnreadableDocumentError(
                f"{log.file_path}: neither UTF-8 nor GB18030 (byte {error.start} is the first that isn't UTF-8), "
                "save it as UTF-8"
            ) from error
    _warn_of_damage(escaped, damaged, log)
    return _ESCAPED_BYTES.sub("\ufffd", escaped)


def _decode_chinese(raw: bytes) -> str | None:
    try:
        text = raw.decode("gb18030")
    except UnicodeDecodeError:
        return None
    others = {char: count for char, count in Counter(text).items() if char > "\x7f"}
    common = sum(count for char, count in others.items() if _is_common_chinese(char))
    return text if common >= _LEAST_COMMON_SHARE * sum(others.values()) else None


def _is_common_chinese(char: str) -> bool:
    # GB2312 rows 1 to 3 hold punctuation and full-width Latin, rows 16 to 55 the 3,755 common hanzi.
    encoded = char.encode("gb2312", errors="ignore")
    return len(encoded) == 2 and (0xA1 <= encoded[0] <= 0xA3 or 0xB0 <= encoded[0] <= 0xD7)


def _warn_of_damage(escaped: str, damaged: int, log: WarningLog) -> None:
    lines = [
        number
        for number, line in enumerate(_unify_line_ends(escaped).split("\n"), start=1)
        if _ESCAPED_BYTES.search(line)
    ]
    shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
    log.add(lines[0], f"not UTF-8 throughout: bytes replaced by U+FFFD: {damaged}, in lines {shown}")


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
