"""Reading a front matter block that is not quite YAML.

Each entry (a key with what stands below it) is read by itself, so that one mistake costs one value and not all of them,
and the time stays linear in the length of the block. An entry that isn't YAML becomes the text that its author most
likely meant: ``title: Foo: bar`` is "Foo: bar".
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

from knowledge_lookup.pipeline.ingestion.front_matter_block import is_list_item, match_key
from knowledge_lookup.pipeline.ingestion.source_file import WarningLog
from knowledge_lookup.pipeline.ingestion.yaml_values import (
    Listing,
    Pair,
    Scalar,
    Table,
    YamlReadError,
    YamlValue,
    read_yaml,
)

_LONGEST_SHOWN_VALUE = 60
_LINE_SEPARATORS = "\x0b\x0c\x85\u2028\u2029"
_BYTE_ORDER_MARK = "\ufeff"
_NO_YAML_CHARACTER = re.compile("[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass
class _Entry:
    """A key with everything that belongs to it.

    :param line: The line of the key, counted from 1 in the file.
    :param head: That line, as YAML should see it.
    :param value: What stands behind the colon in it.
    """

    key: str
    line: int
    head: str
    value: str
    below: list[str] = field(default_factory=list)


def replace_forbidden_characters(lines: list[str], *, first_line: int, log: WarningLog) -> list[str]:
    """Replace what YAML takes for a line end or refuses: control characters, line separators, byte order marks.

    :param lines: The lines of the block.
    :param first_line: The number of the first of them in the file.
    :param log: Receives a warning for each line that changes.
    :returns: The lines, with U+FFFD for control characters and a space for separators.
    """
    clean = []
    for number, line in enumerate(lines, start=first_line):
        clean.append(_NO_YAML_CHARACTER.sub(_replacement, line))
        if clean[-1] != line:
            log.add(number, "control characters that YAML doesn't allow were replaced")
    return clean


def read_entries(lines: list[str], *, first_line: int, log: WarningLog) -> tuple[list[Pair], list[str]]:
    """Read a block entry by entry.

    :param lines: The lines of the block.
    :param first_line: The number of the first of them in the file.
    :param log: Receives a warning for each value that was mended and for lines that belong to no key.
    :returns: The keys with their values, and the lines that belong to no key.
    """
    entries, stray = _split_entries(textwrap.dedent("\n".join(lines)).split("\n"), first_line, log)
    return [pair for entry in entries for pair in _read_entry(entry, log)], stray


def shorten(text: str) -> str:
    """Quote a text for a warning.

    :param text: Any text.
    :returns: At most 60 characters of it, in quotes, without line breaks.
    """
    return repr(text if len(text) <= _LONGEST_SHOWN_VALUE else f"{text[:_LONGEST_SHOWN_VALUE]}...")


def unquote(text: str) -> str:
    """Take off quotes that enclose a text.

    :param text: A text as it is written.
    :returns: The text without white space around it and without a pair of quotes around that.
    """
    text = text.strip()
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
        return text
    # In 'It's done' and "a "b" c" a word follows the next quote; in "a" and "b" the next one closes the first.
    inside = text[1:-1]
    following = inside.partition(text[0])[2]
    return inside if text[0] not in inside or following[:1].isalnum() else text


def _replacement(match: re.Match[str]) -> str:
    if match[0] == _BYTE_ORDER_MARK:
        return ""
    return " " if match[0] in _LINE_SEPARATORS else "\ufffd"


def _split_entries(lines: list[str], first_line: int, log: WarningLog) -> tuple[list[_Entry], list[str]]:
    entries: list[_Entry] = []
    stray: list[str] = []
    is_stray = True
    for number, line in enumerate(lines, start=first_line):
        if not line.strip() or line.startswith("#"):
            if not is_stray:
                entries[-1].below.append("")
            continue
        key = match_key(line)
        if line.startswith((" ", "\t", "]", "}")) or is_list_item(line):
            if not is_stray:
                entries[-1].below.append(line)
                continue
        elif key is not None:
            if key.is_hasty:
                log.add(number, f"{key.key} is not followed by a colon and a space, read as if it were")
            head = f"{key.key}: {key.rest.strip()}" if key.is_hasty else line
            entries.append(_Entry(key.key, number, head, key.rest))
            is_stray = False
            continue
        if not is_stray or not stray:
            log.add(number, f"{shorten(line.strip())} is not `key: value`, kept under _unparsed")
        stray.append(line)
        is_stray = True
    return entries, stray


def _read_entry(entry: _Entry, log: WarningLog) -> Iterator[Pair]:
    try:
        value = read_yaml("\n".join([entry.head, *entry.below]), first_line=entry.line, log=log)
        reason = "no mapping"
    except YamlReadError as error:
        value = None
        reason = str(error)
    if value is None and any("\t" in line for line in [entry.head, *entry.below]):
        value = _read_without_tabs(entry, log)
    if isinstance(value, Table):
        yield from value.pairs
    else:
        yield Pair(entry.key, _mend(entry, reason, log), entry.line)


def _read_without_tabs(entry: _Entry, log: WarningLog) -> YamlValue | None:
    lines = [entry.head, *entry.below]
    try:
        value = read_yaml("\n".join(map(_spaces_for_tabs, lines)), first_line=entry.line, log=log)
    except YamlReadError:
        return None
    line = next(number for number, line in enumerate(lines, start=entry.line) if "\t" in line)
    log.add(line, "YAML doesn't allow tabs as white space, read as spaces")
    return value


def _spaces_for_tabs(line: str) -> str:
    text = line.lstrip(" \t")
    indentation = line[: len(line) - len(text)].replace("\t", "  ")
    return indentation + text.replace("\t", " ")


def _mend(entry: _Entry, reason: str, log: WarningLog) -> YamlValue:
    value = entry.value.strip()
    below = [_spaces_for_tabs(line) for line in entry.below if line.strip()]
    if (not value or value.startswith("#")) and below and is_list_item(below[0].lstrip()):
        return _mend_items(entry, below, log)
    # The lines below continue the first one, unless there is none.
    text = unquote((" " if value else "\n").join(filter(None, [value, *(line.strip() for line in below)])))
    log.add(entry.line, f"{entry.key} is not valid YAML ({reason}), read as the text {shorten(text)}; put it in quotes")
    return Scalar(text, text)


def _mend_items(entry: _Entry, below: list[str], log: WarningLog) -> YamlValue:
    indentation = len(below[0]) - len(below[0].lstrip())
    items: list[list[str]] = []
    lines: list[int] = []
    numbered = [(number, line) for number, line in enumerate(entry.below, start=entry.line + 1) if line.strip()]
    for (number, _), line in zip(numbered, below, strict=True):
        text = line.lstrip()
        if is_list_item(text) and len(line) - len(text) <= indentation:
            items.append([" " * (len(line) - len(text) + 1) + text[1:]])
            lines.append(number)
        else:
            items[-1].append(line)
    return Listing(tuple(_read_item(entry.key, item, line, log) for item, line in zip(items, lines, strict=True)))


def _read_item(key: str, item: list[str], line: int, log: WarningLog) -> YamlValue:
    try:
        value = read_yaml("\n".join(item), first_line=line, log=log)
        return Scalar("", None) if value is None else value
    except YamlReadError as error:
        text = unquote(" ".join(part.strip() for part in item))
        log.add(
            line, f"an item of {key} is not valid YAML ({error}), read as the text {shorten(text)}; put it in quotes"
        )
        return Scalar(text, text)
