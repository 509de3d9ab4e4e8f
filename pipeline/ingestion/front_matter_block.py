"""Where the front matter of a document is: which lines belong to it, and where the body begins."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from knowledge_lookup.pipeline.ingestion.source_file import UnreadableDocumentError, WarningLog

MAX_BLOCK_BYTES = 64 * 1024

# The spellings of the fields that mean something here, and the field that each means.
KNOWN_FIELDS = {
    "title": "title",
    "keywords": "keywords",
    "summary": "summary",
    "category": "category",
    "covers": "covers",
    "when_to_retrieve": "when_to_retrieve",
    "when-to-retrieve": "when_to_retrieve",
    "whenToRetrieve": "when_to_retrieve",
}

_OPENING = re.compile(r"-{3,}\s*")
_CLOSING = re.compile(r"(-{3,}|\.{3})\s*")
_KEY_END = re.compile(r":(?=\s|$)")
_QUOTED_KEY = re.compile(r"""("[^"]*"|'[^']*')\s*:(?=\s|$)""")
_HASTY_KEY = re.compile(rf"({'|'.join(map(re.escape, KNOWN_FIELDS))})\s*[:：]")
_NEVER_A_KEY = tuple("#?,[]{}&*!|>%@`\"'")
_LONGEST_KEY = 40
_MOST_KEY_WORDS = 3


class KeyLine(NamedTuple):
    """A line ``key: value``.

    :param key: The key, without quotes.
    :param rest: What stands behind the colon.
    :param is_hasty: True if YAML wouldn't see a key: ``title:x`` without a space, or a full-width colon. Only the known
        fields are taken for keys then.
    """

    key: str
    rest: str
    is_hasty: bool


@dataclass(frozen=True)
class Block:
    """The front matter of a document.

    :param lines: Its lines, without the delimiters.
    :param first_line: The number of the first of them in the file, counted from 1.
    :param rest: The lines behind it, the closing delimiter among them if there is one.
    """

    lines: list[str]
    first_line: int
    rest: list[str]

    @property
    def body(self) -> str:
        """The text behind the block."""
        is_closed = bool(self.rest) and _CLOSING.fullmatch(self.rest[0]) is not None
        return "\n".join(self.rest[1:] if is_closed else self.rest)


def find_block(text: str, *, log: WarningLog) -> Block | None:
    """Find the front matter.

    It begins with a line ``---`` before any other text, ends with ``---`` or ``...``, and holds a key. Without an end
    it goes on as long as its lines look like front matter. A rule in the text, even in its first line, isn't one.

    :param text: The document.
    :param log: Receives a warning if the end is missing, or if what looks like a block holds no key.
    :returns: The block; None if the document has none.
    :raises UnreadableDocumentError: If the block is longer than 64 KiB.
    """
    lines = text.split("\n")
    opening = next((number for number, line in enumerate(lines) if line.strip()), None)
    if opening is None or not _OPENING.fullmatch(lines[opening]):
        return None
    start = opening + 1
    end = _find_closing(lines, start)
    if end is None:
        return _cut(Block(lines[start:], start + 1, []), log)
    block = Block(lines[start:end], start + 1, lines[end:])
    if not _holds_keys(block.lines):
        log.add(start, f"the lines up to {lines[end].strip()} in line {end + 1} hold no `key: value`, they stay text")
        return None
    return block


def cut_where_the_end_is_missing(block: Block, *, log: WarningLog) -> Block:
    """Shorten a block that has no end of its own, so that a rule further down was taken for it.

    :param block: A block that isn't YAML as it stands.
    :param log: Receives a warning if the block is shortened.
    :returns: The lines up to the first blank one, if prose follows it and no known field does; otherwise the block.
    """
    behind = block.lines[_end_of_run(block.lines) :]
    if not behind or behind[0].strip() or any(_known_key(line) for line in behind):
        return block
    has_prose = any(
        line[:1].strip() and not line.startswith(("#", "]", "}")) and not _is_entry(line) for line in behind
    )
    shorter = _cut(block, log) if has_prose else None
    return block if shorter is None else shorter


def is_one_run(lines: list[str]) -> bool:
    """Tell whether lines are front matter throughout, so that :func:`cut_where_the_end_is_missing` leaves them alone.

    :param lines: The lines of a block.
    :returns: False if there is a blank line, or one that doesn't look like front matter.
    """
    return _end_of_run(lines) == len(lines)


def match_key(line: str) -> KeyLine | None:
    """Read a line as ``key: value``.

    :param line: A line without leading white space.
    :returns: Its parts; None if it is something else.
    """
    quoted = _QUOTED_KEY.match(line)
    if quoted is not None:
        return KeyLine(quoted[1][1:-1], line[quoted.end() :], is_hasty=False)
    colon = _KEY_END.search(line)
    if colon is not None and not line.startswith(_NEVER_A_KEY) and not is_list_item(line):
        key = line[: colon.start()].strip()
        if key:
            return KeyLine(key, line[colon.end() :], is_hasty=False)
    hasty = _HASTY_KEY.match(line)
    return None if hasty is None else KeyLine(hasty[1], line[hasty.end() :], is_hasty=True)


def is_list_item(line: str) -> bool:
    """Tell whether a line begins an item of a YAML list.

    :param line: A line without leading white space.
    :returns: True for ``- item`` and for a single ``-``.
    """
    return line.startswith(("- ", "-\t")) or line.rstrip() == "-"


def _cut(block: Block, log: WarningLog) -> Block | None:
    end = _end_of_run(block.lines)
    run = block.lines[:end]
    if _size(run) > MAX_BLOCK_BYTES:
        raise UnreadableDocumentError(
            f"{log.file_path}:{block.first_line}: the front matter is longer than {MAX_BLOCK_BYTES} bytes, shorten it"
        )
    if not any(_known_key(line) for line in run):
        if run:
            log.add(block.first_line, "this looks like front matter that isn't closed by ---; it stays text")
        return None
    last_line = block.first_line + end - 1
    log.add(
        block.first_line - 1,
        f"the front matter that begins here isn't closed by ---; it was read up to line {last_line}",
    )
    return Block(run, block.first_line, block.lines[end:] + block.rest)


def _find_closing(lines: list[str], start: int) -> int | None:
    size = 0
    for number in range(start, len(lines)):
        if _CLOSING.fullmatch(lines[number]):
            return number
        size += _size([lines[number]])
        if size > MAX_BLOCK_BYTES:
            return None
    return None


def _size(lines: list[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _holds_keys(lines: list[str]) -> bool:
    """Tell a block from prose between two rules, by its first line or by a known field; a blank block is one."""
    texts = [line.strip() for line in lines if line.strip()]
    if not texts or any(_known_key(text) for text in texts):
        return True
    first = next((text for text in texts if not text.startswith("#")), "")
    return _is_short_key(first) or _is_flow_mapping(texts)


def _is_flow_mapping(texts: list[str]) -> bool:
    return texts[0].startswith("{") and not texts[0].startswith("{{") and texts[-1].endswith("}")


def _end_of_run(lines: list[str]) -> int:
    """Count the lines from the top on that can only be front matter: keys, and what is indented or listed below.

    Counting ends where the block is too long anyway.
    """
    takes_items = False
    size = 0
    for number, line in enumerate(lines):
        size += _size([line])
        if size > MAX_BLOCK_BYTES:
            return number + 1
        if number > 0 and line[:1] in {" ", "\t"} and line.strip():
            continue
        if takes_items and is_list_item(line):
            continue
        if not _is_short_key(line):
            return number
        key = match_key(line)
        takes_items = key is not None and not key.rest.strip()
    return len(lines)


def _known_key(line: str) -> bool:
    key = match_key(line)
    return key is not None and key.key in KNOWN_FIELDS


def _is_short_key(line: str) -> bool:
    # "Please note what follows: ..." is prose.
    key = match_key(line)
    return key is not None and len(key.key) <= _LONGEST_KEY and len(key.key.split()) <= _MOST_KEY_WORDS


def _is_entry(line: str) -> bool:
    return match_key(line) is not None or is_list_item(line)
