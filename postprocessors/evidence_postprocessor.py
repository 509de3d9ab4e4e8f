"""The node postprocessor that judges a result by all its evidence: similarity, words, and what the corpus is like."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.postprocessors.evidence import Evidence, EvidenceProfile
from knowledge_lookup.postprocessors.level_marking import Judged, mark_level
from knowledge_lookup.postprocessors.normalization import normalize_l2
from knowledge_lookup.postprocessors.query_evidence import QueryEvidence, backgrounds
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.passage import passage_text
from knowledge_lookup.retrievers.term_statistics import TermStatistics


class EvidencePostprocessor(BaseNodePostprocessor):
    """Makes of each passage's distance and words a calibrated probability, drops what isn't relevant, marks the level.

    Behind any retriever that gives squared L2 distances, or similarities with ``unmarked_scores="similarity"``. It
    should over-fetch (40 candidates), since a document is judged by how much nearer it is than others::

        postprocessor = EvidencePostprocessor(statistics=bm25_index, profile=profile)
        nodes = postprocessor.postprocess_nodes(retriever.retrieve(query), query_str=query)
        relevance_level_of(nodes)   # RelevanceLevel.HIGHLY_RELEVANT, ... or None

    ``score`` becomes the probability that the passage's document answers the query, between 0 and 1, higher is better;
    the best passage of each document has the document's. Distance, similarity and features stay in hidden metadata
    (:func:`evidence_of`). Passages below the reference threshold or without a score are dropped, except one that
    ``KnowledgeRetriever`` marked as speaking for a further keyword match. Nodes of a keyword match are never dropped
    and come first. Nodes are copied. Running the postprocessor twice changes nothing.

    :param statistics: How often terms occur in the corpus; a ``Bm25Index`` has it.
    :param profile: What evidence means for the embedding model and the corpus.
    :param unmarked_scores: What the score of a node is that carries no mark of this package.
    :param locale: Language of the completeness hint.
    """

    statistics: TermStatistics = Field(exclude=True)
    profile: EvidenceProfile
    unmarked_scores: Literal["l2_distance", "similarity"] = Field(default="l2_distance")
    locale: Locale = Field(default="zh")

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex serializes."""
        return "EvidencePostprocessor"

    @property
    def max_l2_distance(self) -> float:
        """The squared L2 distance at which a similarity reaches 0."""
        return self.profile.max_l2_distance

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        exact = [scored for scored in nodes if keys.is_exact(scored)]
        passages = [Judged(scored, scored.score) for scored in nodes if not keys.is_exact(scored)]
        unjudged = [at for at, judged in enumerate(passages) if _kind(judged.scored) != keys.PROBABILITY]
        if unjudged:
            if query_bundle is None:
                raise ValueError("evidence is judged against a query: give query_bundle or query_str")
            judgements = self._judged([passages[at].scored for at in unjudged], query_bundle)
            for at, judged in zip(unjudged, judgements, strict=True):
                passages[at] = judged
        best = _best_of_documents(passages)
        return mark_level(
            [_judged_by_passages(scored, best) for scored in exact],
            passages,
            highly_relevant_threshold=self.profile.highly_relevant_threshold,
            reference_threshold=self.profile.reference_threshold,
            locale=self.locale,
        )

    def _judged(self, passages: Sequence[NodeWithScore], query_bundle: QueryBundle) -> list[Judged]:
        query = QueryEvidence(query_bundle.query_str, self.statistics)
        similarities = [self._similarity(scored) for scored in passages]
        texts = [passage_text(scored.node) for scored in passages]
        by_document: dict[str, dict[int, float]] = {}
        for position, (scored, similarity) in enumerate(zip(passages, similarities, strict=True)):
            if similarity is not None:
                by_document.setdefault(keys.document_of(scored), {})[position] = similarity
        background = backgrounds(
            {document: list(found.values()) for document, found in by_document.items()},
            {document: texts[max(found, key=lambda at: found[at])] for document, found in by_document.items()},
            unrelated=self.profile.unrelated_similarity,
        )
        judged = [Judged(scored, scored.score) for scored in passages]
        for document, found in by_document.items():
            evidence = {
                at: query.of(texts[at], similarity, background=background[document]) for at, similarity in found.items()
            }
            probabilities = {at: self.profile.probability(features) for at, features in evidence.items()}
            if len(found) > 1:
                best = max(probabilities, key=lambda at: probabilities[at])
                evidence[best] = _together(list(evidence.values()))
                probabilities[best] = self.profile.probability(evidence[best])
            for at, features in evidence.items():
                said = partial(self._said, passages[at], features, found[at])
                judged[at] = Judged(passages[at], probabilities[at], said)
        return judged

    def _similarity(self, scored: NodeWithScore) -> float | None:
        if scored.score is None or _kind(scored, self.unmarked_scores) == keys.SIMILARITY:
            return scored.score
        return normalize_l2(scored.score, self.max_l2_distance)

    def _said(self, scored: NodeWithScore, evidence: Evidence, similarity: float) -> dict[str, Any]:
        said: dict[str, Any] = {
            keys.SCORE_KIND: keys.PROBABILITY,
            keys.SIMILARITY_SCORE: similarity,
            keys.EVIDENCE: {field.name: getattr(evidence, field.name) for field in fields(evidence)},
        }
        if _kind(scored, self.unmarked_scores) != keys.SIMILARITY:
            said[keys.DISTANCE] = scored.score
        return said


def evidence_of(scored: NodeWithScore) -> Evidence | None:
    """Read the evidence that an ``EvidencePostprocessor`` judged a passage by.

    :param scored: A node of the postprocessor's output.
    :returns: The features; None for a node that wasn't judged so.
    """
    found = scored.node.metadata.get(keys.EVIDENCE)
    return None if found is None else Evidence(**found)


def _judged_by_passages(exact: NodeWithScore, best: dict[str, float]) -> Judged:
    if exact.score is None or _kind(exact, keys.SIMILARITY) != keys.L2_DISTANCE:
        return Judged(exact, exact.score)
    return Judged(
        exact,
        best.get(keys.document_of(exact), 0.0),
        lambda: {keys.SCORE_KIND: keys.PROBABILITY, keys.DISTANCE: exact.score},
    )


def _kind(scored: NodeWithScore, unmarked: str = "") -> str:
    return str(scored.node.metadata.get(keys.SCORE_KIND, unmarked))


def _together(evidence: Sequence[Evidence]) -> Evidence:
    """Put the evidence of one document's passages together: the best of each feature."""
    nearest = max(evidence, key=lambda found: found.similarity)
    return replace(nearest, coverage=max(found.coverage for found in evidence))


def _best_of_documents(passages: Sequence[Judged]) -> dict[str, float]:
    best: dict[str, float] = {}
    for judged in passages:
        if judged.score is not None:
            document = keys.document_of(judged.scored)
            best[document] = max(best.get(document, 0.0), judged.score)
    return best
