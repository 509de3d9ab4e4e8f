"""Whether matched terms account for a query, or whether the query asks for more than they say.

A decisive match keeps the semantic search from being asked and tells the reader that nothing better exists, so a false
one is the worst error of all. Therefore nothing may be left of the query but words that are listed: words that ask for
what any document on a term tells (怎么处理, what does ... mean), report it or handle it. A word that isn't listed is
left, be it a topic, a person, a time or a negation, and then the match isn't decisive. The lists are data, in the
folder ``words``.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, Self

from knowledge_lookup.retrievers.normal_form import character_kinds

# Stands for a matched character. No normal form contains it: control characters become spaces there.
_MATCHED = "\x00"

_HAN_RUN = re.compile("h+")
# Unlike a token of the index, a word of the rest holds its apostrophes (what's), even after a matched term ('s).
_WORD = re.compile("a?w+(?:[ja]w+)*")

# Marks that make another name of the matched one wherever they stand (C++, C#, @Transactional), or where they touch it:
# .NET is not NET, C* is not C, and -Xmx, --redis or !redis may be an option or an exclusion.
_NAMING_MARK = re.compile(r"[+#@]|\.(?=\x00)|(?<!\S)-+(?=\x00)|[*!](?=\x00)|(?<=\x00)\*")

_LEADING_NEGATION = re.compile(r"[^\w!！]*[!！]")

_SHORT_WORD = 2

_Sort = Literal["taken", "action", "dependent", "left"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the rest: a listed word or phrase, or what no list has."""

    start: int
    end: int
    sort: _Sort


class QueryWords:
    """The words that may be left of a query whose match is decisive.

    ``QueryWords.load()`` reads the package's own lists. Words are given in normal form. Chinese words are taken out of
    a run of Han characters, the longest first; English ones must be whole words, or phrases of whole words.

    :param question_words: Words that ask for what any document on a term tells, and particles; taken out wherever they
        stand.
    :param general_words: General words without a topic of their own; taken out wherever they stand.
    :param action_words: Words that report something or handle it (返回, 解决, fix); taken out wherever they stand.
    :param dependent_words: Words that are taken out only of a query with an action word: 为什么报 ERR_TIMEOUT asks for
        a cause, 为什么 Redis for the reasons of a choice.
    :param topic_words: Words and phrases made of such words that ask for something else (error handling); left whole.
    """

    def __init__(
        self,
        *,
        question_words: Iterable[str],
        general_words: Iterable[str],
        action_words: Iterable[str],
        dependent_words: Iterable[str],
        topic_words: Iterable[str],
    ) -> None:
        self._sorts: dict[str, _Sort] = dict.fromkeys([*question_words, *general_words], "taken")
        self._sorts |= dict.fromkeys(dependent_words, "dependent")
        self._sorts |= dict.fromkeys(action_words, "action")
        self._sorts |= dict.fromkeys(topic_words, "left")
        self._longest_word = max((len(word) for word in self._sorts if not word.isascii()), default=1)
        self._longest_phrase = max((len(word.split()) for word in self._sorts), default=1)

    @classmethod
    def load(cls) -> Self:
        """Read the package's word lists.

        :returns: The words of both languages together.
        """
        return cls(
            question_words=_read("question_words"),
            general_words=_read("general_words"),
            action_words=_read("action_words"),
            dependent_words=_read("dependent_words"),
            topic_words=_read("topic_words"),
        )

    def sorts_of_han(self, run: str) -> list[_Sort]:
        """Look the words of a run of Han characters up.

        :param run: Han characters only.
        :returns: For each character, the sort of the word that it belongs to.
        """
        return self._sorts_of(run, joiner="", longest=self._longest_word)

    def sorts_of_words(self, words: Sequence[str]) -> list[_Sort]:
        """Look neighbouring Latin words and their phrases up.

        :param words: The words in their order, with one space between any two in the query.
        :returns: For each word, the sort of the word or phrase that it belongs to.
        """
        return self._sorts_of(words, joiner=" ", longest=self._longest_phrase)

    def _sorts_of(self, units: Sequence[str], *, joiner: str, longest: int) -> list[_Sort]:
        sorts: list[_Sort] = []
        while len(sorts) < len(units):
            start = len(sorts)
            for count in range(min(longest, len(units) - start), 0, -1):
                sort = self._sorts.get(joiner.join(units[start : start + count]))
                if sort is not None:
                    sorts += [sort] * count
                    break
            else:
                sorts.append("left")
        return sorts


def what_is_left(normal_query: str, spans: Iterable[tuple[int, int]], words: QueryWords) -> str:
    """Take the matched terms and the listed words out of a query.

    :param normal_query: The query in normal form.
    :param spans: The matched terms' half-open character positions in it; they may overlap.
    :param words: The word lists.
    :returns: What is left, without punctuation; empty when the matched terms account for the query. A mark that makes
        another name (``++``, ``#``), a symbol, and kana, hangul and bopomofo, for which there are no lists, are left.
    """
    text = _blanked(normal_query, spans)
    kinds = character_kinds(text)
    pieces = [*_han_pieces(text, kinds, words), *_word_pieces(text, kinds, words), *_other_pieces(text, kinds)]
    reports_or_handles = any(piece.sort == "action" for piece in pieces)
    kept = [" "] * len(text)
    for piece in pieces:
        if piece.sort == "left" or (piece.sort == "dependent" and not reports_or_handles):
            kept[piece.start : piece.end] = text[piece.start : piece.end]
    return " ".join("".join(kept).split())


def leading_negation(query: str) -> str:
    """Find the exclamation mark that excludes what stands behind it: ``!redis``. The normal form has it no more.

    :param query: A query as it was asked.
    :returns: The mark; empty for a query that doesn't begin with one.
    """
    return "!" if _LEADING_NEGATION.match(query) else ""


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    chars = list(text)
    for start, end in spans:
        chars[start:end] = _MATCHED * (end - start)
    return "".join(chars)


def _han_pieces(text: str, kinds: str, words: QueryWords) -> Iterator[_Piece]:
    for run in _HAN_RUN.finditer(kinds):
        sorts = words.sorts_of_han(text[run.start() : run.end()])
        for position, sort in enumerate(sorts, start=run.start()):
            yield _Piece(position, position + 1, sort)


def _word_pieces(text: str, kinds: str, words: QueryWords) -> Iterator[_Piece]:
    asks_in_chinese = "h" in kinds
    for group in _word_groups(text, kinds):
        spelled = [text[start:end] for start, end in group]
        # A or US in a Chinese question, or alone beside a term, names something; only in an English one it is a word.
        names = asks_in_chinese or all(len(word) <= _SHORT_WORD for word in spelled)
        for (start, end), sort in zip(group, words.sorts_of_words(spelled), strict=True):
            yield _Piece(start, end, "left" if names and end - start <= _SHORT_WORD else sort)


def _word_groups(text: str, kinds: str) -> Iterator[list[tuple[int, int]]]:
    """Find the Latin words; those with nothing but one space between them belong together."""
    group: list[tuple[int, int]] = []
    for match in _WORD.finditer(kinds):
        start, end = match.span()
        if kinds[start] == "a" and text[start - 1 : start] != _MATCHED:
            start += 1  # an opening quote
        if group and text[group[-1][1] : start] != " ":
            yield group
            group = []
        group.append((start, end))
    if group:
        yield group


def _other_pieces(text: str, kinds: str) -> Iterator[_Piece]:
    naming_marks = {match.start() for match in _NAMING_MARK.finditer(text)}
    for position, (char, kind) in enumerate(zip(text, kinds, strict=True)):
        if kind in "hw " or char == _MATCHED:
            continue
        category = unicodedata.category(char)
        if position in naming_marks or not (category[0] == "P" or category == "Sk"):
            yield _Piece(position, position + 1, "left")


def _read(kind: str) -> list[str]:
    folder = files("knowledge_lookup.retrievers.words")
    lines = [
        line.strip()
        for language in ("zh", "en")
        for line in folder.joinpath(f"{kind}.{language}.txt").read_text("utf-8").splitlines()
    ]
    return [line for line in lines if line and not line.startswith("#")]
