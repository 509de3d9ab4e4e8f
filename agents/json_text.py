"""JSON for a language model, in which nothing is hidden and nothing can be taken for the end of a line.

The texts of documents reach the model inside JSON strings: the quotes say where a text ends. What JSON allows there
unescaped and a reader may take for a line end or not see at all is escaped: the separators U+0085, U+2028 and U+2029,
marks that turn the direction of a line, characters without width and the tag characters, in which whole sentences can
be hidden. Reading the JSON gives the same text back.
"""

import json
import re
from typing import Any

# Not U+200C and U+200D, which belong to words of Persian and of Indian languages, and to emoji.
HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters without a form of their own: separators, controls, direction marks, fillers, tags, lone surrogates."""


def json_text(value: Any) -> str:
    """Write a value as compact JSON on one line.

    :param value: JSON values; texts may hold anything, lone surrogates included.
    :returns: The JSON; ``json.loads`` gives the value back.
    """
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escaped(text: str) -> str:
    """Escape what is hidden in the strings of a JSON text.

    :param text: JSON; such characters can only be inside its strings.
    :returns: JSON that says the same.
    """
    return HIDDEN.sub(lambda char: json.dumps(char[0])[1:-1], text)
