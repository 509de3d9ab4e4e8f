"""How often terms occur in the passages of a corpus: what makes one term say more than another."""

import math
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

_FEWEST_PASSAGES = 100


@runtime_checkable
class TermStatistics(Protocol):
    """What a judgement of evidence needs to know of the corpus; ``Bm25Index`` has it."""

    def passage_count(self) -> int:
        """Return the number of passages in the corpus, 0 or more."""
        ...

    def passage_frequency(self, term: str) -> int:
        """Return the number of passages that contain a term, 0 or more."""
        ...


def inverse_passage_frequencies(terms: Iterable[str], statistics: TermStatistics) -> dict[str, float]:
    """Weigh terms by how rare they are.

    ``ln(1 + (N - n + 0.5) / (n + 0.5))`` of N passages, n of which contain the term: the weight that BM25 gives a term
    (S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009), kept above 0. A
    corpus of fewer than 100 passages counts as one of 100: in a handful of passages on one topic every word of the
    topic is frequent, and says something all the same.

    :param terms: The terms.
    :param statistics: Frequencies in the corpus.
    :returns: Each term's weight, above 0; highest for a term that occurs nowhere.
    """
    total = max(statistics.passage_count(), _FEWEST_PASSAGES)
    weights = {}
    for term in terms:
        containing = min(statistics.passage_frequency(term), total)
        weights[term] = math.log1p((total - containing + 0.5) / (containing + 0.5))
    return weights
