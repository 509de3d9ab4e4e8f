"""What one query says about passages: its terms, how rare they are, and how similar other documents are to it."""

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from knowledge_lookup.postprocessors.evidence import Evidence
from knowledge_lookup.retrievers.search_terms import query_terms
from knowledge_lookup.retrievers.term_coverage import differs_in_script, term_coverage
from knowledge_lookup.retrievers.term_statistics import TermStatistics, inverse_passage_frequencies

_OTHERS = 5
"""So many other documents tell how similar things are to a query that don't answer it."""
_FEWEST_OTHERS = 2
"""Of fewer others what is known of the embedding model stands in."""
_COMPARED = 3
"""So many of the documents nearest to the query are compared with the others, to leave out their copies."""
_LEAST_ALIKE = 0.8
"""Share of the pairs of characters in either text that copies have in common, at least."""
_FEWEST_PAIRS = 20
"""A text with fewer pairs of characters is no copy of anything."""


class QueryEvidence:
    """Computes the features of passages for one query.

    :param query: The query.
    :param statistics: How often terms occur in the corpus.
    """

    def __init__(self, query: str, statistics: TermStatistics) -> None:
        self._query = query
        counted = _Counted(statistics)
        self._weights = inverse_passage_frequencies(query_terms(query), counted)
        total = sum(self._weights.values())
        unknown = sum(weight for term, weight in self._weights.items() if counted.passage_frequency(term) == 0)
        self._unknown = unknown / total if total > 0 else 0.0
        self._information = math.log1p(total)

    def of(self, text: str, similarity: float, *, background: float) -> Evidence:
        """Compute the features of a passage.

        :param text: The passage, with its title and section.
        :param similarity: Its similarity, 0 to 1.
        :param background: Similarity of what else there is (:func:`backgrounds`).
        :returns: The features.
        """
        return Evidence(
            similarity=similarity,
            lift=similarity - background,
            coverage=term_coverage(text, self._weights),
            unknown=self._unknown,
            information=self._information,
            other_script=differs_in_script(self._query, text),
        )


class _Counted:
    """Term statistics of which each term is asked for once."""

    def __init__(self, statistics: TermStatistics) -> None:
        self.passage_count = statistics.passage_count
        self.passage_frequency = cache(statistics.passage_frequency)


def backgrounds(
    similarities: Mapping[str, Sequence[float]], nearest_texts: Mapping[str, str], *, unrelated: float | None
) -> dict[str, float]:
    """Tell for each document how similar to the query other documents are.

    Of the documents nearest to the query, copies of one another (a runbook for each region) don't count as others.

    :param similarities: The similarities (0 to 1) of each document's passages, at least one each.
    :param nearest_texts: The text of each document's best passage.
    :param unrelated: Similarity of what has nothing to do with a query; stands in where there are fewer than two
        others. None where that isn't known.
    :returns: For each document the mean over the five other documents that are nearest to the query, each by its best
        passage. Where there's nothing to compare with, the mean over the weaker half of its own passages.
    """
    nearest = sorted(((max(found), document) for document, found in similarities.items()), reverse=True)
    copies = _Copies(nearest_texts)
    means = {}
    for rank, (_, document) in enumerate(nearest):
        others: list[float] = []
        for best, other in nearest:
            if other == document or (rank < _COMPARED and copies.are_copies(document, other)):
                continue
            others.append(best)
            if len(others) == _OTHERS:
                break
        if unrelated is not None:
            others += [min([unrelated, *others])] * (_FEWEST_OTHERS - len(others))
        if not others:
            ranked = sorted(similarities[document], reverse=True)
            others = ranked[len(ranked) // 2 :]
        means[document] = sum(others) / len(others)
    return means


class _Copies:
    """Tells whether two texts are nearly the same, by the pairs of characters that both have."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def are_copies(self, first: str, second: str) -> bool:
        shorter, longer = sorted((len(self._texts[first]), len(self._texts[second])))
        if shorter < _LEAST_ALIKE * longer:
            return False
        pairs, others = _pairs_of(self._texts[first]), _pairs_of(self._texts[second])
        if len(pairs) < _FEWEST_PAIRS:
            return False
        either = np.sort(np.concatenate([pairs, others]))
        common = int(np.count_nonzero(either[1:] == either[:-1]))
        return common >= _LEAST_ALIKE * (len(either) - common)


@lru_cache(maxsize=1024)
def _pairs_of(text: str) -> NDArray[np.uint64]:
    # As sorted numbers, a tenth of the size of a set: the same passages come up again and again, and are kept.
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    return np.unique((codes[:-1] << np.uint64(32)) | codes[1:])
