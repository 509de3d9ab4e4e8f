"""Whether a text contains a term, by the same rule of token boundaries as the keyword index."""

from knowledge_lookup.retrievers.normal_form import character_kinds

_JOINED_BEFORE = 2


def contains_term(normal_text: str, term: str) -> bool:
    """Tell whether a term occurs in a text.

    An end of the term that is a Latin letter, a digit or ``_`` must stand at a token's boundary: ``pool`` isn't
    in ``max-pool-size``. CJK terms match anywhere.

    :param normal_text: The text in normal form.
    :param term: The term in normal form.
    :returns: True if it occurs; False for an empty term.
    """
    if not term:
        return False
    start = normal_text.find(term)
    while start != -1:
        if _is_bounded(normal_text, start, start + len(term)):
            return True
        start = normal_text.find(term, start + 1)
    return False


def _is_bounded(text: str, start: int, end: int) -> bool:
    around = character_kinds(text[max(start - _JOINED_BEFORE, 0) : end + _JOINED_BEFORE])
    offset = min(start, _JOINED_BEFORE)
    before, inside, after = around[:offset], around[offset : offset + end - start], around[offset + end - start :]
    joined_left = inside[0] == "w" and (before.endswith("w") or before == "wj")
    joined_right = inside[-1] == "w" and (after.startswith("w") or after == "jw")
    return not (joined_left or joined_right)
