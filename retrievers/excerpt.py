"""The part of a document that an exact match delivers.

The beginning of the document is what its author put first. Where a matched term occurs only further down,
the beginning alone would not contain what was asked for: then the excerpt is the document's lead and the
sections with the terms.
"""

from collections.abc import Sequence

from knowledge_lookup.retrievers.markdown_sections import Section, split_sections, subtree_end
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.term_occurrence import contains_term
from knowledge_lookup.retrievers.text_cut import cut

EXCERPT_CHARACTERS = 2000
_LEAD_CHARACTERS = 400
_GAP = "\n\n……\n\n"


def excerpt(body: str, terms: Sequence[str], *, limit: int = EXCERPT_CHARACTERS) -> str:
    """Cut a document down to what answers an exact match.

    :param body: Markdown without front matter.
    :param terms: The matched terms in normal form; those that the body doesn't contain have no influence.
    :param limit: Most characters of the result.
    :returns: The whole body if it fits; its beginning, cut at a paragraph or sentence end, if all terms occur
        there; otherwise the lead and, divided evenly, the best section for each of the other terms.
    """
    body = body.strip()
    if len(body) <= limit:
        return body
    beginning = cut(body, limit)
    missing = _missing(terms, beginning)
    if not missing:
        return beginning
    sections = split_sections(body)
    wanted = _sections_with(missing, sections, body)
    if not wanted:
        return beginning
    parts: list[str] = []
    if wanted[0] > 0:
        lead = cut(body[: sections[wanted[0]].start], min(_LEAD_CHARACTERS, limit // 4))
        # The lead is shorter than the beginning: a term that only the beginning had needs its section as well.
        missing = _missing(terms, lead)
        wanted = _sections_with(missing, sections, body)
        parts.append(lead)
    left = limit - sum(len(part) for part in parts) - len(_GAP) * len(wanted)
    for number, position in enumerate(wanted):
        share = left // (len(wanted) - number)
        piece = _section_excerpt(body, sections, position, missing, share)
        parts.append(piece)
        left -= len(piece)
    return _GAP.join(parts)[:limit]


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
    covered = [
        at
        for at in wanted
        if not any(
            other != at and sections[other].start <= sections[at].start < subtree_end(sections, other)
            for other in wanted
        )
    ]
    return sorted(covered)


def _section_excerpt(body: str, sections: list[Section], position: int, terms: Sequence[str], limit: int) -> str:
    section = sections[position]
    text = body[section.start : subtree_end(sections, position)].strip()
    piece = cut(text, limit)
    own_terms = [term for term in terms if contains_term(normal_form(text), term)]
    if not _missing(own_terms, piece):
        return piece
    # The section itself is longer than its share and has the term further down: keep the heading, then start
    # at the paragraph with the term.
    heading = body[section.start : section.text_start].strip()
    paragraphs = body[section.text_start : subtree_end(sections, position)].split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if any(contains_term(normal_form(paragraph), term) for term in own_terms):
            rest = "\n\n".join(paragraphs[number:])
            around = _around(rest, own_terms, limit - len(heading) - len(_GAP))
            return f"{heading}{_GAP}{around}" if heading else around
    return piece


def _around(text: str, terms: Sequence[str], limit: int) -> str:
    """Cut so that a term is inside, also in one paragraph that is longer than the limit."""
    step = max(limit // 2, 1)
    for start in range(0, len(text), step):
        piece = cut(text[start:], limit)
        if len(_missing(terms, piece)) < len(terms):
            return piece
    return cut(text, limit)
