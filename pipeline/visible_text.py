"""Makes text that anybody may have written safe to show on one line of a terminal or of a page.

Escape codes that move the cursor or retitle the window, marks that turn the direction of the line around it, and
characters that nobody sees become visible; the text stays data.
"""

import unicodedata

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Of format characters, those that belong to words and to emoji.
_JOINERS = "\u200c\u200d"


def visible(text: str, most_characters: int = 200) -> str:
    """Return a text on one line, with what can't be seen written out.

    :param text: Any text, lone surrogates included.
    :param most_characters: Where it is cut, at least 1; a cut text ends in ``…``.
    :returns: The text without control characters, marks of direction and lone surrogates: ESC is ``\\x1b``.
    """
    # White space is collapsed only in what is shown: a text may be long, and shown a thousand times.
    one_line = " ".join(text[: 4 * most_characters].split())
    is_cut = len(one_line) > most_characters or len(text) > 4 * most_characters
    shown = one_line[:most_characters]
    if not shown.isprintable():
        shown = "".join(_escaped(char) if _is_invisible(char) else char for char in shown)
    return f"{shown}…" if is_cut else shown


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE and char not in _JOINERS


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
