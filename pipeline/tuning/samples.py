"""What a look-up sees of labelled queries: the evidence for each document, with and without those that answer."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.postprocessors import (
    Evidence,
    EvidencePostprocessor,
    EvidenceProfile,
    EvidenceWeights,
    evidence_of,
)
from knowledge_lookup.retrievers import HybridRetriever, ScopedQueryBundle
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.bm25_index import Bm25Index

_CANDIDATE_PASSAGES = 40
_CANDIDATE_DOCUMENTS = 8
"""What a look-up fetches, and how many documents of it are worth learning from."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that was retrieved for a query.

    :param file_path: The document.
    :param evidence: What speaks for it.
    :param is_right: Whether the label says that it answers.
    """

    file_path: str
    evidence: Evidence
    is_right: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """A query asked once.

    :param query: The query with its label.
    :param left_out: Documents that were left out of the search; those that answer, if any.
    :param candidates: What was found, in the order of the retriever.
    """

    query: LabelledQuery
    left_out: frozenset[str]
    candidates: tuple[Candidate, ...]

    @property
    def is_answerable(self) -> bool:
        """Whether a document that answers could be found."""
        return bool(self.query.gold) and not self.left_out

    @property
    def group(self) -> str:
        """Samples of one group must not be spread over fitting and testing."""
        return min(self.query.gold, default=self.query.query)


class SampleCollector:
    """Asks labelled queries of the search by meaning and words.

    :param retriever: The retriever.
    :param bm25_index: Its search by words.
    :param max_l2_distance: Squared L2 distance at which a similarity reaches 0.
    :param unrelated_similarity: See ``EvidenceProfile``.
    """

    def __init__(
        self,
        retriever: HybridRetriever,
        bm25_index: Bm25Index,
        *,
        max_l2_distance: float,
        unrelated_similarity: float | None = None,
    ) -> None:
        self._retriever = retriever
        self._bm25_index = bm25_index
        self._profile = EvidenceProfile(_BY_LIFT, _BY_LIFT, 0.0, 0.0, max_l2_distance, unrelated_similarity)

    def collect(
        self,
        queries: Sequence[LabelledQuery],
        *,
        leave_out: Callable[[LabelledQuery], Collection[str]] | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> list[Sample]:
        """Ask each query as it is, and each answerable one once more with what answers it left out.

        :param queries: The labelled queries.
        :param leave_out: Which documents to leave out so that a query has no answer; None leaves out those that the
            label names.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: One or two samples a query.
        :raises KnowledgeLookupError: If the model or Milvus can't be used.
        """
        samples = []
        for done, query in enumerate(queries):
            if progress is not None:
                progress(done, len(queries), query.query)
            bundle = ScopedQueryBundle(query.query)
            bundle.embedding = self._retriever.embed(bundle)
            samples.append(self.ask(query, bundle, frozenset()))
            if query.gold:
                left_out = frozenset(query.gold if leave_out is None else leave_out(query))
                samples.append(self.ask(query, bundle, left_out))
        return samples

    def ask(self, query: LabelledQuery, bundle: ScopedQueryBundle, left_out: frozenset[str]) -> Sample:
        """Ask one query.

        :param query: The query with its label.
        :param bundle: The query with its embedding.
        :param left_out: Documents to leave out of the search, and of what is known of its words.
        :returns: The sample.
        """
        scoped = bundle.scoped(exclude_documents=left_out, similarity_top_k=_CANDIDATE_PASSAGES)
        nodes = self._retriever.retrieve(scoped)
        statistics = StatisticsWithout(self._bm25_index, left_out) if left_out else self._bm25_index
        judge = EvidencePostprocessor(statistics=statistics, profile=self._profile)
        documents = dict.fromkeys(keys.document_of(scored) for scored in nodes)
        found = _by_document(judge.postprocess_nodes(nodes, bundle))
        candidates = [
            Candidate(path, found[path], path in query.gold and path not in left_out)
            for path in documents
            if path in found
        ]
        return Sample(query, left_out, tuple(candidates[:_CANDIDATE_DOCUMENTS]))


_BY_LIFT = EvidenceWeights(intercept=0.0, lift=1.0, coverage=0.0, unknown=0.0, information=0.0)
"""Weights by which the nearest passage speaks for its document; probabilities made of them mean nothing."""


class StatisticsWithout:
    """The statistics of a corpus as they would be without some documents.

    :param bm25_index: The statistics of the whole corpus.
    :param left_out: The documents.
    """

    def __init__(self, bm25_index: Bm25Index, left_out: Collection[str]) -> None:
        self._bm25_index = bm25_index
        self._left_out = left_out

    def passage_count(self) -> int:
        """Return the number of passages of the other documents."""
        return self._bm25_index.passage_count() - self._bm25_index.passage_count(within=self._left_out)

    def passage_frequency(self, term: str) -> int:
        """Return the number of passages of the other documents that contain a term."""
        within = self._bm25_index.passage_frequency(term, within=self._left_out)
        return max(self._bm25_index.passage_frequency(term) - within, 0)


def _by_document(nodes: Sequence[NodeWithScore]) -> dict[str, Evidence]:
    found: dict[str, Evidence] = {}
    for scored in nodes:
        evidence = evidence_of(scored)
        if evidence is not None:
            found.setdefault(keys.document_of(scored), evidence)
    return found
