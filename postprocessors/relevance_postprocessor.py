"""The node postprocessor that turns distances into similarities and judges the level of a result."""

from collections.abc import Sequence
from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.postprocessors.completeness_hints import Locale, completeness_hint
from knowledge_lookup.postprocessors.normalization import NormalizationProfile, normalize_l2
from knowledge_lookup.postprocessors.relevance_level import RelevanceLevel, judge
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

    _profile: NormalizationProfile = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Check the thresholds together."""
        super().model_post_init(context)
        self._profile = NormalizationProfile(
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
        exact = [self._with_similarity(scored) for scored in nodes if keys.is_exact(scored)]
        passages = [self._with_similarity(scored) for scored in nodes if not keys.is_exact(scored)]
        similarities = [scored.score for scored in passages if scored.score is not None]
        level = judge(
            match_count=_match_count(exact),
            decisive=_is_decisive(exact),
            best_similarity=max(similarities, default=None),
            profile=self._profile,
        )
        if level is None:
            return []
        relevant = [scored for scored in passages if self._is_relevant(scored)]
        relevant.sort(key=lambda scored: -(scored.score if scored.score is not None else 0.0))
        judgement = {
            keys.RELEVANCE_LEVEL: level.value,
            keys.COMPLETENESS_HINT: completeness_hint(level, self.locale),
        }
        return [keys.annotate(scored, score=scored.score, annotations=judgement) for scored in [*exact, *relevant]]

    def _is_relevant(self, scored: NodeWithScore) -> bool:
        if scored.score is None:
            return False
        return scored.score >= self.reference_threshold or keys.MATCHED_TERMS in scored.node.metadata

    def _with_similarity(self, scored: NodeWithScore) -> NodeWithScore:
        unmarked = keys.SIMILARITY if keys.is_exact(scored) else self.unmarked_scores
        kind = scored.node.metadata.get(keys.SCORE_KIND, unmarked)
        if scored.score is None or kind == keys.SIMILARITY:
            return scored
        return keys.annotate(
            scored,
            score=normalize_l2(scored.score, self.max_l2_distance),
            annotations={keys.SCORE_KIND: keys.SIMILARITY, keys.DISTANCE: scored.score},
        )


def relevance_level_of(nodes: Sequence[NodeWithScore]) -> RelevanceLevel | None:
    """Read the level that a ``RelevancePostprocessor`` gave a result.

    :param nodes: The postprocessor's output.
    :returns: The level; None for an empty result.
    :raises ValueError: If there are nodes, but no postprocessor has judged them.
    """
    if not nodes:
        return None
    level = nodes[0].node.metadata.get(keys.RELEVANCE_LEVEL)
    if level is None:
        raise ValueError("these nodes carry no relevance level: run a RelevancePostprocessor over them first")
    return RelevanceLevel(level)


def _match_count(exact: Sequence[NodeWithScore]) -> int:
    return max((int(scored.node.metadata.get(keys.MATCH_COUNT, len(exact))) for scored in exact), default=0)


def _is_decisive(exact: Sequence[NodeWithScore]) -> bool:
    if not exact:
        return False
    said = [scored.node.metadata[keys.DECISIVE] for scored in exact if keys.DECISIVE in scored.node.metadata]
    return all(said) if said else _match_count(exact) == 1
