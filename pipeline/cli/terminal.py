"""Writing to a terminal what anybody may have written.

Documents, their names, queries and error messages hold whatever their authors put there: escape codes that fill the
clipboard, move the cursor or paint over what was printed before, and marks that turn a line around. A terminal gets
them written out. It also gets only what its encoding has.
"""

import json
import logging
import sys
import unicodedata
from typing import TextIO

_LINES = "\n\t"
# Of format characters, those that belong to words and to emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    r"""Write out what a terminal would act on or not show.

    :param text: Any text.
    :returns: The text on the same lines; ESC is ``\x1b``, a mark that turns the line ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _LINES else _shown(char) for char in text)


def write(text: str, stream: TextIO) -> None:
    """Write lines for people; what the stream's encoding doesn't have becomes ``?``.

    :param text: The lines.
    :param stream: Where to.
    """
    encoding = stream.encoding or "utf-8"
    stream.write(printable(text).encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


def write_json(text: str, stream: TextIO) -> None:
    """Write JSON; what the stream's encoding doesn't have is escaped, so that it says the same.

    :param text: JSON.
    :param stream: Where to.
    """
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        text = "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)
    stream.write(text + "\n")
    stream.flush()


class PrintableFormatter(logging.Formatter):
    """Formats log lines for a terminal: a query with escape codes is logged as well."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record.

        :param record: The record.
        :returns: What a terminal may get.
        """
        line = printable(super().format(record))
        encoding = sys.stderr.encoding or "utf-8"
        return line.encode(encoding, "replace").decode(encoding)


def _shown(char: str) -> str:
    # White space that isn't a plain space, such as U+3000, is no danger.
    if char in _JOINERS or unicodedata.category(char) in {"Zs", "Co", "Cn"}:
        return char
    return char.encode("ascii", "backslashreplace").decode() if char > "\xff" else f"\\x{ord(char):02x}"
