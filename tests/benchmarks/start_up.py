"""How long it takes until the first answer: opening a knowledge base, the commands, and the search by words.

Every figure is the median of several new processes. A knowledge base is ready when an exact look-up can be answered:
its keyword index is read from the rows, none of its files is. Opening is timed after the imports.

    python tests/benchmarks/start_up.py [--sizes 500 10000 100000] [--chunks 10000] [--rounds 5]
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from generated_base import write_knowledge_base
from hybrid_overhead import TextVectors, bundled_sentences, chunk

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.retrievers import MilvusChunkStore

_OPEN = """
import json, sys, time, resource
from pathlib import Path
started = time.perf_counter()
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
imported = time.perf_counter()
settings = Settings(knowledge={"base_path": Path(sys.argv[1]) / "documents"}, data_dir=Path(sys.argv[1]) / "data")
with KnowledgePipeline.from_settings(settings) as pipeline:
    pipeline.keyword_index
    ready = time.perf_counter()
    result = pipeline.lookup(sys.argv[2])
    answered = time.perf_counter()
    assert result.found and result.relevance_level == "PRECISE", result
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([imported - started, ready - imported, answered - ready, memory]))
"""

_WORDS = """
import json, sys, time
from pathlib import Path
from knowledge_lookup.retrievers import Bm25Index, MilvusChunkStore
from knowledge_lookup.retrievers.bm25_snapshot import Bm25Snapshot
folder, chunks = Path(sys.argv[1]), int(sys.argv[2])
store = MilvusChunkStore(uri=str(folder / "milvus.db"), timeout=60)
store.open()
versions = {f"document-{number}.md": "1" for number in range(chunks)}
index = Bm25Index(store, snapshot=Bm25Snapshot(folder / "bm25.zip", identity="", versions=lambda: versions))
started = time.perf_counter()
assert index.passage_count() == chunks
print(json.dumps([time.perf_counter() - started]))
index.close()
store.close()
"""

_COMMAND = """
import json, os, subprocess, sys, time
started = time.perf_counter()
subprocess.run([sys.executable, "-m", "knowledge_lookup.pipeline.cli", *sys.argv[1:]], check=True, capture_output=True)
spent = os.times()
print(json.dumps([time.perf_counter() - started, spent.children_user + spent.children_system]))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 10_000, 100_000], help="Documents.")
    parser.add_argument("--chunks", type=int, default=10_000, help="Chunks for the search by words.")
    parser.add_argument("--rounds", type=int, default=5, help="Processes for each figure.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        opening(Path(folder), options.sizes, options.rounds)
        commands(Path(folder), options.rounds)
        words(Path(folder), options.chunks, options.rounds)


def opening(folder: Path, sizes: list[int], rounds: int) -> None:
    """Time opening knowledge bases."""
    print("| documents | imports s | ready s | first exact look-up ms | memory MiB |\n|---|---|---|---|---|")
    for size in sizes:
        keyword = write_knowledge_base(folder / str(size), size)[size // 2].keywords[0]
        imports, ready, answer, memory = median(_OPEN, [str(folder / str(size)), keyword], rounds)
        print(f"| {size:,} | {imports:.2f} | {ready:.3f} | {answer * 1e3:.1f} | {memory:.0f} |", flush=True)


def commands(folder: Path, rounds: int) -> None:
    """Time the command line on the bundled documents."""
    config = folder / "knowledge-lookup.yml"
    documents = Path(__file__).parents[2] / "knowledge_base"
    config.write_text(f"data-dir: {folder / 'bundled'}\nknowledge:\n  base-path: {documents}\n", encoding="utf-8")
    with KnowledgePipeline.from_settings(Settings.load(config)) as pipeline:
        pipeline.sync()
    print("\n| command | s | CPU s |\n|---|---|---|")
    for arguments in (["--help"], ["--config", str(config), "lookup", "ERR_TIMEOUT"]):
        elapsed, spent = median(_COMMAND, arguments, rounds)
        print(f"| {' '.join(['knowledge-lookup', *arguments[-2:]])} | {elapsed:.2f} | {spent:.2f} |", flush=True)


def words(folder: Path, chunks: int, rounds: int) -> None:
    """Time the first use of the search by words, without and with what another process saved."""
    chance, vectors, sentences = random.Random(0), TextVectors(), bundled_sentences()
    store = MilvusChunkStore(uri=str(folder / "milvus.db"), timeout=60)
    for start in range(0, chunks, 1000):
        numbers = range(start, min(start + 1000, chunks))
        store.upsert([chunk(number, vectors, sentences, chance) for number in numbers])
    store.flush()
    store.close()
    print(f"\n| search by words over {chunks:,} chunks, first use | s |\n|---|---|")
    arguments = [str(folder), str(chunks)]
    print(f"| all passages read from Milvus | {median(_WORDS, arguments, 1)[0]:.2f} |", flush=True)
    print(f"| from the snapshot of another process | {median(_WORDS, arguments, rounds)[0]:.3f} |")


def median(program: str, arguments: list[str], rounds: int) -> list[float]:
    """Run a program in processes of its own, and give the medians of the figures that it prints."""
    figures = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
        figures.append(json.loads(done.stdout.splitlines()[-1]))
    return [statistics.median(values) for values in zip(*figures, strict=True)]


if __name__ == "__main__":
    main()
