"""The normal form in which terms and queries are compared, and the tokens of a text in that form.

Terms of the keyword index and queries pass through :func:`normal_form` alike, so that full-width letters, case,
invisible characters, spaces between Chinese and Latin and punctuation at the ends never decide whether a term is found.
:func:`token_spans` says where a Latin term may begin and end.
"""

import re
import unicodedata

from knowledge_lookup.retrievers.compatibility_form import compatibility_form

# Blocks whose characters are written without spaces between words. Katakana's middle dot and its double hyphen
# (U+30FB, U+30A0) are punctuation and left out.
_CJK_RANGES = (
    (0x1100, 0x11FF),  # hangul jamo
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # 々 〆 〇
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x309F),  # hiragana, with its combining voice marks
    (0x30A1, 0x30FA),  # katakana
    (0x30FC, 0x30FF),
    (0x3105, 0x312F),  # bopomofo
    (0x3131, 0x318E),  # hangul compatibility jamo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),  # hangul
    (0xF900, 0xFAFF),
    (0xFF66, 0xFFDC),  # half-width katakana and hangul
    (0x1AFF0, 0x1B16F),  # older kana
    (0x20000, 0x3FFFD),  # Han
)
_HAN_RANGES = (
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFD),
)
_JOINERS = ".-/:"

# NFKC leaves typographic apostrophes and the hyphen alone, but nobody types them into a search on purpose.
_TYPOGRAPHY = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "‐": "-"})
_TYPOGRAPHIC = re.compile("[‘’ʼ‐]")

# Sentence punctuation, quotes and brackets as NFKC leaves them: it turns ，？（ into ASCII and … into full stops.
_TRIMMED = " ,;:!?。、\"'`“”„«»‹›()[]{}《》〈〉「」『』【】〔〕〖〗〝〞〟"
# A full stop at the beginning belongs to the name (.NET); three of them are an ellipsis.
_LEADING = re.compile(rf"(?:[{re.escape(_TRIMMED)}]|\.{{3,}})*")
_TRAILING = _TRIMMED + "."

_SCRIPT_CHANGES = frozenset({"hw", "kw", "wh", "wk"})
_TOKEN = re.compile(r"w+(?:jw+)*")


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


class _Kinds(dict[int, str]):
    """Maps a code point to the letter of its kind; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        kind = self._kind(code)
        if code <= 0xFFFF:  # the rest is rare, and keeping it would let the table grow without end
            self[code] = kind
        return kind

    @staticmethod
    def _kind(code: int) -> str:
        char = chr(code)
        if _within(code, _CJK_RANGES):
            return "h" if _within(code, _HAN_RANGES) else "k"
        if char in _JOINERS:
            return "j"
        if char == "'":
            return "a"
        if char.isspace():
            return " "
        if char == "_" or unicodedata.category(char)[0] in "LMN":
            return "w"
        return "o"


_KINDS = _Kinds()


def character_kinds(text: str) -> str:
    """Write a text as the kinds of its characters, one letter each.

    :param text: Any text.
    :returns: A string of the same length: ``h`` Han, ``k`` other CJK (kana, hangul, bopomofo), ``w`` any other letter,
        digit, combining mark or ``_``, ``j`` one of ``. - / :``, ``a`` an apostrophe, a space for white space, ``o``
        anything else.
    """
    return text.translate(_KINDS)


def is_cjk(char: str) -> bool:
    """Tell whether a character belongs to Chinese, Japanese or Korean writing.

    :param char: One character.
    :returns: True for Han, kana, hangul and bopomofo; False for everything else, CJK punctuation included.
    """
    return _within(ord(char), _CJK_RANGES)


def token_spans(normal: str) -> list[tuple[int, int]]:
    """Find the tokens of a text.

    A token is a run of letters, digits and ``_`` of any script but CJK; ``.``, ``-``, ``/`` and ``:`` belong to it only
    between two such characters, so that ``max-pool-size`` and ``v2.0.1`` are one token each. Between Latin and CJK a
    token always ends.

    :param normal: A text in normal form.
    :returns: The tokens' half-open spans, in order.
    """
    return [match.span() for match in _TOKEN.finditer(character_kinds(normal))]


def normal_form(text: str) -> str:
    """Bring a term or a query into the form in which they are compared.

    Unicode NFKC and casefold; invisible format characters removed; control characters and white space collapsed to
    single spaces; spaces between CJK and other letters or digits dropped; sentence punctuation, quotes and brackets at
    the ends dropped (``+ # @ - / * % $ & = ~ _`` and a leading ``.`` stay). Applying it twice changes nothing.

    :param text: Any text; lone surrogates are kept as they are.
    :returns: The normal form, empty when nothing but space and punctuation came in.
    """
    if not text.isprintable():  # true for the usual query, which then skips the walk over its characters
        text = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
        if not text.isprintable():
            text = _without_invisible(text)
    if text.isascii():
        return _trimmed(" ".join(text.lower().split()))
    text = compatibility_form(text)
    folded = text.casefold()
    if folded != text:
        folded = compatibility_form(folded)
    if _TYPOGRAPHIC.search(folded):
        folded = folded.translate(_TYPOGRAPHY)
    text = " ".join(folded.split())
    if " " in text:
        text = _without_script_spaces(text)
    return _trimmed(text)


def _without_invisible(text: str) -> str:
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if category == "Cc":
            kept.append(" ")
        elif category != "Cf":  # zero-width characters, byte order mark, direction marks, soft hyphen
            kept.append(char)
    return "".join(kept)


def _without_script_spaces(text: str) -> str:
    cuts = []
    position = text.find(" ", 1)
    while 0 < position < len(text) - 1:
        if _KINDS[ord(text[position - 1])] + _KINDS[ord(text[position + 1])] in _SCRIPT_CHANGES:
            cuts.append(position)
        position = text.find(" ", position + 1)
    if not cuts:
        return text
    pieces = [text[start + 1 : end] for start, end in zip([-1, *cuts], [*cuts, len(text)], strict=True)]
    # A space may have kept a stray combining mark from its letter.
    return compatibility_form("".join(pieces))


def _trimmed(text: str) -> str:
    text = text.rstrip(_TRAILING)
    if text[:1].isalnum():
        return text
    leading = _LEADING.match(text)
    return text if leading is None else text[leading.end() :]
