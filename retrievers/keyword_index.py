"""The exact keyword index (L0): which documents' keywords and titles stand in a query."""

import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from knowledge_lookup.retrievers.decisiveness import QueryWords, leading_negation, what_is_left
from knowledge_lookup.retrievers.errors import KnowledgeLookupError
from knowledge_lookup.retrievers.fork_safety import hold_during_fork
from knowledge_lookup.retrievers.keyword_match import KeywordEntry, KeywordMatches, MatchedGroup, RankedMatches
from knowledge_lookup.retrievers.normal_form import is_cjk, normal_form
from knowledge_lookup.retrievers.term_table import TermTable

KeywordField = Literal["keywords", "title"]

# Longer queries are pasted logs; only their beginning is matched.
_MAX_QUERY_LENGTH = 2_000

_MANY_DOCUMENTS = 1_000
_MOST_KEPT = 16
"""Where so many documents match, their groups are kept for the next query with these terms; of so many at most."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Document:
    entry: KeywordEntry
    terms: tuple[str, ...]
    title_term: str | None


@dataclass(frozen=True, slots=True)
class _Group:
    """The documents with the same matched terms, best first; whatever the query, and where in it the terms stand."""

    terms: tuple[str, ...]
    entries: dict[str, KeywordEntry]
    equal_titles: frozenset[str]


class KeywordIndex:
    """Documents by the keywords and titles that name them, in memory.

    ::

        index = KeywordIndex()
        index.add(KeywordEntry("api/payment-errors.md", "支付错误码", "api", ("ERR_TIMEOUT", "支付网关")))
        index.match("ERR_TIMEOUT 怎么处理").decisive  # True

    Any number of threads may match while others add and remove. Writers hold a lock and count a version up before and
    after a change. A match takes no lock; only if the version shows that a change was under way meanwhile, it looks the
    documents up once more under the lock. So it sees every change wholly or not at all.

    :param fields: What of a document is indexed: ``keywords``, ``title`` or both.
    :param query_words: Words that may be left of a query whose match is decisive; None takes the package's own lists.
    :raises KnowledgeLookupError: When a field is unknown or none is given.
    """

    def __init__(
        self,
        *,
        fields: Sequence[KeywordField] = ("keywords", "title"),
        query_words: QueryWords | None = None,
    ) -> None:
        known = get_args(KeywordField)
        if not fields or any(field not in known for field in fields):
            raise KnowledgeLookupError(
                f"the keyword index can't index the fields {list(fields)!r}; name one or both of {', '.join(known)}"
            )
        self._fields = frozenset(fields)
        self._query_words = QueryWords.load() if query_words is None else query_words
        self._lock = threading.Lock()
        hold_during_fork(self._lock)
        self._version = 0  # odd while a change is under way
        self._documents: dict[str, _Document] = {}
        self._terms = TermTable()
        self._fingerprint = 0
        self._kept: dict[tuple[tuple[str, ...], bool], tuple[int, list[_Group]]] = {}
        """By terms, and whether they are the whole query: the version that the groups belong to, and these."""

    @property
    def fingerprint(self) -> str:
        """Identifies the documents that are indexed, in their versions, whatever the order and the process."""
        return f"{self._fingerprint:032x}"

    def add(self, entry: KeywordEntry) -> None:
        """Index a document, in place of the one with the same path if there is one.

        A keyword or title of which nothing is left in normal form is refused with a warning; the others are indexed.

        :param entry: The document.
        """
        self.update([entry])

    def update(self, entries: Iterable[KeywordEntry]) -> None:
        """Index several documents, each as :meth:`add` does; a match meanwhile waits until all are there.

        :param entries: The documents.
        """
        documents = map(self._document_of, entries)
        with self._changing():
            for document in documents:
                entry = document.entry
                self._take_out(entry.file_path)
                self._documents[entry.file_path] = document
                self._terms.add(document.terms, entry.file_path)
                self._fingerprint ^= _digest(entry)

    def remove(self, file_path: str) -> bool:
        """Take a document out.

        :param file_path: Its path, as added.
        :returns: True when it was there.
        """
        with self._changing():
            return self._take_out(file_path)

    def get(self, file_path: str) -> KeywordEntry | None:
        """Look a document up by its path.

        :param file_path: Its path, as added.
        :returns: The document, None when it isn't there.
        """
        document = self._documents.get(file_path)
        return None if document is None else document.entry

    def __len__(self) -> int:
        return len(self._documents)

    def __contains__(self, file_path: object) -> bool:
        return file_path in self._documents

    def __iter__(self) -> Iterator[KeywordEntry]:
        return iter([document.entry for document in list(self._documents.values())])

    def match(self, query: str) -> KeywordMatches:
        """Find the documents whose terms stand in a query.

        The longest match wins: a term inside a longer matched one doesn't count, so a term that equals the whole query
        beats everything. A document whose matches are only a part of another document's doesn't count either.

        The match is decisive when exactly one document is found and the rest of the query is nothing but words that
        ask for what it says, report or handle; any other word may ask for more than the document holds.

        Of a query longer than 2,000 characters (as it came in, space at the ends aside) only the beginning is matched,
        up to the last white space or CJK character before that length, and the match is never decisive.

        :param query: The query as it was asked.
        :returns: The documents, best first, and whether the match is decisive.
        """
        whole = query.strip()
        beginning = _beginning(whole)
        normal = normal_form(beginning)
        groups = self._groups(normal)
        matches = RankedMatches(groups)
        rest = what_is_left(normal, {span for group in groups for span in group.spans}, self._query_words)
        rest = rest or leading_negation(beginning)
        return KeywordMatches(
            query=normal,
            matches=matches,
            decisive=len(matches) == 1 and len(beginning) == len(whole) and not rest,
            rest=rest,
        )

    def _document_of(self, entry: KeywordEntry) -> _Document:
        fields: list[tuple[KeywordField, str]] = [("keywords", keyword) for keyword in entry.keywords]
        if entry.has_title:
            fields.append(("title", entry.title))
        terms: dict[str, None] = {}
        title_term = None
        for field, text in fields:
            if field not in self._fields:
                continue
            term = normal_form(text)
            if not term:
                _logger.warning(
                    "%s: %r in %s holds nothing but space and punctuation and is not indexed; change or remove it",
                    entry.file_path,
                    text,
                    field,
                )
                continue
            terms[term] = None
            if field == "title":
                title_term = term
        return _Document(entry=entry, terms=tuple(terms), title_term=title_term)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            self._version += 1
            try:
                yield
            finally:
                self._version += 1

    def _take_out(self, file_path: str) -> bool:
        document = self._documents.pop(file_path, None)
        if document is None:
            return False
        self._terms.discard(document.terms, file_path)
        self._fingerprint ^= _digest(document.entry)
        return True

    def _groups(self, normal: str) -> list[MatchedGroup]:
        version = self._version
        if version % 2 == 0:
            groups = self._look_up(normal, version)
            if self._version == version:
                return groups
        with self._lock:
            return self._look_up(normal, self._version)

    def _look_up(self, normal: str, version: int) -> list[MatchedGroup]:
        """Group the undominated documents by their matched terms; the index may change meanwhile."""
        spans_by_term: dict[str, list[tuple[int, int]]] = {}
        for start, end in self._terms.longest_spans(normal):
            spans_by_term.setdefault(normal[start:end], []).append((start, end))
        terms = tuple(spans_by_term)
        is_whole = terms == (normal,)
        known = self._kept.get((terms, is_whole))
        if known is not None and known[0] == version:
            groups = known[1]
        else:
            groups = self._grouped(terms, is_whole=is_whole)
            if sum(len(group.entries) for group in groups) >= _MANY_DOCUMENTS:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[terms, is_whole] = version, groups
        return [
            MatchedGroup(
                terms=group.terms,
                spans=frozenset(span for term in group.terms for span in spans_by_term[term]),
                entries=group.entries,
                equal_titles=group.equal_titles,
            )
            for group in groups
        ]

    def _grouped(self, terms: Sequence[str], *, is_whole: bool) -> list[_Group]:
        commonest, term_sets = self._term_sets(terms)
        paths_by_set: dict[int, list[str]] = {}
        for path, term_set in term_sets.items():
            paths_by_set.setdefault(term_set, []).append(path)
        if commonest is not None and not any(term_set >> commonest & 1 for term_set in paths_by_set):
            paths_by_set[1 << commonest] = self._terms.paths_of(terms[commonest])
        groups = []
        for term_set in _undominated(paths_by_set):
            matched = tuple(term for number, term in enumerate(terms) if term_set >> number & 1)
            documents = [d for path in paths_by_set[term_set] if (d := self._documents.get(path)) is not None]
            if documents:
                groups.append(_group(matched, documents, is_whole=is_whole))
        return groups

    def _term_sets(self, terms: Sequence[str]) -> tuple[int | None, dict[str, int]]:
        """Give each document's matched terms as a number with one bit for each; no two terms share a span.

        Of the commonest term, which may be that of very many documents, only those that have another one as well.

        :returns: The number of the commonest term; the other documents' sets.
        """
        if not terms:
            return None, {}
        commonest = max(range(len(terms)), key=lambda number: self._terms.count(terms[number]))
        term_sets: dict[str, int] = {}
        for number, term in enumerate(terms):
            if number != commonest:
                for path in self._terms.paths_of(term):
                    term_sets[path] = term_sets.get(path, 0) | 1 << number
        for path in term_sets:
            if self._terms.has(terms[commonest], path):
                term_sets[path] |= 1 << commonest
        return commonest, term_sets


def _group(terms: tuple[str, ...], documents: list[_Document], *, is_whole: bool) -> _Group:
    titles = frozenset(d.entry.file_path for d in documents if is_whole and d.title_term == terms[0])
    documents.sort(key=lambda document: document.entry.file_path)
    if titles:
        documents.sort(key=lambda document: document.entry.file_path not in titles)
    return _Group(terms, {document.entry.file_path: document.entry for document in documents}, titles)


def _digest(entry: KeywordEntry) -> int:
    # By exclusive or of these one document is added or taken out without a look at the others.
    said = "\0".join((entry.file_path, entry.content_hash, entry.domain, entry.title, *entry.keywords))
    return int.from_bytes(hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).digest())


def _beginning(query: str) -> str:
    """Cut a long query before anything costly is done with it, and not inside of a token."""
    if len(query) <= _MAX_QUERY_LENGTH:
        return query
    end = _MAX_QUERY_LENGTH
    while end > 0 and not any(char.isspace() or is_cjk(char) for char in query[end - 1 : end + 1]):
        end -= 1
    return query[:end]


def _undominated(term_sets: Iterable[int]) -> list[int]:
    """Leave out the sets that are proper subsets of another one."""
    kept: list[int] = []
    for term_set in sorted(term_sets, key=int.bit_count, reverse=True):
        if not any(term_set & larger == term_set for larger in kept):
            kept.append(term_set)
    return kept
