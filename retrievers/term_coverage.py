"""How much of a query's words a passage has."""

import re
from collections.abc import Mapping
from functools import lru_cache

from knowledge_lookup.retrievers.normal_form import character_kinds
from knowledge_lookup.retrievers.search_terms import SearchedText


def term_coverage(text: str, weights: Mapping[str, float]) -> float:
    """Compute the share of a query's terms that a passage contains, rare terms counting more.

    :param text: The passage.
    :param weights: The query's terms with their weights, above 0.
    :returns: 0 (none of them, or no terms) to 1 (all of them).
    """
    total = sum(weights.values())
    if total <= 0:
        return 0.0
    return sum([weights[term] for term in _searched(text).contained(weights)]) / total


@lru_cache(maxsize=4096)
def _searched(text: str) -> SearchedText:
    # The same passages come up again and again; kept, one costs a fifth.
    return SearchedText(text)


def differs_in_script(query: str, text: str) -> bool:
    """Tell whether a query has no word in the script of a passage: an English question on a Chinese text, or reverse.

    :param query: The query.
    :param text: The passage.
    :returns: True if one is CJK for the most part and the other has no CJK character, by whatever it has of letters.
    """
    if _CJK.search(query) is None:
        return _has_words(query) and _is_cjk(text)
    return _CJK.search(text) is None and _has_words(text) and _is_cjk(query)


_WORD = re.compile("w+")
# Enough to tell quickly that a text has some; the rare characters beyond are counted by kind.
_CJK = re.compile(r"[\u1100-\u11ff\u2e80-\u2fdf\u3005-\u30ff\u3105-\u318e\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")


def _is_cjk(text: str) -> bool:
    kinds = character_kinds(text)
    return kinds.count("h") + kinds.count("k") > len(_WORD.findall(kinds))


def _has_words(text: str) -> bool:
    return "w" in character_kinds(text)
