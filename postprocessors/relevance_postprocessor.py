"""The node postprocessor that turns distances into similarities and judges the level of a result."""

from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.postprocessors.level_marking import Judged, mark_level
from knowledge_lookup.postprocessors.normalization import NormalizationProfile, normalize_l2
from knowledge_lookup.retrievers import metadata as keys


class RelevancePostprocessor(BaseNodePostprocessor):
    """Normalizes L2 distances, drops what isn't relevant, and marks every node with the result's level.

    Behind any retriever that gives squared L2 distances::

        nodes = MilvusVectorRetriever(vector_store, embed_model).retrieve(query)
        nodes = RelevancePostprocessor().postprocess_nodes(nodes)
        relevance_level_of(nodes)   # RelevanceLevel.HIGHLY_RELEVANT, ... or None

    Of all nodes, ``score`` becomes a similarity between 0 and 1, higher is better; the raw distance stays in the
    hidden metadata key ``kl_l2_distance``. Passages below the reference threshold or without a score are dropped,
    except one that ``KnowledgeRetriever`` marked as speaking for a further keyword match. Nodes of a keyword match
    (marked by ``KeywordRetriever`` and ``KnowledgeRetriever``) are never dropped; they come first, in their order,
    then the passages, best first. Nodes are copied, the input stays as it is. Running the postprocessor twice
    changes nothing.

    A result is decisive if the keyword match says so in ``kl_decisive``; where it doesn't say, if it left exactly
    one document.

    :param max_l2_distance: Squared L2 distance at which the similarity reaches 0; more than 0.
    :param highly_relevant_threshold: inclusive, 0 to 1.
    :param reference_threshold: inclusive, 0 to 1, at most ``highly_relevant_threshold``.
    :param unmarked_scores: What the score of a node is that carries no mark of this package: a squared L2
        distance (as ``MilvusVectorStore`` with metric L2 gives) or already a similarity.
    :param locale: Language of the completeness hint.
    :raises ValueError: If a value is out of range or the thresholds are out of order.
    """

    max_l2_distance: float = Field(default=NormalizationProfile().max_l2_distance)
    highly_relevant_threshold: float = Field(default=NormalizationProfile().highly_relevant_threshold)
    reference_threshold: float = Field(default=NormalizationProfile().reference_threshold)
    unmarked_scores: Literal["l2_distance", "similarity"] = Field(default="l2_distance")
    locale: Locale = Field(default="zh")

    def model_post_init(self, context: Any, /) -> None:
        """Check the thresholds together."""
        super().model_post_init(context)
        NormalizationProfile(
            max_l2_distance=self.max_l2_distance,
            highly_relevant_threshold=self.highly_relevant_threshold,
            reference_threshold=self.reference_threshold,
        )

    @classmethod
    def from_profile(cls, profile: NormalizationProfile, *, locale: Locale = "zh") -> "RelevancePostprocessor":
        """Build the postprocessor for a normalization profile.

        :param profile: The profile of the embedding model.
        :param locale: Language of the completeness hint.
        :returns: A postprocessor with the profile's values.
        """
        return cls(
            max_l2_distance=profile.max_l2_distance,
            highly_relevant_threshold=profile.highly_relevant_threshold,
            reference_threshold=profile.reference_threshold,
            locale=locale,
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex serializes."""
        return "RelevancePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        exact = [self._judged(scored) for scored in nodes if keys.is_exact(scored)]
        passages = [self._judged(scored) for scored in nodes if not keys.is_exact(scored)]
        return mark_level(
            exact,
            passages,
            highly_relevant_threshold=self.highly_relevant_threshold,
            reference_threshold=self.reference_threshold,
            locale=self.locale,
        )

    def _judged(self, scored: NodeWithScore) -> Judged:
        unmarked = keys.SIMILARITY if keys.is_exact(scored) else self.unmarked_scores
        kind = scored.node.metadata.get(keys.SCORE_KIND, unmarked)
        if scored.score is None or kind != keys.L2_DISTANCE:
            return Judged(scored, scored.score)
        return Judged(
            scored,
            normalize_l2(scored.score, self.max_l2_distance),
            lambda: {keys.SCORE_KIND: keys.SIMILARITY, keys.DISTANCE: scored.score},
        )
