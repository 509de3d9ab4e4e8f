"""A document's text by sections: what they are called, which of them a passage belongs to, what is left of them."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from knowledge_lookup.retrievers.excerpt import EXCERPT_CHARACTERS, Excerpt, excerpt_of_rest, spans_left
from knowledge_lookup.retrievers.markdown_sections import Section, plain_heading, split_sections, subtree_end
from knowledge_lookup.retrievers.metadata import SECTION_SEPARATOR
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.text_cut import cut_apart
from knowledge_lookup.retrievers.text_span import JoinedText, TextSpan, stripped, subtract

_KEPT_ANSWERS = 32

_Ranges = tuple[TextSpan, ...]
_Answer = TypeVar("_Answer")

_TELLING_LINE = 4
"""Lines that are shorter, such as a fence, stand in many places."""


class DocumentText:
    """One version of a document's body.

    A section's title is its heading, or the path of headings that leads to it where several share that heading; the
    text before the first heading has the document's title.

    :param body: Markdown without front matter.
    :param title: The document's title.
    """

    def __init__(self, body: str, title: str) -> None:
        self.body = body
        self._title = title
        self._known_lines: dict[_Ranges, tuple[int, ...]] = {}
        self._known_titles: dict[_Ranges, tuple[str, ...]] = {}
        self._known_left: dict[_Ranges, tuple[str, ...]] = {}

    @cached_property
    def version(self) -> str:
        """Identifies this text: offsets are good for the version that they were taken of."""
        return hashlib.sha256(self.body.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def locate(self, passage: str, section: str) -> TextSpan | None:
        """Find where a passage stands.

        :param passage: The passage's text.
        :param section: The path of its section, as its metadata has it; tells apart texts that stand there twice.
        :returns: Its range; None if this version doesn't have it.
        """
        named = [at for at, path in enumerate(self._paths) if section in (path, self._without_title(path))]
        # The metadata has the end of a path that is too long.
        ending = [at for at, path in enumerate(self._paths) if section and path.endswith(section)]
        for at in [*named, *ending]:
            start = self.body.find(passage, self._sections[at].text_start, self._sections[at].end)
            if start >= 0:
                return TextSpan(start, start + len(passage))
        start = self.body.find(passage)
        return TextSpan(start, start + len(passage)) if start >= 0 else None

    def lines_of(self, spans: Sequence[TextSpan]) -> tuple[int, ...]:
        """Identify the lines that lie wholly in some ranges, so that other versions can tell which of them they have.

        :param spans: The ranges.
        :returns: A number for each line of some length.
        """
        return _kept(self._known_lines, tuple(spans), self._find_lines)

    def spans_of_lines(self, lines: Collection[int]) -> list[TextSpan]:
        """Find lines that another version had as well.

        :param lines: What :meth:`lines_of` returned there.
        :returns: Their ranges; short lines between two of them are taken with them.
        """
        spans: list[TextSpan] = []
        is_running = False
        for line, known in self._lines_between(0, len(self.body)):
            if known is None:
                continue
            if known not in lines:
                is_running = False
            elif is_running:
                spans[-1] = TextSpan(spans[-1].start, line.end)
            else:
                spans.append(line)
                is_running = True
        return spans

    def is_whole(self, spans: Sequence[TextSpan]) -> bool:
        """Tell whether one of some ranges is all of the text.

        :param spans: The ranges.
        :returns: True if nothing but white space lies outside of it.
        """
        whole = stripped(self.body, TextSpan(0, len(self.body)))
        return any(start <= whole.start and whole.end <= end for start, end in spans)

    def titles_of(self, spans: Sequence[TextSpan]) -> tuple[str, ...]:
        """Name the sections that some ranges belong to.

        :param spans: The ranges.
        :returns: Titles of the sections of whose text something is inside, in order.
        """
        return _kept(self._known_titles, tuple(spans), self._find_titles)

    def titles_left(self, given: Sequence[TextSpan]) -> tuple[str, ...]:
        """Name the sections of which something was not given.

        :param given: What was given.
        :returns: Titles of the sections that have text of their own left, in order.
        """
        return _kept(self._known_left, tuple(given), self._find_titles_left)

    def sections_named(self, title: str) -> list[int]:
        """Find the sections with a title.

        :param title: Title, heading or path of a section; compared in normal form, as keywords are.
        :returns: Positions of the sections in order; several if they share their heading.
        """
        wanted = _key(plain_heading(title))
        return [at for at, names in enumerate(self._names) if wanted and wanted in names]

    def sections_beginning(self, title: str) -> list[int]:
        """Find the sections whose title begins with a text.

        :param title: The beginning of a title, heading or path; compared in normal form.
        :returns: Positions of the sections in order.
        """
        wanted = _key(plain_heading(title))
        return [at for at, names in enumerate(self._names) if wanted and any(name.startswith(wanted) for name in names)]

    def title_at(self, position: int) -> str:
        """Return a section's title.

        :param position: Its position.
        :returns: The title.
        """
        return self._titles[position]

    def section(self, position: int, given: Sequence[TextSpan], *, limit: int = EXCERPT_CHARACTERS) -> Excerpt:
        """Give a section, with the sections below it.

        Of a section that everything else lies below, which is the document itself, only its own text is given.

        :param position: Position of the section.
        :param given: What was given before and is left out.
        :param limit: Most characters.
        :returns: What is left of it, cut at a good place; empty if nothing is left.
        """
        end = subtree_end(self._sections, position)
        below = [section for section in self._sections[position:] if section.start < end]
        section_start, end_of_below = below[0].start, end
        own_text = self.body[below[0].text_start : below[0].end]
        if position == 0 and len(below) == len(self._sections) and own_text.strip():
            below = below[:1]
        left = spans_left(self.body, below, given)
        if not left and not any(start < end_of_below and section_start < end for start, end in given):
            left = [TextSpan(section_start, end_of_below)]  # headings alone
        rest = JoinedText(self.body, left)
        whole = stripped(rest.text, TextSpan(0, len(rest.text)))
        beginning, closing = cut_apart(rest.text[whole.start : whole.end], limit)
        origin = rest.origin(TextSpan(whole.start, whole.start + len(beginning)))
        return Excerpt(beginning + closing, tuple(origin))

    def rest(self, terms: Sequence[str], given: Sequence[TextSpan], *, limit: int = EXCERPT_CHARACTERS) -> Excerpt:
        """Give what an exact match delivers of what is left.

        :param terms: The matched terms in normal form.
        :param given: What was given before and is left out.
        :param limit: Most characters.
        :returns: The excerpt; empty if nothing is left.
        """
        return excerpt_of_rest(self.body, terms, given, limit=limit)

    def _find_lines(self, spans: tuple[TextSpan, ...]) -> tuple[int, ...]:
        inside = {
            line: known
            for span in spans
            for line, known in self._lines_between(*span)
            if known is not None and span.start <= line.start and line.end <= span.end
        }
        return tuple(inside[line] for line in sorted(inside))

    def _find_titles(self, spans: tuple[TextSpan, ...]) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                title
                for title, text in zip(self._titles, self._own_texts, strict=True)
                if text.start < text.end and any(start < text.end and text.start < end for start, end in spans)
            )
        )

    def _find_titles_left(self, given: tuple[TextSpan, ...]) -> tuple[str, ...]:
        if self.is_whole(given):
            return ()  # without reading the document into sections
        left = (
            title
            for title, text in zip(self._titles, self._own_texts, strict=True)
            if any(self.body[start:end].strip() for start, end in subtract(text, given))
        )
        return tuple(dict.fromkeys(left))

    def _lines_between(self, start: int, end: int) -> Iterator[tuple[TextSpan, int | None]]:
        """Give the lines that a range touches with what identifies them; None for one too short to tell from others."""
        behind = self.body.rfind("\n", 0, start) + 1
        line_end = self.body.find("\n", end) + 1 or len(self.body)
        for text in self.body[behind:line_end].splitlines(keepends=True):
            behind += len(text)
            said = text.lstrip()
            first = behind - len(said)
            said = said.rstrip()
            is_telling = len(said) >= _TELLING_LINE
            known = zlib.crc32(said.encode("utf-8", "surrogatepass")) if is_telling else None
            yield TextSpan(first, first + len(said)), known

    @cached_property
    def _own_texts(self) -> list[TextSpan]:
        """The sections' texts, without their headings and what lies below them."""
        return [stripped(self.body, TextSpan(section.text_start, section.end)) for section in self._sections]

    @cached_property
    def _sections(self) -> list[Section]:
        return split_sections(self.body)

    @cached_property
    def _paths(self) -> list[str]:
        return [SECTION_SEPARATOR.join(section.path) for section in self._sections]

    @cached_property
    def _names(self) -> list[set[str]]:
        headings = (section.heading or self._title for section in self._sections)
        return [set(map(_key, names)) for names in zip(self._titles, headings, self._paths, strict=True)]

    @cached_property
    def _titles(self) -> list[str]:
        headings = [section.heading or self._title for section in self._sections]
        normal = [normal_form(heading) for heading in headings]
        times = Counter(normal)
        return [
            heading if times[key] == 1 or not path else self._without_title(path)
            for heading, key, path in zip(headings, normal, self._paths, strict=True)
        ]

    def _without_title(self, path: str) -> str:
        return path.removeprefix(self._title + SECTION_SEPARATOR)


def _kept(known: dict[_Ranges, _Answer], ranges: _Ranges, find: Callable[[_Ranges], _Answer]) -> _Answer:
    """Look an answer up, since sessions are given the same few ranges of a document; of a few the last are kept."""
    answer = known.get(ranges)
    if answer is None:
        answer = find(ranges)
        if len(known) >= _KEPT_ANSWERS:
            known.clear()
        known[ranges] = answer
    return answer


def _key(title: str) -> str:
    # A heading of punctuation alone has no normal form, and its section must be within reach as well.
    return normal_form(title) or " ".join(title.split())
