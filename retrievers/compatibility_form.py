"""Unicode NFKC in time that grows with the length of the text alone.

Normalizing sorts the combining marks behind a letter, and Python's sort of them takes quadratic time: a query of one
letter with 200,000 marks keeps a processor busy for half a minute, in which nothing can interrupt it. No script puts
more than a handful of marks on a letter.
"""

import re
import unicodedata
from functools import lru_cache

_SHORT_TEXT = 1_000
"""Marks of so short a text are sorted in less than a millisecond, however many there are."""
_MOST_MARKS = 30
"""The number of UAX #15's stream-safe format."""
_FIRST_MARK, _BEHIND_THE_LAST_MARK = 0x300, 0x20000


def compatibility_form(text: str) -> str:
    """Bring a text into Unicode NFKC.

    :param text: Any text.
    :returns: Its normalization form KC. Of a text of more than 1,000 characters only the first 30 combining marks of
        each run of marks count.
    """
    # A run that is too long has one of its marks at every thirtieth place.
    if len(text) <= _SHORT_TEXT or text.isascii() or _marks().isdisjoint(text[::_MOST_MARKS]):
        return unicodedata.normalize("NFKC", text)
    # Twice, since some marks are written as several.
    return _cut_runs(unicodedata.normalize("NFKC", _cut_runs(text)))


def _cut_runs(text: str) -> str:
    return _too_many_marks().sub(lambda run: run[0][:_MOST_MARKS], text)


@lru_cache(maxsize=1)
def _too_many_marks() -> re.Pattern[str]:
    return re.compile(f"[{''.join(sorted(_marks()))}]{{{_MOST_MARKS + 1},}}")


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(filter(_becomes_a_mark, map(chr, range(_FIRST_MARK, _BEHIND_THE_LAST_MARK))))


def _becomes_a_mark(char: str) -> bool:
    """Tell whether normalizing makes a character one that is sorted; some do whose own combining class is 0."""
    if unicodedata.combining(char):
        return True
    if not unicodedata.decomposition(char):
        return False
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0
