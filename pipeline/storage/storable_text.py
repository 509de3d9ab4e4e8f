"""Brings text from outside into a form that every database takes.

Neither lone surrogates (what is left of bytes that were no UTF-8) nor NUL can be stored everywhere, and
columns have a length. What is only shown is mended and cut; what must stay different gets a hash.
"""

import hashlib
import re

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HASH_SEPARATOR = "~"


def exact_hash(text: str) -> str:
    """Return the sha256 of a text that may hold anything.

    :param text: Any text, lone surrogates included.
    :returns: 64 hex digits; of a storable text what ``SHA2(text, 256)`` gives in SQL.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_storable(text: str) -> bool:
    """Tell whether every database takes a text as it is, apart from its length.

    :param text: Any text.
    :returns: False when it holds NUL or a lone surrogate.
    """
    return _UNSTORABLE.search(text) is None


def storable(text: str, max_length: int | None = None) -> str:
    """Return a text for reading: U+FFFD in place of what can't be stored, and cut.

    :param text: Any text.
    :param max_length: Most characters; None cuts nothing.
    :returns: The text to store.
    """
    return _UNSTORABLE.sub(_REPLACEMENT, text[:max_length])


def storable_key(text: str, max_length: int) -> str:
    """Return a text to search by: itself where it can be stored, otherwise its beginning and its hash.

    :param text: Any text.
    :param max_length: Most characters; at least 65.
    :returns: A text of at most that length; different texts stay different.
    """
    # MySQL takes "s1" and "s1 " for equal when it compares.
    if len(text) <= max_length and is_storable(text) and not text.endswith(" "):
        return text
    suffix = _HASH_SEPARATOR + exact_hash(text)
    return storable(text, max_length - len(suffix)) + suffix
