"""Ranges of characters in a document's body: what of it was given, and what is left."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class TextSpan(NamedTuple):
    """A range of characters.

    :param start: Offset of the first character in the document's body (without front matter), from 0.
    :param end: Offset behind the last one.
    """

    start: int
    end: int


def subtract(span: TextSpan, taken: Iterable[TextSpan]) -> list[TextSpan]:
    """Take ranges out of a range.

    :param span: The range.
    :param taken: What to take out, in any order; may overlap.
    :returns: What is left, in order, without empty ranges.
    """
    left: list[TextSpan] = []
    position = span.start
    for start, end in sorted(taken):
        if start > position:
            left.append(TextSpan(position, min(start, span.end)))
        position = max(position, end)
        if position >= span.end:
            break
    if position < span.end:
        left.append(TextSpan(position, span.end))
    return [piece for piece in left if piece.start < piece.end]


def stripped(text: str, span: TextSpan) -> TextSpan:
    """Leave out white space at both ends of a range.

    :param text: The text that the range belongs to.
    :param span: The range.
    :returns: The range from its first to its last visible character; empty if there is none.
    """
    piece = text[span.start : span.end]
    start = span.start + len(piece) - len(piece.lstrip())
    return TextSpan(start, max(start, span.start + len(piece.rstrip())))


class JoinedText:
    """A text made of ranges of another, which knows where each of its characters comes from.

    :param source: The text that the ranges belong to.
    :param spans: The ranges, in order.
    """

    def __init__(self, source: str, spans: Sequence[TextSpan]) -> None:
        self.text = "".join(source[start:end] for start, end in spans)
        self._spans = tuple(spans)

    def origin(self, span: TextSpan) -> list[TextSpan]:
        """Tell where a range of this text comes from.

        :param span: A range of :attr:`text`.
        :returns: The ranges of the source that it is made of, in order.
        """
        origins: list[TextSpan] = []
        position = 0
        for start, end in self._spans:
            begin, behind = max(span.start, position), min(span.end, position + end - start)
            if begin < behind:
                origin = TextSpan(start + begin - position, start + behind - position)
                is_next = bool(origins) and origins[-1].end == origin.start
                origins[-1:] = [TextSpan(origins[-1].start, origin.end)] if is_next else [*origins[-1:], origin]
            position += end - start
        return origins
