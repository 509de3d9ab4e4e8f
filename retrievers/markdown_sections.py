"""The sections of a Markdown document, by its headings.

Headings are found by markdown-it (CommonMark), so a ``#`` comment in a code fence is no heading and an
underlined title is one. Only headings at the top level of the document open a section; one in a list or a
quotation doesn't.
"""

import itertools
import re
from dataclasses import dataclass

from markdown_it import MarkdownIt


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a document: a heading and the text up to the next heading of any level.

    :param heading: The heading's text without markup; None for the lead before the first heading.
    :param level: 1 to 6, 0 for the lead.
    :param path: Headings from the top down to this one; empty for the lead.
    :param start: Offset of the heading's first character in the body (of the text's, in the lead).
    :param text_start: Offset at which the text below the heading begins.
    :param end: Offset behind the section's last character.
    """

    heading: str | None
    level: int
    path: tuple[str, ...]
    start: int
    text_start: int
    end: int


def split_sections(body: str) -> list[Section]:
    r"""Split a document's body into its sections.

    The sections are in order, don't overlap and together cover the body. A heading without text of its own is
    still a section.

    :param body: Markdown without front matter, lines separated by ``\n``.
    :returns: The sections; a lead only if there's text before the first heading; for a body without headings
        the lead alone; none for a body of white space.
    """
    parser = MarkdownIt("commonmark").disable("inline")
    line_starts = _line_starts(body)
    headings: list[tuple[int, int, int, str]] = []
    tokens = parser.parse(body)
    for token, content in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            first, behind = token.map
            headings.append((line_starts[first], line_starts[behind], int(token.tag[1:]), _plain(content.content)))
    sections: list[Section] = []
    lead_end = headings[0][0] if headings else len(body)
    if body[:lead_end].strip():
        sections.append(Section(heading=None, level=0, path=(), start=0, text_start=0, end=lead_end))
    above: list[tuple[int, str]] = []
    for position, (start, text_start, level, heading) in enumerate(headings):
        end = headings[position + 1][0] if position + 1 < len(headings) else len(body)
        above = [*(entry for entry in above if entry[0] < level), (level, heading)]
        path = tuple(text for _, text in above)
        sections.append(Section(heading, level, path, start, min(text_start, end), end))
    return sections


def subtree_end(sections: list[Section], position: int) -> int:
    """Find where a section ends with all the sections below it.

    :param sections: What :func:`split_sections` returned.
    :param position: Index of the section.
    :returns: Offset in the body behind the last section that lies below this one.
    """
    section = sections[position]
    for later in sections[position + 1 :]:
        if section.level == 0 or later.level <= section.level:
            return later.start
    return sections[-1].end


def plain_heading(text: str) -> str:
    """Read a heading as it may be written in Markdown.

    >>> plain_heading("## **Time-outs** of `HikariCP`")
    'Time-outs of HikariCP'

    :param text: A heading with or without the signs of its level and markup.
    :returns: Its text.
    """
    return _plain(_HEADING_SIGNS.sub("", text.strip()))


def _line_starts(body: str) -> list[int]:
    starts = [0]
    position = body.find("\n")
    while position != -1:
        starts.append(position + 1)
        position = body.find("\n", position + 1)
    starts.append(len(body))
    return starts


def _plain(heading: str) -> str:
    inline = MarkdownIt("commonmark").parseInline(heading)
    children = inline[0].children or []
    text = "".join(child.content if child.content else " " for child in children if child.type in _TEXT_TOKENS)
    return " ".join(text.split()) or heading.strip()


_HEADING_SIGNS = re.compile(r"^#{1,6}\s+|\s+#+$")
_TEXT_TOKENS = frozenset({"text", "code_inline", "softbreak", "hardbreak"})
