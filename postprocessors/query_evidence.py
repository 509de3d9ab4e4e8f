"""What one query says about passages: its terms, how rare they are, and how similar other documents are to it."""

import math
from collections.abc import Mapping, Sequence

from knowledge_lookup.postprocessors.evidence import Evidence
from knowledge_lookup.retrievers.search_terms import query_terms
from knowledge_lookup.retrievers.term_coverage import differs_in_script, term_coverage
from knowledge_lookup.retrievers.term_statistics import TermStatistics, inverse_passage_frequencies

_OTHERS = 5
"""So many other documents tell how similar things are to a query that don't answer it."""


class QueryEvidence:
    """Computes the features of passages for one query.

    :param query: The query.
    :param statistics: How often terms occur in the corpus.
    """

    def __init__(self, query: str, statistics: TermStatistics) -> None:
        self._query = query
        self._weights = inverse_passage_frequencies(query_terms(query), statistics)
        total = sum(self._weights.values())
        unknown = sum(weight for term, weight in self._weights.items() if statistics.passage_frequency(term) == 0)
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


def backgrounds(similarities: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Tell for each document how similar to the query other documents are.

    :param similarities: The similarities (0 to 1) of each document's passages, at least one each.
    :returns: For each document the mean over the five other documents that are nearest to the query, each by its best
        passage. Where it is the only document, the mean over the weaker half of its own passages.
    """
    nearest = sorted(((max(found), document) for document, found in similarities.items()), reverse=True)
    means = {}
    for document, found in similarities.items():
        others = [best for best, other in nearest[: _OTHERS + 1] if other != document][:_OTHERS]
        if not others:
            ranked = sorted(found, reverse=True)
            others = ranked[len(ranked) // 2 :]
        means[document] = sum(others) / len(others)
    return means
