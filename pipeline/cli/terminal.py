"""Writing to a terminal what anybody may have written.

Documents, their names, queries and error messages hold whatever their authors put there: escape codes that fill the
clipboard, move the cursor or paint over what was printed before, and marks that turn a line around. A terminal gets
them written out. It also gets only what its encoding has.
"""

import json
import logging
import sys
from typing import TextIO

from knowledge_lookup.pipeline.visible_text import printable


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
