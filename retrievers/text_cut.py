"""Cutting text to a number of characters where a reader would cut it."""

import re

_ENDS = (
    re.compile(r"\n\s*\n"),  # paragraph
    re.compile(r"[。！？…]+[”’」』）)]*|[.!?]+[\"')\]]*(?=\s)|\n"),  # sentence or line
    re.compile(r"[，、；,;]|\s"),  # clause or word
)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
_KEEP_AT_LEAST = 0.5


def cut(text: str, limit: int) -> str:
    """Cut a text to a length at the last good place: a paragraph's end, else a sentence's, else a word's.

    A good place lies in the second half of what fits, so that at least half of the limit is used. A code
    fence that the cut would leave open is closed.

    :param text: Any text.
    :param limit: Most characters of the result, at least 1.
    :returns: The text itself if it fits, otherwise a beginning of it without trailing white space.
    """
    beginning, closing = cut_apart(text, limit)
    return beginning + closing


def cut_apart(text: str, limit: int) -> tuple[str, str]:
    """Cut a text as :func:`cut` does, and tell its own characters from what was added.

    :param text: Any text.
    :param limit: Most characters of both parts together, at least 1.
    :returns: The beginning of the text, and what closes a code fence that it leaves open; usually empty.
    """
    text = text.rstrip()
    if len(text) <= limit:
        return text, ""
    end = _last_good_end(text, limit)
    piece = text[:end].rstrip()
    fence = _open_fence(piece)
    if fence is None:
        return piece, ""
    before_fence = piece[: fence.start()].rstrip()
    if len(before_fence) >= limit * _KEEP_AT_LEAST:
        return before_fence, ""
    closing = "\n" + fence.group(1)
    return (piece[: max(limit - len(closing), 0)].rstrip(), closing) if limit > len(closing) else (piece, "")


def _last_good_end(text: str, limit: int) -> int:
    window = text[:limit]
    least = int(limit * _KEEP_AT_LEAST)
    for pattern in _ENDS:
        ends = [match.end() for match in pattern.finditer(window) if match.end() >= least]
        if ends:
            return ends[-1]
    return limit


def _open_fence(text: str) -> re.Match[str] | None:
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence.group(1).startswith(opened.group(1)):
            opened = None
    return opened
