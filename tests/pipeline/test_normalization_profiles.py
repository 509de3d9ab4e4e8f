"""Which thresholds apply to an embedding model."""

import logging
from pathlib import Path

import pytest
from llama_index.core.embeddings import MockEmbedding

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.pipeline.normalization_profiles import resolve_profile
from knowledge_lookup.pipeline.settings import NormalizationSettings
from knowledge_lookup.postprocessors import NormalizationProfile
from tests.knowledge_bases import document, write_documents

BGE_M3 = "BAAI/bge-m3"


@pytest.mark.parametrize(
    ("model", "expected"), [(NANO_E5, (2.0, 0.904, 0.876)), (BGE_M3, (2.0, 0.75, 0.5)), ("unknown", (2.0, 0.75, 0.5))]
)
def test_each_model_has_its_own_profile(model: str, expected: tuple[float, float, float]) -> None:
    assert values(resolve_profile(NormalizationSettings(), model)) == expected


def test_what_is_set_wins_one_by_one() -> None:
    def resolved(**explicit: float) -> tuple[float, float, float]:
        return values(resolve_profile(NormalizationSettings(**explicit), NANO_E5))

    assert resolved(max_l2_distance=1.5) == (1.5, 0.904, 0.876)
    assert resolved(highly_relevant_threshold=0.95) == (2.0, 0.95, 0.876)
    assert resolved(reference_threshold=0.5) == (2.0, 0.904, 0.5)
    assert resolved(reference_threshold=0.0) == (2.0, 0.904, 0.0)
    assert resolved(highly_relevant_threshold=0.0, reference_threshold=0.0) == (2.0, 0.0, 0.0)


def test_a_model_without_a_profile_is_warned_about_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        resolve_profile(NormalizationSettings(), NANO_E5)
        resolve_profile(NormalizationSettings(), BGE_M3)
        resolve_profile(NormalizationSettings(highly_relevant_threshold=0.8, reference_threshold=0.6), "my-model")
        assert caplog.messages == []
        resolve_profile(NormalizationSettings(highly_relevant_threshold=0.8), "my-model")
    [message] = caplog.messages
    assert "'my-model'" in message
    assert "retrieval.normalization" in message


def test_a_pipeline_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = write_documents(tmp_path / "docs", {"a.md": document("文本。", keywords="[ERR_A]")})
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    with (
        caplog.at_level(logging.WARNING, logger="knowledge_lookup"),
        KnowledgePipeline.from_settings(settings, embed_model=MockEmbedding(4, model_name="my-model")) as pipeline,
    ):
        pipeline.sync()
        for query in ("ERR_A", "另一个问题", "文本"):
            pipeline.lookup(query)
        pipeline.search("文本")
    assert sum("'my-model'" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("explicit", [{"highly_relevant_threshold": 0.8}, {"reference_threshold": 0.95}], ids=str)
def test_a_value_that_does_not_go_with_the_models_profile_is_refused(
    tmp_path: Path, explicit: dict[str, float]
) -> None:
    settings = Settings(data_dir=tmp_path / "data", retrieval={"normalization": explicit})
    [(name, value)] = explicit.items()
    with (
        KnowledgePipeline.from_settings(settings) as pipeline,
        pytest.raises(ConfigurationError, match=rf"^retrieval\.normalization doesn't fit .*{name}={value}.*$"),
    ):
        pipeline.retriever  # noqa: B018


def values(profile: NormalizationProfile) -> tuple[float, float, float]:
    return profile.max_l2_distance, profile.highly_relevant_threshold, profile.reference_threshold
