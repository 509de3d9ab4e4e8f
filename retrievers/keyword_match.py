"""What goes into the keyword index and what a match gives back."""

import heapq
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

_FIRST = 100
"""Up to here matches are made each time they are asked for; whoever asks for later ones gets all kept."""


@dataclass(frozen=True, slots=True)
class KeywordEntry:
    """One document as the keyword index knows it.

    :param file_path: Path relative to the base path, ``/`` as separator; identifies the document.
    :param title: The document's title, as written.
    :param domain: The document's domain.
    :param keywords: The document's keywords, as written.
    :param has_title: Whether the title is the document's own; one made of the file's name is shown, but not a term.
    :param content_hash: Tells versions of the document apart; empty where nobody needs that.
    """

    file_path: str
    title: str
    domain: str
    keywords: tuple[str, ...]
    has_title: bool = True
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class KeywordMatch:
    """One matching document, with the evidence.

    :param entry: The document.
    :param terms: Its matched terms in normal form, each once, in the order of their first position in the query.
    :param spans: Where they stand in the query's normal form (half-open character positions).
    :param equals_title: True when the whole query is the document's (indexed) title.
    :param longest_span: Length of the longest matched term, in characters of the normal form.
    """

    entry: KeywordEntry
    terms: tuple[str, ...]
    spans: frozenset[tuple[int, int]]
    equals_title: bool
    longest_span: int


@dataclass(frozen=True, slots=True)
class MatchedGroup:
    """Documents that match by the same terms.

    :param terms: The matched terms in normal form, each once, in the order of their first position in the query.
    :param spans: Where they stand in the query's normal form.
    :param entries: The documents by path, best first.
    :param equal_titles: Paths of those whose title is the whole query.
    """

    terms: tuple[str, ...]
    spans: frozenset[tuple[int, int]]
    entries: Mapping[str, KeywordEntry]
    equal_titles: Collection[str] = frozenset()

    @property
    def longest_span(self) -> int:
        """Length of the longest matched term."""
        return max(end - start for start, end in self.spans)

    def match(self, file_path: str) -> KeywordMatch:
        """Give one of the documents as a match.

        :param file_path: The document, which must belong to the group.
        :returns: The match.
        """
        return KeywordMatch(
            entry=self.entries[file_path],
            terms=self.terms,
            spans=self.spans,
            equals_title=file_path in self.equal_titles,
            longest_span=self.longest_span,
        )


class RankedMatches(Sequence[KeywordMatch]):
    """Matching documents, best first, each made when it is asked for: a keyword may be that of very many documents.

    >>> list(RankedMatches())
    []

    :param groups: The groups, no document in two of them.
    """

    def __init__(self, groups: Iterable[MatchedGroup] = ()) -> None:
        self._groups = sorted(groups, key=_group_rank)

    def __len__(self) -> int:
        return sum(len(group.entries) for group in self._groups)

    def __iter__(self) -> Iterator[KeywordMatch]:
        for _, equals in itertools.groupby(self._groups, key=_group_rank):
            first, *others = (map(group.match, group.entries) for group in equals)
            yield from heapq.merge(first, *others, key=rank) if others else first

    @overload
    def __getitem__(self, position: int) -> KeywordMatch: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[KeywordMatch, ...]: ...

    def __getitem__(self, position: int | slice) -> KeywordMatch | tuple[KeywordMatch, ...]:
        if isinstance(position, slice):
            first, behind, step = position.indices(len(self))
            if step > 0 and behind <= _FIRST:
                return tuple(itertools.islice(self, first, behind, step))
            return self._all[position]
        at = position + len(self) if position < 0 else position
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} matches, none at {position}")
        return next(itertools.islice(self, at, None)) if at < _FIRST else self._all[at]

    def __reversed__(self) -> Iterator[KeywordMatch]:
        return reversed(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"<RankedMatches: {len(self)}: {shown}{', ...' if len(self) > 3 else ''}>"

    @cached_property
    def _all(self) -> tuple[KeywordMatch, ...]:
        return tuple(self)

    def among(self, file_paths: Iterable[str]) -> list[KeywordMatch]:
        """Pick some documents out, without a look at the others.

        :param file_paths: Paths of documents; those that don't match are passed over.
        :returns: Their matches, best first.
        """
        wanted = dict.fromkeys(file_paths)
        return sorted(
            (group.match(path) for path in wanted for group in self._groups if path in group.entries), key=rank
        )


def _group_rank(group: MatchedGroup) -> tuple[bool, int]:
    return not group.equal_titles, -group.longest_span


def rank(match: KeywordMatch) -> tuple[bool, int, str]:
    """Give the order of matches: equality with the title, the longest matched term, the path.

    :param match: A match.
    :returns: A key to sort by, smaller is better.
    """
    return not match.equals_title, -match.longest_span, match.entry.file_path


@dataclass(frozen=True, slots=True)
class KeywordMatches:
    """The answer of the keyword index to one query.

    :param query: The normal form that was matched (of a long query, of its beginning only).
    :param matches: The matching documents, best first: title equality, longest matched term, path.
    :param decisive: True when exactly one document matches and its matched terms account for the query.
    :param rest: What the matched terms didn't account for once the listed words are taken out (those that ask, report
        or handle); empty when nothing is left.
    """

    query: str
    matches: RankedMatches
    decisive: bool
    rest: str

    @property
    def match_count(self) -> int:
        """The number of documents that match."""
        return len(self.matches)
