"""The front matter of a document: its fields, and the body behind it.

Real files hold what YAML refuses or reads as something else than their author meant. Such a value is mended with a
warning that names file and line, and the other values stay as they are. Nothing here reads a file.
"""

import itertools
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from knowledge_lookup.pipeline.ingestion.front_matter_block import (
    KNOWN_FIELDS,
    Block,
    cut_where_the_end_is_missing,
    find_block,
    is_one_run,
)
from knowledge_lookup.pipeline.ingestion.front_matter_mending import (
    read_entries,
    replace_forbidden_characters,
    shorten,
    unquote,
)
from knowledge_lookup.pipeline.ingestion.source_file import (
    FrontMatterWarning,
    UnreadableDocumentError,
    WarningLog,
    decode_source,
)
from knowledge_lookup.pipeline.ingestion.yaml_values import (
    JsonValue,
    Listing,
    Pair,
    Scalar,
    Table,
    YamlReadError,
    as_json,
    as_text,
    read_yaml,
)

__all__ = ["FrontMatter", "FrontMatterWarning", "ParsedDocument", "UnreadableDocumentError", "parse_front_matter"]

_UNPARSED = "_unparsed"
_LISTS = {"keywords", "covers"}
_FULL_WIDTH_SEPARATOR = re.compile(r"[，、]")
# One item of a list that was written as one text; a quoted item may hold separators.
_ITEM = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,，、;；\n]*)\s*(?:[,，、;；\n]|$)""")


@dataclass(frozen=True)
class FrontMatter:
    """What a document says about itself.

    :param title: The title; None without one.
    :param keywords: The exact terms by which the document is found, as they are written, each once.
    :param summary: What the document is about; None if not given.
    :param category: The domain, without slashes around it; None if not given.
    :param covers: The questions or topics that the document answers, each once.
    :param when_to_retrieve: When an agent should read the document; None if not given.
    :param extra: Every other field under its own name, as JSON values (dates as ISO texts). ``_unparsed`` holds lines
        that could not be read.
    """

    title: str | None = None
    keywords: tuple[str, ...] = ()
    summary: str | None = None
    category: str | None = None
    covers: tuple[str, ...] = ()
    when_to_retrieve: str | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, JsonValue]:
        """Give all fields as one JSON object.

        :returns: ``title``, ``keywords``, ``summary``, ``category``, ``covers`` and ``whenToRetrieve``, always all of
            them, and the others under their own names; one that is called like a field gets a number behind it.
        """
        metadata: dict[str, JsonValue] = {
            "title": self.title,
            "keywords": list(self.keywords),
            "summary": self.summary,
            "category": self.category,
            "covers": list(self.covers),
            "whenToRetrieve": self.when_to_retrieve,
        }
        for name, value in self.extra.items():
            metadata[_unused(name, taken={*metadata, *self.extra}) if name in metadata else name] = value
        return metadata


@dataclass(frozen=True)
class ParsedDocument:
    """A document file, read.

    :param front_matter: Its fields; all empty if it has no front matter.
    :param body: The text behind the front matter, with ``\\n`` for every line end.
    :param warnings: What was mended or left out.
    """

    front_matter: FrontMatter
    body: str
    warnings: tuple[FrontMatterWarning, ...]


def parse_front_matter(raw: bytes, *, file_path: str) -> ParsedDocument:
    """Read a document file.

    :param raw: The bytes of the file.
    :param file_path: Its path relative to the base path, for warnings and errors.
    :returns: The document; without front matter all fields are empty and the body is the whole text.
    :raises UnreadableDocumentError: If the file is binary, its encoding can't be told, or its front matter is longer
        than 64 KiB.
    """
    log = WarningLog(file_path)
    text = decode_source(raw, log=log)
    block = find_block(text, log=log)
    front_matter, body = (FrontMatter(), text) if block is None else _read_block(block, log)
    return ParsedDocument(front_matter, body, log.all())


def read_body(raw: bytes, *, file_path: str) -> str:
    """Read the body of a document file alone, without reading its front matter where that can be told apart.

    :param raw: The bytes of the file.
    :param file_path: Its path relative to the base path, for errors.
    :returns: What :func:`parse_front_matter` gives as body.
    :raises UnreadableDocumentError: See :func:`parse_front_matter`.
    """
    log = WarningLog(file_path)
    text = decode_source(raw, log=log)
    block = find_block(text, log=log)
    if block is None:
        return text
    lines = replace_forbidden_characters(block.lines, first_line=block.first_line, log=log)
    # Only of a block with something else inside it depends on its YAML where it ends.
    return block.body if is_one_run(lines) else _read_block(block, log)[1]


def _read_block(block: Block, log: WarningLog) -> tuple[FrontMatter, str]:
    lines = replace_forbidden_characters(block.lines, first_line=block.first_line, log=log)
    block = Block(lines, block.first_line, block.rest)
    try:
        value = read_yaml("\n".join(block.lines), first_line=block.first_line, log=log)
    except YamlReadError:
        block = cut_where_the_end_is_missing(block, log=log)
    else:
        if value is None:
            return FrontMatter(), block.body
        if isinstance(value, Table):
            return _gather(value.pairs, [], log), block.body
    pairs, stray = read_entries(block.lines, first_line=block.first_line, log=log)
    return _gather(pairs, stray, log), block.body


def _gather(pairs: Iterable[Pair], stray: list[str], log: WarningLog) -> FrontMatter:
    pairs = list(pairs)
    written = {KNOWN_FIELDS[pair.key] for pair in pairs if pair.key in KNOWN_FIELDS}
    texts: dict[str, str | None] = {}
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    extra: dict[str, JsonValue] = {}
    lines: dict[str, int] = {}
    for pair in (_spelled_right(pair, written, log) for pair in pairs):
        name = KNOWN_FIELDS.get(pair.key, pair.key)
        if name in lines:
            which = "both count" if name in _LISTS else "the last one counts"
            log.add(pair.line, f"{pair.key} is also on line {lines[name]}; {which}")
        lines[name] = pair.line
        if name in _LISTS:
            lists[name].extend(_read_list(pair, log))
        elif pair.key in KNOWN_FIELDS:
            texts[name] = _read_text(pair, log)
        else:
            extra[pair.key] = as_json(pair.value, log=log)
    if stray:
        extra[_unused(_UNPARSED, taken=extra)] = "\n".join(stray)
    return FrontMatter(
        title=_in_one_line(texts.get("title")),
        keywords=tuple(dict.fromkeys(lists["keywords"])),
        summary=texts.get("summary"),
        category=_in_one_line(texts.get("category")),
        covers=tuple(dict.fromkeys(lists["covers"])),
        when_to_retrieve=texts.get("when_to_retrieve"),
        extra=extra,
    )


def _spelled_right(pair: Pair, written: Container[str], log: WarningLog) -> Pair:
    """Read ``Title`` as ``title``, unless the front matter has that as well."""
    meant = pair.key.casefold().replace(" ", "_")
    name = KNOWN_FIELDS.get(meant)
    if pair.key in KNOWN_FIELDS or name is None or name in written:
        return pair
    log.add(pair.line, f"{pair.key} is read as {meant}; write {meant}")
    return Pair(meant, pair.value, pair.line)


def _read_text(pair: Pair, log: WarningLog) -> str | None:
    if isinstance(pair.value, Scalar):
        text = "" if pair.value.value is None else pair.value.text.strip()
    else:
        text = as_text(pair.value).strip()
        log.add(pair.line, f"{pair.key} is no text, read as {shorten(text)}; put it in quotes")
    if KNOWN_FIELDS[pair.key] == "category" and text != text.strip("/ \t\n"):
        text = text.strip("/ \t\n")
        log.add(pair.line, f"{pair.key} has slashes around it, read as {shorten(text)}")
    return text if text else None


def _read_list(pair: Pair, log: WarningLog) -> list[str]:
    value = pair.value
    if isinstance(value, Scalar) and value.value is None:
        return []
    items = list(_flatten(value, pair, log)) if isinstance(value, Listing) else _split(pair, log)
    texts = [item.strip() for item in items]
    if not all(texts):
        log.add(pair.line, f"{pair.key} has empty entries, left out")
    return [text for text in texts if text]


def _flatten(listing: Listing, pair: Pair, log: WarningLog) -> Iterable[str]:
    for item in listing.items:
        if isinstance(item, Listing):
            log.add(pair.line, f"{pair.key} has a list in the list, read as one list")
            yield from _flatten(item, pair, log)
        elif isinstance(item, Table):
            log.add(pair.line, f"an entry of {pair.key} is no text, read as {shorten(as_text(item))}; put it in quotes")
            yield as_text(item)
        elif pair.key == "keywords" and _FULL_WIDTH_SEPARATOR.search(item.text):
            # [甲，乙]: YAML only knows the comma of ASCII, and takes this for one keyword.
            parts = _FULL_WIDTH_SEPARATOR.split(item.text)
            log.add(pair.line, f"an entry of keywords has ， or 、, read as {shorten(', '.join(parts))}; write a, b")
            yield from parts
        else:
            yield "" if item.is_empty else item.text


def _split(pair: Pair, log: WarningLog) -> list[str]:
    """Read a list that was written as one text: ``redis, 缓存、连接池``, or ``[@Tool, redis]``, which isn't YAML."""
    text = as_text(pair.value).strip()
    bare = text.strip("[]{}")
    # Keywords are separated by commas; the topics of `covers` are phrases that may have commas in them.
    if pair.key == "covers" and bare == text:
        items = text.split("\n")
    else:
        items = [unquote(match[1]) for match in _ITEM.finditer(bare) if match[1]]
    if items != [text] or pair.key == "covers":
        log.add(pair.line, f"{pair.key} is no list, read as {shorten(', '.join(items))}; write [a, b]")
    return items


def _in_one_line(text: str | None) -> str | None:
    return None if text is None else re.sub(r"\s*\n\s*", " ", text)


def _unused(name: str, *, taken: Container[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}_{number}" for number in itertools.count(2) if f"{name}_{number}" not in taken)
