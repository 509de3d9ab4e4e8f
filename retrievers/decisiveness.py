"""Whether matched terms account for a query, or whether the query asks for more than they say.

A decisive match keeps the semantic search from being asked and tells the reader that nothing better exists. So what
the matched terms leave of the query is judged strictly: only words that ask, report or handle may be left, and at most
two Han characters besides. The words are data, in the folder ``words``.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, Self

from knowledge_lookup.retrievers.normal_form import character_kinds

_MAX_HAN_LEFT = 2

# Stands for a matched character. No normal form contains it: control characters become spaces there.
_MATCHED = "\x00"
_MATCHED_HAN = "\x01"
_MATCHED_ANY = _MATCHED + _MATCHED_HAN

_HAN_RUN = re.compile("h+")
# Unlike a token of the index, a word of the rest holds its apostrophes (what's), even after a matched term ('s).
_WORD = re.compile("a?w+(?:[ja]w+)*")

# Marks that make another name of the matched one wherever they stand (C++, C#, @Transactional), or where they touch it:
# .NET is not NET, C* is not C, and -Xmx, --redis or !redis may be an option or an exclusion.
_NAMING_MARK = re.compile(r"[+#@]|\.(?=[\x00\x01])|(?<!\S)-+(?=[\x00\x01])|[*!](?=[\x00\x01])|(?<=[\x00\x01])\*")

# A Han character that is left and touches a matched one makes another word of it: 连接超时 is not 超时.
_GROWN_TERM = re.compile(r"\x01(?=h)|(?<=h)\x01")
_SHORT_WORD = 2


_State = Literal["left", "alone", "known"]


@dataclass(frozen=True, slots=True)
class Rest:
    """What matched terms leave of a query once question words and general words are taken out.

    :param text: What is left, without punctuation; empty when nothing is.
    :param has_token: True when a Latin or digit token is left.
    :param has_negation: True when what the terms leave negates or turns away from them (不, 以外, without); this is
        looked for before any other word is taken out.
    :param cjk_count: Number of Han characters left.
    :param other: True when a Han character is left that touches a matched one (连接超时 where 超时 matched), or when
        anything else is left: a symbol, a mark that makes another name (``++``, ``#``), or kana,
        hangul and bopomofo, for which there are no word lists.
    """

    text: str
    has_token: bool
    has_negation: bool
    cjk_count: int
    other: bool


class QueryWords:
    """The words that may be left of a query, and those that must not.

    ``QueryWords.load()`` reads the package's own lists. Words are given in normal form. Chinese words are taken out of
    a run of Han characters, the longest first; English ones must be whole words, or phrases of whole words.

    :param question_words: Words that ask, and particles; taken out wherever they stand.
    :param general_words: General words of reporting and handling. One of a single Han character is taken out only where
        nothing that is left touches it: 报 reports in 报 ERR_TIMEOUT, but is part of a topic in 报表.
    :param topic_words: Words and phrases made of such words that have a topic of their own (错误率); left whole.
    :param negations: Words that negate or turn away from what was matched.
    :param negation_lookalikes: Words that contain a negation's characters and negate nothing (区别).
    :param question_idioms: Phrases that contain a negation and leave the subject as it is (是不是); taken out first.
    """

    def __init__(
        self,
        *,
        question_words: Iterable[str],
        general_words: Iterable[str],
        topic_words: Iterable[str],
        negations: Iterable[str],
        negation_lookalikes: Iterable[str],
        question_idioms: Iterable[str],
    ) -> None:
        anywhere = frozenset(question_words)
        general = frozenset(general_words)
        self._alone = frozenset(word for word in general - anywhere if len(word) == 1 and not word.isascii())
        self._known = (anywhere | general) - self._alone
        self._topics = frozenset(topic_words)
        listed = self._known | self._topics
        self._longest_word = max((len(word) for word in listed if not word.isascii()), default=1)
        self._longest_phrase = max((len(word.split()) for word in listed), default=1)
        self._negations = frozenset(negations)
        self._negation = _pattern_of({*self._negations, *negation_lookalikes})
        self._idiom = _pattern_of({*question_idioms})

    @classmethod
    def load(cls) -> Self:
        """Read the package's word lists.

        :returns: The words of both languages together.
        """
        return cls(
            question_words=_read("question_words"),
            general_words=_read("general_words"),
            topic_words=_read("topic_words"),
            negations=_read("negations"),
            negation_lookalikes=_read("negation_lookalikes"),
            question_idioms=_read("question_idioms"),
        )

    def without_idioms(self, text: str) -> str:
        """Take the question idioms out of a text.

        :param text: A text in normal form.
        :returns: The text with a space in place of each idiom.
        """
        return self._idiom.sub(" ", text)

    def negates(self, text: str) -> bool:
        """Tell whether a text contains a negation.

        :param text: A text in normal form, question idioms taken out.
        :returns: True when a negation is in it that is no part of a lookalike.
        """
        return any(match.group() in self._negations for match in self._negation.finditer(text))

    def left_of_han(self, run: str) -> list[bool]:
        """Take the known words out of a run of Han characters.

        :param run: Han characters only.
        :returns: For each character, True when it is left.
        """
        return self._left_of(run, joiner="", longest=self._longest_word)

    def left_of_words(self, words: Sequence[str]) -> list[bool]:
        """Take the known words and phrases out of neighbouring Latin words.

        :param words: The words in their order, with one space between any two in the query.
        :returns: For each word, True when it is left.
        """
        return self._left_of(words, joiner=" ", longest=self._longest_phrase)

    def _left_of(self, units: Sequence[str], *, joiner: str, longest: int) -> list[bool]:
        states: list[_State] = []
        while len(states) < len(units):
            start = len(states)
            for count in range(min(longest, len(units) - start), 0, -1):
                word = joiner.join(units[start : start + count])
                if word in self._known or word in self._topics:
                    state: _State = "left" if word in self._topics else "known"
                    states += [state] * count
                    break
            else:
                states.append("alone" if units[start] in self._alone else "left")
        # What touches something that is left is left itself, be it directly or through others of its kind.
        for order in (range(1, len(states)), range(len(states) - 2, -1, -1)):
            for index in order:
                if states[index] == "alone" and states[index - order.step] == "left":
                    states[index] = "left"
        return [state == "left" for state in states]


def what_is_left(normal_query: str, spans: Iterable[tuple[int, int]], words: QueryWords) -> Rest:
    """Take the matched terms, then question words and general words out of a query.

    :param normal_query: The query in normal form.
    :param spans: The matched terms' half-open character positions in it; they may overlap.
    :param words: The word lists.
    :returns: What is left.
    """
    blanked = _blanked(normal_query, spans)
    text = words.without_idioms(blanked)
    kinds = character_kinds(text)
    kept = [False] * len(text)
    asks_in_chinese = "h" in kinds
    for run in _HAN_RUN.finditer(kinds):
        kept[run.start() : run.end()] = words.left_of_han(text[run.start() : run.end()])
    cjk_count = sum(kept)
    has_token = False
    for group in _word_groups(text, kinds):
        spelled = [text[a:b] for a, b in group]
        # A or US in a Chinese question, or alone beside a term, names something; only in an English one it is a word.
        names = asks_in_chinese or (text == blanked and all(len(word) <= _SHORT_WORD for word in spelled))
        for (start, end), is_left in zip(group, words.left_of_words(spelled), strict=True):
            stays = is_left or (names and end - start <= _SHORT_WORD)
            kept[start:end] = [stays] * (end - start)
            has_token = has_token or stays
    others = [*_other_positions(text, kinds)]
    for position in others:
        kept[position] = True
    left_han = "".join(
        "h" if keep and kind == "h" else char for char, kind, keep in zip(text, kinds, kept, strict=True)
    )
    return Rest(
        text=" ".join("".join(char if keep else " " for char, keep in zip(text, kept, strict=True)).split()),
        has_token=has_token,
        has_negation=words.negates(text),
        cjk_count=cjk_count,
        other=bool(others) or _GROWN_TERM.search(left_han) is not None,
    )


def accounts_for(rest: Rest) -> bool:
    """Judge whether the matched terms account for the query.

    :param rest: What they leave of it.
    :returns: True when nothing is left but at most two Han characters, and nothing negates.
    """
    return not (rest.has_token or rest.has_negation or rest.other) and rest.cjk_count <= _MAX_HAN_LEFT


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    chars = list(text)
    for start, end in spans:
        chars[start:end] = [_MATCHED_HAN if kind == "h" else _MATCHED for kind in character_kinds(text[start:end])]
    return "".join(chars)


def _word_groups(text: str, kinds: str) -> Iterator[list[tuple[int, int]]]:
    """Find the Latin words; those with nothing but one space between them belong together."""
    group: list[tuple[int, int]] = []
    for match in _WORD.finditer(kinds):
        start, end = match.span()
        if kinds[start] == "a" and text[start - 1 : start] not in {_MATCHED, _MATCHED_HAN}:
            start += 1  # an opening quote
        if group and text[group[-1][1] : start] != " ":
            yield group
            group = []
        group.append((start, end))
    if group:
        yield group


def _other_positions(text: str, kinds: str) -> Iterator[int]:
    naming_marks = {match.start() for match in _NAMING_MARK.finditer(text)}
    for position, (char, kind) in enumerate(zip(text, kinds, strict=True)):
        if kind in "hw " or char in _MATCHED_ANY:
            continue
        category = unicodedata.category(char)
        if position in naming_marks or not (category[0] == "P" or category == "Sk"):
            yield position


def _pattern_of(words: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds any of the words, the longest first, Latin ones as whole words only."""
    alternatives = []
    for word in sorted(words, key=lambda word: (-len(word), word)):
        before = r"(?<![a-z0-9_'])" if word[0].isascii() and word[0].isalnum() else ""
        after = r"(?![a-z0-9_'])" if word[-1].isascii() else ""
        alternatives.append(f"{before}{re.escape(word)}{after}")
    return re.compile("|".join(alternatives) if alternatives else "(?!)")


def _read(kind: str) -> list[str]:
    folder = files("knowledge_lookup.retrievers.words")
    lines = [
        line.strip()
        for language in ("zh", "en")
        for line in folder.joinpath(f"{kind}.{language}.txt").read_text("utf-8").splitlines()
    ]
    return [line for line in lines if line and not line.startswith("#")]
