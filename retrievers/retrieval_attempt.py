"""One retrieval on its way: what is searched where, and what comes of it, apart from any I/O."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from llama_index.core.schema import MetadataMode, NodeWithScore

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.errors import EmbeddingError, VectorStoreError
from knowledge_lookup.retrievers.keyword_match import KeywordMatch, KeywordMatches
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
from knowledge_lookup.retrievers.term_occurrence import contains_term

_CANDIDATES_PER_PASSAGE = 5
_FEWEST_CANDIDATES = 40
"""So many chunks are fetched for each passage wanted, and so many at least: several may belong to one document that is
left out, and a passage is judged by how much better it is than what else there is."""
_MATCHED_DOCUMENTS_SEARCHED = 100
"""Of a keyword that more documents share than this, the first so many by rank are searched on their own."""

_ALL = "all"
_MATCHED = "matched"
_WITHHELD = "withheld"


@dataclass
class RetrievalAttempt:
    """The state of one retrieval; everything that needs no I/O happens here.

    :param bundle: The query and its scope; gets the embedding of the first search.
    :param matches: Outcome of the keyword match over all documents.
    :param top_k: Number of passages wanted.
    :param most_exact: Most keyword matches that are returned.
    :param l0_ms: Milliseconds of the keyword match.
    :param l1_ms: Milliseconds of embedding and searches; None if they didn't run.
    :param found: What the searches found so far.
    :param exact: The keyword matches that are returned, best first.
    :param others: Further ones, by rank.
    :param top_distance: Squared L2 distance of the nearest passage in scope; None for none.
    :param l1_error: Why semantic search gave nothing; None if it wasn't needed, or went well.
    """

    bundle: ScopedQueryBundle
    matches: KeywordMatches
    top_k: int
    most_exact: int
    l0_ms: float
    l1_ms: float | None = None
    found: dict[str, list[NodeWithScore]] = field(default_factory=dict)
    exact: tuple[KeywordMatch, ...] = ()
    others: tuple[KeywordMatch, ...] = ()
    top_distance: float | None = None
    l1_error: VectorStoreError | EmbeddingError | None = None

    def without_search(self, error: VectorStoreError | EmbeddingError) -> "RetrievalAttempt":
        """Make an attempt of what is known without semantic search, which failed.

        :param error: Why it failed.
        :returns: The attempt.
        """
        bundle = replace(self.bundle, embedding=None)
        return replace(self, bundle=bundle, found={}, exact=(), others=(), top_distance=None, l1_error=error)

    @property
    def needs_semantic_search(self) -> bool:
        """Whether the keyword match leaves the query open."""
        return not self.matches.decisive and not self.bundle.is_empty

    def _in_scope(self, file_path: str) -> bool:
        only = self.bundle.only_documents
        return file_path not in self.bundle.exclude_documents and (only is None or file_path in only)

    def searches(self) -> Iterator[tuple[str, ScopedQueryBundle]]:
        """Give one search after the other; what it found must be added before the next is asked for.

        :returns: Names of the searches and what to search.
        """
        candidates = max(self.top_k * _CANDIDATES_PER_PASSAGE, _FEWEST_CANDIDATES)
        excluded, only = self.bundle.documents_without_passages, self.bundle.only_documents
        yield (
            _ALL,
            self.bundle.scoped(exclude_documents=excluded, only_documents=only, similarity_top_k=candidates),
        )
        if excluded:
            held = excluded if only is None else excluded & only
            yield _WITHHELD, self.bundle.scoped(only_documents=held, similarity_top_k=self.top_k)
        first = itertools.islice(self._matches_in_scope(), _MATCHED_DOCUMENTS_SEARCHED)
        matched, searched = frozenset(match.entry.file_path for match in first), frozenset[str]()
        # All candidates may come from one long document: go on with those that none came from.
        while matched and matched != searched:
            yield _MATCHED, self.bundle.scoped(only_documents=matched, similarity_top_k=candidates)
            matched, searched = self._best_matches_without_passage(), matched

    def add(self, search: str, found: Sequence[NodeWithScore]) -> None:
        """Note what a search found.

        :param search: Its name.
        :param found: The passages.
        """
        self.found.setdefault(search, []).extend(found)

    @property
    def known_ids(self) -> frozenset[str]:
        """Ids of the passages that the search over everything found."""
        return frozenset(scored.node.node_id for scored in self.found.get(_ALL, []))

    def _best_matches_without_passage(self) -> frozenset[str]:
        distances = self.distances()
        ranked = self.ranked_matches(distances)
        silent = [match for match in ranked if match.entry.file_path not in distances]
        first = next((match for match in ranked[: self.most_exact] if match in silent), None)
        if first is None:
            return frozenset()
        # Which of them comes first is what the search is to tell.
        equals = [m for m in silent if (m.equals_title, m.longest_span) == (first.equals_title, first.longest_span)]
        return frozenset(match.entry.file_path for match in equals[:_MATCHED_DOCUMENTS_SEARCHED])

    def _passages(self) -> list[NodeWithScore]:
        return [*self.found.get(_ALL, []), *map(_unranked, self._more_of_matched())]

    def _more_of_matched(self) -> list[NodeWithScore]:
        """What only the search over the matching documents found."""
        return list({scored.node.node_id: scored for scored in self.found.get(_MATCHED, [])}.values())

    def marked_passages(self) -> list[NodeWithScore]:
        """Mark one passage for each match that covers a part of the query that the best match doesn't.

        Who compares two error codes needs both, however little the second one resembles the whole question.

        :returns: All passages, best first.
        """
        passages = self._passages()
        for match in self.exact[1:]:
            if match.spans <= self.exact[0].spans or match.entry.file_path in self.bundle.exclude_passages_of:
                continue
            own = sorted((p for p in passages if keys.document_of(p) == match.entry.file_path), key=_distance)
            naming = [p for p in own if any(contains_term(normal_form(_whole_text(p)), t) for t in match.terms)]
            for speaking in (naming or own)[:1]:
                marked = keys.annotate(
                    speaking, score=speaking.score, annotations={keys.MATCHED_TERMS: list(match.terms)}
                )
                passages[passages.index(speaking)] = marked
        return passages

    def distances(self) -> dict[str, float]:
        """Tell how near each document's nearest passage is.

        :returns: File path to squared L2 distance.
        """
        nearest: dict[str, float] = {}
        for scored in (*self.found.get(_ALL, []), *self._more_of_matched()):
            path = keys.document_of(scored)
            if scored.score is not None and scored.score < nearest.get(path, float("inf")):
                nearest[path] = scored.score
        return nearest

    def _matches_in_scope(self) -> Iterator[KeywordMatch]:
        """Give the matching documents in scope, best first."""
        only = self.bundle.only_documents
        matches = self.matches.matches if only is None else self.matches.matches.among(only)
        return (match for match in matches if self._in_scope(match.entry.file_path))

    def ranked_matches(self, distances: dict[str, float]) -> list[KeywordMatch]:
        """Rank the matches in scope, those of equal rank by distance.

        :param distances: What :meth:`distances` returned.
        :returns: The best ones: all that are used or may be named.
        """
        most = self.most_exact + _MATCHED_DOCUMENTS_SEARCHED
        # A document without distance comes no earlier than by rank alone, so no other can be among the first.
        near = self.matches.matches.among(path for path in distances if self._in_scope(path))
        best = {m.entry.file_path: m for m in [*itertools.islice(self._matches_in_scope(), most), *near]}
        ranked = sorted(
            best.values(),
            key=lambda match: (
                not match.equals_title,
                -match.longest_span,
                distances.get(match.entry.file_path, float("inf")),
                match.entry.file_path,
            ),
        )
        return ranked[:most]

    def withheld_passages(self) -> list[NodeWithScore]:
        """Find the excluded documents' passages that rank among the first ``top_k`` of all.

        :returns: The passages, nearest first.
        """
        withheld = [_unranked(scored) for scored in self.found.get(_WITHHELD, [])]
        if not withheld:
            return []
        ranked = sorted([*self.found.get(_ALL, []), *withheld], key=_distance)[: self.top_k]
        return [scored for scored in ranked if keys.document_of(scored) in self.bundle.documents_without_passages]

    def withheld_documents(self, passages: Sequence[NodeWithScore]) -> tuple[str, ...]:
        """Tell which documents are held back.

        :param passages: What is left of :meth:`withheld_passages`.
        :returns: File paths, those that match by keyword first.
        """
        excluded = [match.entry.file_path for match in self.matches.matches.among(self.bundle.exclude_documents)]
        held = self.held_documents()
        found = [path for path in map(keys.document_of, passages) if path in held]
        return tuple(dict.fromkeys([*excluded, *found]))

    def held_documents(self) -> frozenset[str]:
        """Tell of which documents no passage may be returned, and which aren't returned as a keyword match either.

        :returns: File paths.
        """
        return self.bundle.documents_without_passages - {match.entry.file_path for match in self.exact}


def _unranked(scored: NodeWithScore) -> NodeWithScore:
    """Drop the ranks that a passage had among those of a few documents only."""
    return keys.annotate(scored, score=scored.score, annotations={keys.DENSE_RANK: None, keys.SPARSE_RANK: None})


def _whole_text(scored: NodeWithScore) -> str:
    return scored.node.get_content(metadata_mode=MetadataMode.EMBED)


def _distance(scored: NodeWithScore) -> float:
    return float("inf") if scored.score is None else scored.score
