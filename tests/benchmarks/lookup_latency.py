"""How long a look-up takes, beside the vector retriever that a LlamaIndex user would take instead.

Indexes the bundled documents into a temporary folder, then asks in turn, in one process and one run:

- a look-up with a unique exact hit, with its memory and its record,
- a look-up that needs semantic search,
- LlamaIndex's own retriever over the same Milvus collection and the same embedding model.

    python tests/benchmarks/lookup_latency.py [--rounds 200]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from llama_index.core import VectorStoreIndex

from knowledge_lookup.pipeline import KnowledgePipeline, Settings

EXACT = "ERR_TIMEOUT 怎么处理"
NATURAL = "数据库连接被耗尽，应用拿不到连接"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="Measured calls of each kind.")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            knowledge={"base_path": Path(str(files("knowledge_lookup.knowledge_base")))}, data_dir=folder
        )
        with KnowledgePipeline.from_settings(settings) as pipeline:
            pipeline.sync()
            measure(pipeline, rounds)


def measure(pipeline: KnowledgePipeline, rounds: int) -> None:
    """Time the calls in turn, so that a drift of the machine's speed meets them all, and print the table."""
    store = pipeline.chunk_store.open()
    assert store is not None
    stock = VectorStoreIndex.from_vector_store(store, embed_model=pipeline.embed_model).as_retriever(similarity_top_k=3)
    session = iter(range(10**9))
    calls: dict[str, Callable[[], object]] = {
        "look-up, unique exact hit (a new session each)": lambda: pipeline.lookup(EXACT, f"s{next(session)}"),
        "look-up, semantic": lambda: pipeline.lookup(NATURAL),
        "LlamaIndex vector retriever, same query as exact": lambda: stock.retrieve(EXACT),
        "LlamaIndex vector retriever, same query as semantic": lambda: stock.retrieve(NATURAL),
    }
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - started) * 1000)
    exact = statistics.median(times["look-up, unique exact hit (a new session each)"])
    print("| call | p50 ms | p95 ms | p50 relative to the exact hit |")
    print("|---|---|---|---|")
    for name, values in times.items():
        values.sort()
        median, late = statistics.median(values), values[int(len(values) * 0.95)]
        print(f"| {name} | {median:.2f} | {late:.2f} | {median / exact:.1f} |")


if __name__ == "__main__":
    main()
