"""YAML as its author wrote it: values that keep their spelling, read from the parser's events.

PyYAML's loaders turn ``007`` into 7, ``1.10`` into 1.1 and ``12:30`` into 750, follow aliases (which a few lines can
multiply beyond any memory) and call constructors that a tag names. Front matter needs none of that: a keyword ``007``
is the text "007". So only the parser is used. Aliases, anchors and tags of other languages stay text.
"""

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from knowledge_lookup.pipeline.ingestion.source_file import WarningLog

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

_MAX_DEPTH = 50
_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = {f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}
_COLLECTION_TAGS = {f"{_CORE}{name}" for name in ("seq", "map", "set", "omap", "pairs")}
_BRACKETS = re.compile(r"[\[\]{}]")
_TRUTH_VALUES = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


class YamlReadError(Exception):
    """The text is no YAML; the message is the parser's reason, one line."""


@dataclass(frozen=True)
class Scalar:
    """A single value.

    :param text: The value as it is written, without quotes.
    :param value: What YAML makes of it, where that says the same as the text: 429, true, null, an ISO date.
    """

    text: str
    value: JsonValue

    @property
    def is_empty(self) -> bool:
        """True for nothing at all and for ``~``; the word ``null`` can be meant as a word."""
        return self.value is None and self.text in {"", "~"}


@dataclass(frozen=True)
class Listing:
    """A list."""

    items: tuple["YamlValue", ...]


@dataclass(frozen=True)
class Pair:
    """A key with its value.

    :param line: The line of the key, counted from 1 in the file.
    """

    key: str
    value: "YamlValue"
    line: int


@dataclass(frozen=True)
class Table:
    """A mapping; a key can occur more than once.

    :param braces: The text of a mapping in braces, such as ``{{ page.title }}``, which is seldom meant as one.
    """

    pairs: tuple[Pair, ...]
    braces: str | None


YamlValue: TypeAlias = Scalar | Listing | Table

# PyYAML's stubs say that an event may lack its place in the text; the parser's events never do.
_Event: TypeAlias = Any


def read_yaml(source: str, *, first_line: int, log: WarningLog) -> YamlValue | None:
    """Read one YAML document.

    :param source: The text.
    :param first_line: The line of the file at which the text begins, counted from 1.
    :param log: Receives warnings about aliases, anchors and tags; only if the text can be read.
    :returns: The value; None if there are only blank lines and comments.
    :raises YamlReadError: If the text is no YAML, holds several documents or is nested more than 50 levels deep.
    """
    if _bracket_depth(source) > _MAX_DEPTH:
        # PyYAML takes quadratic time over brackets that stay open, so it never sees them.
        raise YamlReadError(f"more than {_MAX_DEPTH} brackets are open")
    reader = _Reader(source, first_line)
    try:
        value = reader.read()
    except yaml.MarkedYAMLError as error:
        raise YamlReadError(" ".join(f"{error.problem}".split())) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that YAML doesn't allow, and escapes beyond Unicode such as "\Uffffffff".
        raise YamlReadError(" ".join(f"{error}".split())) from error
    for line, message in reader.remarks:
        log.add(line, message)
    return value


def as_text(value: YamlValue) -> str:
    """Give a value as text, for a field that is a text.

    :param value: A value of any kind.
    :returns: A scalar as it is written; the items of a list and the ``key: value`` pairs of a mapping joined by
        ``, ``; what stands in braces as it is written.
    """
    match value:
        case Scalar(text=text):
            return text
        case Listing(items=items):
            return ", ".join(map(as_text, items))
        case Table(pairs=pairs, braces=None):
            return ", ".join(f"{pair.key}: {as_text(pair.value)}" for pair in pairs)
        case Table(braces=braces):
            return f"{braces}"


def as_json(value: YamlValue, *, log: WarningLog) -> JsonValue:
    """Give a value as JSON data.

    :param value: A value of any kind.
    :param log: Receives a warning for each key that a mapping has twice (the last one counts).
    :returns: Strings, whole and finite numbers, truth values, null, lists, mappings with string keys.
    """
    match value:
        case Scalar(value=plain):
            return plain
        case Listing(items=items):
            return [as_json(item, log=log) for item in items]
        case Table(pairs=pairs):
            lines: dict[str, int] = {}
            for pair in pairs:
                if pair.key in lines:
                    log.add(pair.line, f"{pair.key} is also on line {lines[pair.key]}; the last one counts")
                lines[pair.key] = pair.line
            return {pair.key: as_json(pair.value, log=log) for pair in pairs}


def storable(text: str) -> str:
    """Replace what neither a database nor JSON can keep: NUL and lone surrogates (``"\\0"``, ``"\\ud800"``).

    :param text: A decoded text; pairs of surrogates, as JSON writes emoji, become the character they stand for.
    :returns: The text with U+FFFD for each of them.
    """
    joined = text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
    return joined.replace("\0", "\ufffd")


class _Reader:
    """Builds one value from the parser's events.

    :param source: The text.
    :param first_line: The line of the file at which it begins.
    """

    def __init__(self, source: str, first_line: int) -> None:
        self._source = source
        self._lines = source.split("\n")
        self._first_line = first_line
        self._loader: Any = yaml.SafeLoader(source)  # its methods have no types
        self.remarks: list[tuple[int, str]] = []

    def read(self) -> YamlValue | None:
        self._loader.get_event()  # the stream begins
        if self._loader.check_event(yaml.StreamEndEvent):
            return None
        self._loader.get_event()  # the document begins
        value = self._value(depth=0)
        self._loader.get_event()  # the document ends
        if not self._loader.check_event(yaml.StreamEndEvent):
            raise YamlReadError("a second document begins in it")
        return value

    def _value(self, *, depth: int) -> YamlValue:
        if depth > _MAX_DEPTH:
            raise YamlReadError(f"nested more than {_MAX_DEPTH} levels deep")
        event = self._loader.get_event()
        if isinstance(event, yaml.AliasEvent):
            self._remark(event, "an alias is not followed, it stays text")
            return self._as_written(event, event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._listing(event, depth=depth)
        return self._table(event, depth=depth)

    def _scalar(self, event: _Event) -> Scalar:
        self._refuse_open_quotes(event)
        is_plain = event.style is None
        if event.anchor is not None:
            self._remark(event, f"&{event.anchor} is not an anchor here, {'it stays text' if is_plain else 'left out'}")
            if is_plain:
                return self._as_written(event, event)
        tag = event.tag
        if tag is None:
            tag = self._loader.resolve(yaml.ScalarNode, event.value, (True, False)) if is_plain else f"{_CORE}str"
        if tag not in _SCALAR_TAGS:
            self._remark(event, "a tag is not followed, the value stays text")
            return self._as_written(event, event)
        text = storable(event.value)
        if text != event.value:
            self._remark(event, "characters that can't be stored were replaced")
        return Scalar(text, self._plain(text, tag.removeprefix(_CORE)))

    def _refuse_open_quotes(self, event: _Event) -> None:
        # YAML wants the lines of a quoted value indented and PyYAML doesn't insist: a quote that was never closed would
        # swallow the keys below it, up to the next quote.
        if event.style in {"'", '"'}:
            below = self._lines[event.start_mark.line + 1 : event.end_mark.line + 1]
            if any(line[:1].strip() for line in below):
                raise YamlReadError("a quote is not closed")

    def _plain(self, text: str, kind: str) -> JsonValue:
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return _TRUTH_VALUES.get(text.lower(), text)
                case "int" | "float":
                    number = int(text) if kind == "int" else float(text)
                    return number if str(number) == text else text  # 007, 1.10, 0x1F, 12:30 and .nan stay text
                case "timestamp" if self._loader.timestamp_regexp.match(text):
                    moment = self._loader.construct_yaml_timestamp(yaml.ScalarNode(f"{_CORE}{kind}", text))
                    return str(moment.isoformat())
        except (ValueError, OverflowError):
            pass  # 2024-13-45 or 5,000 digits: a text like any other
        return text

    def _listing(self, start: _Event, *, depth: int) -> YamlValue:
        items = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._value(depth=depth + 1))
        end = self._loader.get_event()
        return Listing(tuple(items)) if self._is_ours(start) else self._as_written(start, end)

    def _table(self, start: _Event, *, depth: int) -> YamlValue:
        pairs = []
        while not self._loader.check_event(yaml.MappingEndEvent):
            line = self._line(self._loader.peek_event())
            key = self._value(depth=depth + 1)
            pairs.append(Pair(as_text(key), self._value(depth=depth + 1), line))
        end = self._loader.get_event()
        if not self._is_ours(start):
            return self._as_written(start, end)
        return Table(tuple(pairs), self._as_written(start, end).text if start.flow_style else None)

    def _is_ours(self, start: _Event) -> bool:
        if start.anchor is not None:
            self._remark(start, f"&{start.anchor} is not an anchor here, left out")
        if start.tag is None or start.tag in _COLLECTION_TAGS:
            return True
        self._remark(start, "a tag is not followed, the value stays text")
        return False

    def _as_written(self, start: _Event, end: _Event) -> Scalar:
        text = storable(self._source[start.start_mark.index : end.end_mark.index].strip())
        return Scalar(text, text)

    def _line(self, event: _Event) -> int:
        return self._first_line + int(event.start_mark.line)

    def _remark(self, event: _Event, message: str) -> None:
        self.remarks.append((self._line(event), message))


def _bracket_depth(source: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(source):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
