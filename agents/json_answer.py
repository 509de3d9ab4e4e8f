"""The JSON in a language model's answer, whatever stands around it.

Models wrap the JSON they were asked for in prose, in a code fence or in their reasoning, write it as Python does, or
stop in the middle of it. LlamaIndex's ``parse_json_markdown`` takes everything from the first bracket to the last one
and hands it to YAML: a bracket in the prose or a missing end loses the answer, so it isn't used here.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from knowledge_lookup.retrievers.text_cut import cut

_MOST_CHARACTERS = 20_000
_MOST_BRACKETS = 500
_MOST_DEPTH = 30
_OPENING = re.compile(r"[{\[]")
_KEY_NOISE = re.compile(r"[\s_-]+")
_STRICT = json.JSONDecoder(strict=False)  # line breaks within strings are common
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
# A quote in the middle of a sentence doesn't end the string: what follows the end is a separator, a bracket or nothing.
_STRINGS = {
    opening: re.compile(rf"((?:\\.|[^\\])*?){closing}(?=\s*(?:[,，:：}}\]]|$)|[ \t]*\n)", re.DOTALL)
    for opening, closing in _QUOTES.items()
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_BARE = re.compile(r"[\w.+-]+")
_GAP = re.compile(r"\s*")
_GAP_AND_COMMAS = re.compile(r"[\s,，]*")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def read_json_answer(text: str, *, keys: Sequence[str]) -> dict[str, Any] | None:
    """Find the object that a model was asked for.

    Where several objects have the keys, the last complete one counts: reasoning and drafts come first. In an answer
    that stops in the middle, everything up to the last complete value counts; half a sentence does not.

    :param text: The model's answer; what comes after 20,000 characters or 500 brackets is not read.
    :param keys: The keys that were asked for. The answer may write them in another case or with other ``_`` and
        ``-``. An answer that is a bare list of texts or objects counts as the value of the first key.
    :returns: The values by the keys as they were asked for, as far as the answer has them; None if it has none.
    """
    text = text[:_MOST_CHARACTERS]
    found: dict[str, Any] | None = None
    outermost: list[Any] | dict[str, Any] = []
    position = 0
    for _ in range(_MOST_BRACKETS):
        opening = _OPENING.search(text, position)
        if opening is None:
            break
        value, end, is_complete = _read(text, opening.start())
        wanted = _select(value, keys)
        position = opening.start() + 1 if wanted is None else end
        if wanted is not None and (is_complete or found is None):
            found = wanted
        outermost = outermost or value or []
    if found is None and isinstance(outermost, list) and any(isinstance(item, str | dict) for item in outermost):
        return {keys[0]: outermost}
    return found


def text_of(value: object, *, limit: int) -> str:
    """Read a value of an answer that should be a text.

    :param value: Any JSON value; the texts of a list are joined.
    :param limit: Most characters, at least 1; a longer text is cut where a reader would cut it.
    :returns: The text on one line; empty for a value that is no text or says nothing.
    """
    if isinstance(value, list):
        value = " ".join(item for item in value if isinstance(item, str))
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return ""
    line = " ".join(_without_surrogates(value).replace("\0", " ").split())
    return cut(line, limit) if any(char.isalnum() for char in line) else ""


def texts_of(value: object, *, count: int, limit: int) -> tuple[str, ...]:
    """Read a value of an answer that should be a list of texts.

    :param value: Any JSON value; a text counts as a list of one.
    :param count: Most texts.
    :param limit: Most characters of each, see :func:`text_of`.
    :returns: The first texts, each once; entries that say nothing are left out.
    """
    items = value if isinstance(value, list) else [value]
    texts = (text_of(item, limit=limit) for item in items if not isinstance(item, list))
    return tuple(dict.fromkeys(text for text in texts if text))[:count]


class _NotJsonError(Exception):
    """What stands here is something else than JSON."""


class _CutOffError(Exception):
    """The text ends in the middle of a value."""


class _TolerantReader:
    """Reads one value that is nearly JSON, leaving out what the end of the text cuts in two.

    :param text: The text.
    :param position: Where the value begins; afterwards, where it ends.
    """

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self.position = position
        self.is_cut_off = False

    def value(self, depth: int = 0) -> Any:
        char = self._peek()
        if depth > _MOST_DEPTH:
            raise _NotJsonError
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._list(depth)
        if char in _QUOTES:
            return self._string(char)
        return self._word()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.position += 1
        try:
            while not self._closes("}"):
                key = self._key()
                if self._peek() not in ":：":
                    raise _NotJsonError
                self.position += 1
                members[key] = self.value(depth + 1)
        except _CutOffError:
            self.is_cut_off = True
        return members

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.position += 1
        try:
            while not self._closes("]"):
                items.append(self.value(depth + 1))
        except _CutOffError:
            self.is_cut_off = True
        return items

    def _closes(self, bracket: str) -> bool:
        if self._peek(_GAP_AND_COMMAS) != bracket:
            return False
        self.position += 1
        return True

    def _key(self) -> str:
        char = self._peek()
        return self._string(char) if char in _QUOTES else self._bare()

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self.position + 1)
        if match is None:
            raise _CutOffError
        self.position = match.end()
        return _ESCAPE.sub(_unescape, match[1])

    def _word(self) -> Any:
        word = self._bare()
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        try:
            return json.loads(word)
        except ValueError as error:
            raise _NotJsonError from error

    def _bare(self) -> str:
        match = _BARE.match(self._text, self.position)
        if match is None:
            raise _NotJsonError
        self.position = match.end()
        if self.position == len(self._text):
            raise _CutOffError
        return match[0]

    def _peek(self, gap: re.Pattern[str] = _GAP) -> str:
        blank = gap.match(self._text, self.position)
        assert blank is not None  # it may be empty
        self.position = blank.end()
        if self.position == len(self._text):
            raise _CutOffError
        return self._text[self.position]


def _read(text: str, start: int) -> tuple[Any, int, bool]:
    """Return the value at a bracket (None if it is no JSON), where it ends, and whether it is complete."""
    try:
        value, end = _STRICT.raw_decode(text, start)
        return value, end, True
    except (ValueError, RecursionError):
        pass
    reader = _TolerantReader(text, start)
    try:
        value = reader.value()
    except _NotJsonError:
        return None, start, False
    return value, reader.position, not reader.is_cut_off


def _select(value: Any, keys: Sequence[str]) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    members = {_bare_key(name): member for name, member in value.items()}
    wanted = {key: members[_bare_key(key)] for key in keys if _bare_key(key) in members}
    return wanted or None


def _bare_key(key: str) -> str:
    return _KEY_NOISE.sub("", key).casefold()


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def _without_surrogates(text: str) -> str:
    """Join pairs of surrogates, as escapes write emoji, and replace those that are alone."""
    return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
