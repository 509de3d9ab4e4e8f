"""Whether a text contains a term, by the same rule of token boundaries as the keyword index."""

import re

from knowledge_lookup.retrievers.normal_form import character_kinds

_JOINED_BEFORE = 2
_END_OF_RUN = re.compile(r"[^0-9a-z_]|$")


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
    first, last = character_kinds(term[0]), character_kinds(term[-1])
    start = normal_text.find(term)
    while start != -1:
        before = character_kinds(normal_text[max(start - _JOINED_BEFORE, 0) : start])
        if first == "w" and before.endswith("w"):
            # So would it be anywhere else in this run of letters, which may be megabytes long.
            run = _END_OF_RUN.search(normal_text, start)
            start = normal_text.find(term, start + 1 if run is None else max(run.start(), start) + 1)
            continue
        end = start + len(term)
        after = character_kinds(normal_text[end : end + _JOINED_BEFORE])
        joined_left = first == "w" and before == "wj"
        joined_right = last == "w" and (after.startswith("w") or after == "jw")
        if not (joined_left or joined_right):
            return True
        start = normal_text.find(term, start + 1)
    return False
