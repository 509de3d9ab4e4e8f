"""What a semantic look-up costs beside the embedding and Milvus.

Real questions go through ``pipeline.lookup`` on Milvus Lite with the embedded model, first each in a session of its
own, then twenty to a session: there each leaves out what the session holds, and searches that a second time. Timers
around the embedding model and around ``MilvusClient.search``, ``get`` and ``query`` tell their shares; what remains is
this package's: matching, scopes, making nodes of rows, fusing, judging, memory, assembly and the record. Then look-ups
are awaited one after another and all at once.

    python tests/benchmarks/semantic_overhead.py [--data DATA --work WORK] [--rounds 3]

Without ``--data`` only the bundled documents are asked. Query embeddings are not cached here.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corpora import BUNDLED, LABELS, Corpus, corpora
from pymilvus import MilvusClient

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import read_queries

SESSION_LOOKUPS = 20
AT_ONCE = 64
PARTS = ("total", "embedding", "Milvus", "rest")


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Folder with tidb-docs-cn and xquad, see corpora.py.")
    parser.add_argument("--work", type=Path, help="Folder for indexes that is kept from run to run.")
    parser.add_argument("--rounds", type=int, default=3, help="How often each question is asked in each way.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        asked = [Corpus("bundled documents", BUNDLED, read_queries(LABELS / "bundled.jsonl"), lambda query: query.gold)]
        if options.data is not None:
            asked += [corpus for corpus in corpora(options.data, work) if corpus.name == "TiDB documentation"]
        for corpus in asked:
            print("| documents | sessions | look-ups | part | p50 ms | p95 ms |\n|---|---|---:|---|---:|---:|")
            with open_pipeline(corpus, work) as pipeline:
                queries = [labelled.query for labelled in corpus.queries]
                with timers(pipeline) as timer:
                    show(corpus.name, "new for each", in_new_sessions(pipeline, timer, queries, options.rounds))
                    show(
                        corpus.name, f"of {SESSION_LOOKUPS}", in_long_sessions(pipeline, timer, queries, options.rounds)
                    )
                print(asyncio.run(all_at_once(pipeline, queries[:AT_ONCE], corpus.name)))


def open_pipeline(corpus: Corpus, work: Path) -> KnowledgePipeline:
    """Index a corpus and open it so that each query is embedded."""
    with corpus.pipeline(work) as indexed:
        settings = indexed.settings
    embedding = settings.embedding.model_copy(update={"query_cache_size": 0})
    return KnowledgePipeline.from_settings(settings.model_copy(update={"embedding": embedding}))


class Timer:
    """Adds up what the calls of each part take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function."""

        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started

        return call

    def of(self, lookup: Callable[[], object]) -> dict[str, float]:
        """Time one look-up and its parts, in milliseconds."""
        self.seconds = {}
        started = time.perf_counter()
        lookup()
        total = time.perf_counter() - started
        embedding, milvus = self.seconds.get("embedding", 0.0), self.seconds.get("Milvus", 0.0)
        parts = (total, embedding, milvus, total - embedding - milvus)
        return dict(zip(PARTS, (1000 * seconds for seconds in parts), strict=True))


@contextmanager
def timers(pipeline: KnowledgePipeline) -> Iterator[Timer]:
    """Time the embedding model and Milvus's client while the block runs."""
    timer = Timer()
    model = type(pipeline.embed_model)
    timed = [(MilvusClient, name, "Milvus") for name in ("search", "get", "query")]
    timed.append((model, "get_agg_embedding_from_queries", "embedding"))
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in timed]
    for owner, name, part in timed:
        setattr(owner, name, timer.timed(part, getattr(owner, name)))
    try:
        yield timer
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def in_new_sessions(
    pipeline: KnowledgePipeline, timer: Timer, queries: list[str], rounds: int
) -> list[dict[str, float]]:
    """Look up each query in a session that has nothing."""
    times = []
    for round_number in range(rounds + 1):
        for number, query in enumerate(queries):
            session = f"new-{round_number}-{number}"
            found = timer.of(lambda query=query, session=session: pipeline.lookup(query, session))
            times += [found] if round_number else []  # the first round warms up
    return times


def in_long_sessions(
    pipeline: KnowledgePipeline, timer: Timer, queries: list[str], rounds: int
) -> list[dict[str, float]]:
    """Look up the queries in sessions that go on; the first look-up of each has nothing and isn't counted."""
    times = []
    for round_number in range(rounds):
        for number, query in enumerate(queries):
            session = f"long-{round_number}-{number // SESSION_LOOKUPS}"
            found = timer.of(lambda query=query, session=session: pipeline.lookup(query, session))
            times += [found] if number % SESSION_LOOKUPS else []
    return times


def show(name: str, sessions: str, times: list[dict[str, float]]) -> None:
    """Print the rows of those look-ups that Milvus was asked for."""
    semantic = [found for found in times if found["Milvus"] > 0]
    for part in PARTS:
        of_part = [found[part] for found in semantic]
        p50, p95 = statistics.median(of_part), statistics.quantiles(of_part, n=20)[-1]
        print(f"| {name} | {sessions} | {len(semantic)} | {part} | {p50:.2f} | {p95:.2f} |", flush=True)


async def all_at_once(pipeline: KnowledgePipeline, queries: list[str], name: str) -> str:
    """Await look-ups one after another, then all at once."""
    started = time.perf_counter()
    for number, query in enumerate(queries):
        await pipeline.alookup(query, f"one-{number}")
    after_another = time.perf_counter() - started
    started = time.perf_counter()
    await asyncio.gather(*(pipeline.alookup(query, f"all-{number}") for number, query in enumerate(queries)))
    at_once = time.perf_counter() - started
    return (
        f"\n{name}, asyncio: {len(queries)} look-ups one after another {len(queries) / after_another:.0f} a second, "
        f"all at once {len(queries) / at_once:.0f} a second.\n"
    )


if __name__ == "__main__":
    main()
