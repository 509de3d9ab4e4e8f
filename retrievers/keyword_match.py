"""What goes into the keyword index and what a match gives back."""

from dataclasses import dataclass


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
class KeywordMatches:
    """The answer of the keyword index to one query.

    :param query: The normal form that was matched (of a long query, of its beginning only).
    :param matches: The matching documents, best first: title equality, longest matched term, path.
    :param decisive: True when exactly one document matches and its matched terms account for the query.
    :param rest: What the matched terms didn't account for once the listed words are taken out (those that ask, report
        or handle); empty when nothing is left.
    """

    query: str
    matches: tuple[KeywordMatch, ...]
    decisive: bool
    rest: str

    @property
    def match_count(self) -> int:
        """The number of documents that match."""
        return len(self.matches)
