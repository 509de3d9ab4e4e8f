"""The sections of a Markdown document, by its headings.

Headings are found by pulldown-cmark (CommonMark), so a ``#`` comment in a code fence is no heading and an
underlined title is one. Only headings at the top level of the document open a section; one in a list or a
quotation doesn't.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyromark


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
    sections: list[Section] = []
    headings = list(_headings(body))
    lead_end = headings[0].start if headings else len(body)
    if body[:lead_end].strip():
        sections.append(Section(heading=None, level=0, path=(), start=0, text_start=0, end=lead_end))
    above: list[tuple[int, str]] = []
    for position, (start, text_start, level, heading) in enumerate(headings):
        end = headings[position + 1].start if position + 1 < len(headings) else len(body)
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
    heading = _HEADING_SIGNS.sub("", " ".join(text.split()))
    if not _MARKUP.search(heading):
        return heading
    events = iter(pyromark.events("# " + _encoded(heading).decode()))
    next(events)
    return _text_of(events) or heading


_MARKUP = re.compile(r"[\\`*\[\]<>&!]|(?<!\w)_|_(?!\w)")
"""What may be markup; an underscore inside a word isn't."""
_UNDERLINE = re.compile(r"\n\s*[=-]+$")
_HEADING_SIGNS = re.compile(r"^#{1,6}(?: |$)| #+$")
"""In a heading with single spaces: in a run of very many the search for its end would take quadratic time."""


class _Heading(NamedTuple):
    """Offsets of its first line and of the line behind it, its level and its text."""

    start: int
    text_start: int
    level: int
    text: str


def _headings(body: str) -> Iterator[_Heading]:
    """Find the headings at the top level, in order."""
    raw = _encoded(body)
    counted_bytes = counted = 0
    depth = 0
    events = iter(pyromark.events_with_range(raw.decode()))
    for event, place in events:
        if not isinstance(event, dict):
            continue
        if "End" in event:
            depth -= 1
        if "Start" not in event:
            continue
        opened = event["Start"]
        if depth == 0 and isinstance(opened, dict) and "Heading" in opened:
            # The parser counts bytes.
            counted += len(raw[counted_bytes : place["start"]].decode())
            counted_bytes = place["start"]
            behind = counted + len(raw[place["start"] : place["end"]].decode())
            start = body.rfind("\n", 0, counted) + 1
            text_start = behind if body[behind - 1] == "\n" else (body.find("\n", behind) + 1 or len(body))
            text = _text_of(event for event, _ in events)
            text = text or _HEADING_SIGNS.sub("", " ".join(_UNDERLINE.sub("", body[start:behind].strip()).split()))
            yield _Heading(start, text_start, int(opened["Heading"]["level"][1:]), text)
        else:
            depth += 1


def _text_of(events: Iterator[Any]) -> str:
    """Read the text of a heading up to its end, without markup, images and HTML."""
    parts: list[str] = []
    images = 0
    for event in events:
        if isinstance(event, str):
            parts.append(" ")  # the end of a line
        elif "End" in event and "Heading" in str(event["End"]):
            break
        elif "Start" in event and "Image" in event["Start"]:
            images += 1
        elif "End" in event and event["End"] == "Image":
            images -= 1
        elif not images:
            parts.append(str(event.get("Text", event.get("Code", ""))))
    return " ".join("".join(parts).split())


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is no UTF-8; the replacement is one character as well, so that offsets stay.
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text).encode()
