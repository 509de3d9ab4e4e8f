"""Which evidence profile applies to an embedding model and a corpus."""

from collections.abc import Mapping
from pathlib import Path

from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.pipeline.settings import NormalizationSettings, Settings
from knowledge_lookup.pipeline.tuning.profile_store import ProfileStore
from knowledge_lookup.postprocessors import EvidenceProfile, EvidenceWeights

BUILT_IN_EVIDENCE: Mapping[str, EvidenceProfile] = {
    # Made by tests/benchmarks/built_in_profile.py of XQuAD (zh, en, and English questions on the Chinese text) and of
    # real Chinese documentation.
    NANO_E5: EvidenceProfile(
        weights=EvidenceWeights(intercept=-14.82, lift=98.26, coverage=10.33, unknown=2.30, information=2.08),
        other_script_weights=EvidenceWeights(
            intercept=-10.89, lift=122.5, coverage=8.07, unknown=2.89, information=1.28
        ),
        highly_relevant_threshold=0.9,
        reference_threshold=0.3,
        # On XQuAD-zh random paragraphs have 0.79 to 0.84.
        unrelated_similarity=0.84,
    ),
}


def resolve_evidence_profile(settings: Settings, embedding_model: str) -> EvidenceProfile | None:
    """Find the evidence profile of an embedding model and the corpus of the settings.

    :param settings: Explicit thresholds select the plain judgement by similarity.
    :param embedding_model: The model's name.
    :returns: The profile that tuning saved and applied, else the built-in one; None for the plain judgement.
    :raises ProfileFileError: If a saved profile can't be read.
    """
    if _has_thresholds(settings.retrieval.normalization):
        return None
    return known_evidence_profile(settings, embedding_model)


def known_evidence_profile(settings: Settings, embedding_model: str) -> EvidenceProfile | None:
    """Find what is known of a model and a corpus, whatever thresholds are set.

    :param settings: Name the data folder and the collection.
    :param embedding_model: The model's name.
    :returns: The profile that tuning saved and applied, else the built-in one, else None.
    :raises ProfileFileError: If a saved profile can't be read.
    """
    saved = ProfileStore(Path(settings.data_dir)).applied(embedding_model, settings.milvus.collection)
    return BUILT_IN_EVIDENCE.get(embedding_model) if saved is None else saved.profile


def _has_thresholds(normalization: NormalizationSettings) -> bool:
    explicit = (
        normalization.max_l2_distance,
        normalization.highly_relevant_threshold,
        normalization.reference_threshold,
    )
    return any(value is not None for value in explicit)
