"""The terms by which passages are searched word by word: how a passage and a query are cut into them.

Chinese, Japanese and Korean text is cut into overlapping pairs of characters, which need no dictionary and therefore
find a company's own words as well. Anything else is cut into tokens; an identifier is searched whole and by its parts,
so that ``tidb_mem_quota_query`` is found by its whole name first, and by ``quota`` as well.
"""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from importlib.resources import files

from knowledge_lookup.retrievers.compatibility_form import compatibility_form
from knowledge_lookup.retrievers.normal_form import character_kinds

_RUN = re.compile(r"[hk]+|w+(?:[ja]+w+)*")
_SEPARATORS = re.compile(r"[_.\-/:']+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PAIR = 2


def passage_terms(text: str) -> list[str]:
    """Cut a text into terms.

    :param text: Any text.
    :returns: The terms in order of appearance, repeated as often as they occur; folded, without white space.

    >>> passage_terms("Redis 集群的 maxIdle")
    ['redis', '集群', '群的', 'maxidle', 'max', 'idle']
    """
    text = compatibility_form(text)
    terms: list[str] = []
    for run in _RUN.finditer(character_kinds(text)):
        piece = text[run.start() : run.end()]
        if run.group()[0] == "w":
            terms.extend(_token_terms(piece))
        elif len(piece) < _PAIR:
            terms.append(piece)
        else:
            terms.extend(piece[at : at + _PAIR] for at in range(len(piece) - 1))
    return terms


def query_terms(text: str) -> list[str]:
    """Cut a query into the terms that say what it's about.

    Words that only ask (怎么, 什么, how, the) are left out, and so are single CJK characters, since passages have them
    in pairs. Where nothing else is in the query, they stay.

    :param text: The query.
    :returns: Each term once, in order of first appearance; empty for a query without letters and digits.

    >>> query_terms("how do I set the pool size?")
    ['set', 'pool', 'size']
    """
    return list(_query_terms(text))


@lru_cache(maxsize=256)
def _query_terms(text: str) -> tuple[str, ...]:
    # One look-up asks for those of its query several times.
    words, asking = _function_words()
    normal = compatibility_form(text)
    said = passage_terms(asking.sub(" ", normal))
    kept = [term for term in said if term not in words and not _is_lone_cjk(term)]
    return tuple(dict.fromkeys(kept or passage_terms(normal)))


def _is_lone_cjk(term: str) -> bool:
    return len(term) == 1 and character_kinds(term) in "hk"


class SearchedText:
    """A passage in which terms are looked for, without cutting it into terms.

    :param text: The passage.
    """

    def __init__(self, text: str) -> None:
        self._text = compatibility_form(text)
        self._folded = self._text.casefold()

    def contains(self, term: str) -> bool:
        """Tell whether the passage contains a term.

        :param term: A term of a query.
        :returns: True if the term occurs: Latin terms from the beginning of an identifier's part to the end of one, the
            characters of CJK terms side by side.
        """
        return term in self._folded and self._has_whole(term)

    def contained(self, terms: Iterable[str]) -> list[str]:
        """Choose those terms that the passage contains.

        :param terms: Terms of a query.
        :returns: Those for which :meth:`contains` is true, in their order.
        """
        folded = self._folded
        return [term for term in terms if term in folded and self._has_whole(term)]

    def _has_whole(self, term: str) -> bool:
        if _kind(term[0]) in "hk" or _is_bounded(self._folded, term):
            return True
        return _is_bounded(self._with_humps, term)

    @cached_property
    def _with_humps(self) -> str:
        """What has a name in camel case, with a space at each hump; seldom needed, and half of the cost."""
        humped = dict.fromkeys(piece for piece in self._text.split() if _HUMP.search(piece))
        return " ".join(_HUMP.sub(" ", piece) for piece in humped).casefold()


def _is_bounded(text: str, term: str) -> bool:
    start = text.find(term)
    while start >= 0:
        if not _continues(text, start - 1) and not _continues(text, start + len(term)):
            return True
        start = text.find(term, start + 1)
    return False


def _continues(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at] != "_" and _kind(text[at]) == "w"


_kind = lru_cache(maxsize=4096)(character_kinds)
"""The kind of one character; looking it up in passages again and again is what this is for."""


def _token_terms(token: str) -> list[str]:
    parts = [part for part in _SEPARATORS.split(token) if part]
    terms = [] if parts == [token] else [token.casefold()]
    for part in parts:
        terms.extend(_name_terms(part))
    return terms


def _name_terms(name: str) -> list[str]:
    humps = _HUMP.split(name)
    return [name.casefold(), *(hump.casefold() for hump in humps if len(humps) > 1)]


@lru_cache(maxsize=1)
def _function_words() -> tuple[frozenset[str], re.Pattern[str]]:
    chinese = sorted(_read("function_words.zh.txt"), key=len, reverse=True)
    return frozenset(_read("function_words.en.txt")), re.compile("|".join(map(re.escape, chinese)))


def _read(name: str) -> list[str]:
    lines = files("knowledge_lookup.retrievers.words").joinpath(name).read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
