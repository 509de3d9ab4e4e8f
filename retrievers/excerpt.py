"""The part of a document that an exact match delivers.

The beginning of the document is what its author put first. Where a matched term occurs only further down,
the beginning alone would not contain what was asked for: then the excerpt is the document's lead and the
sections with the terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from knowledge_lookup.retrievers.markdown_sections import Section, split_sections, subtree_end
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.term_occurrence import contains_term
from knowledge_lookup.retrievers.text_cut import cut_apart
from knowledge_lookup.retrievers.text_span import JoinedText, TextSpan, stripped, subtract

EXCERPT_CHARACTERS = 2000
_LEAD_CHARACTERS = 400
_LEAST_SHARE = 200
"""No more sections are excerpted than get so many characters each."""
_MOST_TERMS = 50
GAP = "\n\n……\n\n"
_PARAGRAPH_END = "\n\n"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Parts of a document.

    :param text: What is delivered.
    :param spans: Where in the body it comes from, in order. A gap sign and the end of a cut code fence come from
        nowhere.
    """

    text: str
    spans: tuple[TextSpan, ...]


def excerpt(body: str, terms: Sequence[str], *, limit: int = EXCERPT_CHARACTERS) -> Excerpt:
    """Cut a document down to what answers an exact match.

    :param body: Markdown without front matter.
    :param terms: The matched terms in normal form; those that the body doesn't contain have no influence. The first 50
        count: a query may name hundreds of a document's keywords.
    :param limit: Most characters of the result.
    :returns: The whole body if it fits; its beginning, cut at a paragraph or sentence end, if all terms occur
        there; otherwise the lead and, divided evenly, the best section for each of the other terms.
    """
    whole = stripped(body, TextSpan(0, len(body)))
    beginning = _cut(body, whole, limit)
    if beginning.spans == (whole,):
        return beginning
    terms = terms[:_MOST_TERMS]
    missing = _missing(terms, beginning.text)
    if not missing:
        return beginning
    sections = split_sections(body)
    wanted = _sections_with(missing, sections, body)
    if not wanted:
        return beginning
    parts: list[Excerpt] = []
    lead_characters = min(_LEAD_CHARACTERS, limit // 4)
    lead = _cut(body, TextSpan(whole.start, sections[wanted[0]].start), lead_characters)
    if lead.text:
        # The lead is shorter than the beginning: a term that only the beginning had needs its section as well, and
        # the lead ends where that begins.
        missing = _missing(terms, lead.text)
        wanted = _sections_with(missing, sections, body)
        lead = _cut(body, TextSpan(whole.start, sections[wanted[0]].start), lead_characters)
    if lead.text:
        parts.append(lead)
    wanted = wanted[: max(limit // _LEAST_SHARE, 1)]
    left = limit - sum(len(part.text) for part in parts) - len(GAP) * len(wanted)
    for number, position in enumerate(wanted):
        share = left // (len(wanted) - number)
        piece = _section_excerpt(body, sections, position, missing, share)
        parts.append(piece)
        left -= len(piece.text)
    return Excerpt(GAP.join(part.text for part in parts), tuple(span for part in parts for span in part.spans))


def excerpt_of_rest(
    body: str, terms: Sequence[str], given: Sequence[TextSpan], *, limit: int = EXCERPT_CHARACTERS
) -> Excerpt:
    """Cut down what is left of a document when parts of it were given before; see :func:`excerpt`.

    :param body: Markdown without front matter.
    :param terms: The matched terms in normal form.
    :param given: What was given.
    :param limit: Most characters of the result.
    :returns: The excerpt of the rest; empty if nothing is left.
    """
    rest = JoinedText(body, spans_left(body, split_sections(body), given))
    part = excerpt(rest.text, terms, limit=limit)
    return Excerpt(part.text, tuple(origin for span in part.spans for origin in rest.origin(span)))


def spans_left(body: str, sections: Sequence[Section], given: Sequence[TextSpan]) -> list[TextSpan]:
    """Find what is left of some sections when parts of them were given before.

    A heading goes with its text: where nothing is left of that, nor of the sections below it, the heading isn't
    worth giving.

    :param body: The document's body.
    :param sections: The sections to look at, in order.
    :param given: What was given.
    :returns: What is left, in order; nothing of white space or headings alone.
    """
    left: list[TextSpan] = []
    levels_left: set[int] = set()
    for section in reversed(sections):
        text = stripped(body, TextSpan(section.text_start, section.end))
        rest = [piece for piece in subtract(text, given) if body[piece.start : piece.end].strip()]
        below = {level for level in levels_left if level > section.level}
        levels_left -= below
        if not rest and not below:
            continue
        levels_left.add(section.level)
        # With the white space behind it, which keeps it apart from the next section.
        pieces = [piece if piece.end < text.end else TextSpan(piece.start, section.end) for piece in rest]
        # With the line behind it, unless the text's beginning is gone.
        heading_end = section.text_start
        if text.start == text.end or (rest and rest[0].start == text.start):
            heading_end = text.start if rest else section.end
        left[:0] = [*subtract(TextSpan(section.start, heading_end), given), *pieces]
    return left


def _cut(body: str, span: TextSpan, limit: int) -> Excerpt:
    whole = stripped(body, span)
    beginning, closing = cut_apart(body[whole.start : whole.end], limit)
    return Excerpt(beginning + closing, (TextSpan(whole.start, whole.start + len(beginning)),) if beginning else ())


def _missing(terms: Sequence[str], text: str) -> list[str]:
    normal = normal_form(text)
    return [term for term in terms if not contains_term(normal, term)]


def _sections_with(terms: Sequence[str], sections: list[Section], body: str) -> list[int]:
    """Best section for each term: one whose heading has it, else the first whose text has it; in document order."""
    wanted: list[int] = []
    texts = [normal_form(body[section.text_start : section.end]) for section in sections]
    headings = [normal_form(section.heading) if section.heading is not None else "" for section in sections]
    for term in terms:
        in_heading = (at for at, heading in enumerate(headings) if contains_term(heading, term))
        in_text = (at for at, text in enumerate(texts) if contains_term(text, term))
        best = next(in_heading, None)
        if best is None:
            best = next(in_text, None)
        if best is not None and best not in wanted:
            wanted.append(best)
    ends = {at: subtree_end(sections, at) for at in wanted}
    covered = [
        at
        for at in wanted
        if not any(other != at and sections[other].start <= sections[at].start < ends[other] for other in wanted)
    ]
    return sorted(covered)


def _section_excerpt(body: str, sections: list[Section], position: int, terms: Sequence[str], limit: int) -> Excerpt:
    section, end = sections[position], subtree_end(sections, position)
    piece = _cut(body, TextSpan(section.start, end), limit)
    own_terms = [term for term in terms if contains_term(normal_form(body[section.start : end]), term)]
    if not _missing(own_terms, piece.text):
        return piece
    # The section itself is longer than its share and has the term further down: keep the heading, then start
    # at the paragraph with the term.
    heading = _cut(body, TextSpan(section.start, section.text_start), limit // 2)
    start = section.text_start
    for paragraph in body[section.text_start : end].split(_PARAGRAPH_END):
        if any(contains_term(normal_form(paragraph), term) for term in own_terms):
            around = _around(body, TextSpan(start, end), own_terms, limit - len(heading.text) - len(GAP))
            if not heading.text:
                return around
            return Excerpt(f"{heading.text}{GAP}{around.text}", (*heading.spans, *around.spans))
        start += len(paragraph) + len(_PARAGRAPH_END)
    return piece


def _around(body: str, span: TextSpan, terms: Sequence[str], limit: int) -> Excerpt:
    """Cut so that a term is inside, also in one paragraph that is longer than the limit."""
    step = max(limit // 2, 1)
    for start in range(span.start, span.end, step):
        # Not all of the rest: of one line of megabytes that would be quadratic.
        piece = _cut(body, TextSpan(start, min(start + 2 * limit, span.end)), limit)
        if len(_missing(terms, piece.text)) < len(terms):
            return piece
    return _cut(body, span, limit)
