"""Makes text that anybody may have written safe to show on a terminal or a page.

Escape codes that move the cursor, fill the clipboard or retitle the window, marks that turn the direction of the line
around it, and characters that nobody sees become visible; the text stays data.
"""

import unicodedata

_LINES = "\n\t"
# Of format characters, those that belong to words and to emoji.
_JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    r"""Write out what a terminal would act on or not show.

    :param text: Any text, lone surrogates included.
    :returns: The text on the same lines; ESC is ``\x1b``, a mark that turns the line ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _LINES else _shown(char) for char in text)


def visible(text: str, most_characters: int = 200) -> str:
    """Return a text on one line, with what can't be seen written out.

    :param text: Any text, lone surrogates included.
    :param most_characters: Where it is cut, at least 1; a cut text ends in ``…``.
    :returns: The text as :func:`printable` gives it, white space collapsed.
    """
    # White space is collapsed only in what is shown: a text may be long, and shown a thousand times.
    one_line = " ".join(text[: 4 * most_characters].split())
    is_cut = len(one_line) > most_characters or len(text) > 4 * most_characters
    shown = printable(one_line[:most_characters])
    return f"{shown}…" if is_cut else shown


def _shown(char: str) -> str:
    # White space that isn't a plain space, such as U+3000, is no danger.
    if char in _JOINERS or unicodedata.category(char) in {"Zs", "Co", "Cn"}:
        return char
    return char.encode("ascii", "backslashreplace").decode() if char > "\xff" else f"\\x{ord(char):02x}"
