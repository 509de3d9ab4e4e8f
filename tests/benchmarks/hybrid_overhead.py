"""What the search by words and the judgement by evidence add to a semantic look-up over 10,000 chunks.

Milvus Lite, flushed; random unit vectors, since only the time counts, and texts put together of the bundled documents'
sentences. Both ways are asked in turn, in one process, with the query's embedding given.

    python tests/benchmarks/hybrid_overhead.py [--chunks 10000] [--rounds 200]
"""

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from knowledge_lookup.pipeline.evidence_profiles import BUILT_IN_EVIDENCE
from knowledge_lookup.postprocessors import EvidencePostprocessor, RelevancePostprocessor
from knowledge_lookup.retrievers import (
    Bm25Index,
    HybridRetriever,
    MilvusChunkStore,
    MilvusVectorRetriever,
    ScopedQueryBundle,
)
from knowledge_lookup.retrievers import metadata as keys

DIMENSION = 384
CHUNKS_A_DOCUMENT = 8
SENTENCES_A_CHUNK = 8
CANDIDATES = 40


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000, help="Chunks in the collection.")
    parser.add_argument("--rounds", type=int, default=200, help="Measured calls of each kind.")
    options = parser.parse_args()
    chance = random.Random(0)
    sentences = bundled_sentences()
    with tempfile.TemporaryDirectory() as folder:
        store = MilvusChunkStore(uri=str(Path(folder) / "milvus.db"), timeout=60)
        vectors = unit_vectors(options.chunks)
        for start in range(0, options.chunks, 1000):
            numbers = range(start, min(start + 1000, options.chunks))
            store.upsert([chunk(number, vectors[number], sentences, chance) for number in numbers])
        store.flush()
        index = Bm25Index(store)
        started = time.perf_counter()
        print(f"{index.passage_count()} chunks read and indexed by words in {time.perf_counter() - started:.2f} s")
        measure(store, index, [chance.choice(sentences)[:24] for _ in range(options.rounds)])
        store.close()


def measure(store: MilvusChunkStore, index: Bm25Index, queries: list[str]) -> None:
    """Time both ways in turn, so that a drift of the machine's speed meets both, and print the table."""
    dense = MilvusVectorRetriever(store, MockEmbedding(embed_dim=DIMENSION), similarity_top_k=CANDIDATES)
    hybrid = HybridRetriever(dense, index)
    plain = RelevancePostprocessor(highly_relevant_threshold=1.0, reference_threshold=0.0)
    evidence = EvidencePostprocessor(statistics=index, profile=next(iter(BUILT_IN_EVIDENCE.values())))
    ways: dict[str, Callable[[ScopedQueryBundle], object]] = {
        "by meaning, similarity": lambda bundle: plain.postprocess_nodes(dense.retrieve(bundle), bundle),
        "by meaning and words, evidence": lambda bundle: evidence.postprocess_nodes(hybrid.retrieve(bundle), bundle),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for query, vector in zip(queries, unit_vectors(len(queries), seed=1), strict=True):
        for name, way in ways.items():
            bundle = ScopedQueryBundle(query, embedding=vector.tolist())
            started = time.perf_counter()
            way(bundle)
            times[name].append((time.perf_counter() - started) * 1000)
    print("| way | p50 ms | p95 ms |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found):.2f} | {statistics.quantiles(found, n=20)[-1]:.2f} |")
    first, second = times.values()
    added = [later - earlier for earlier, later in zip(first, second, strict=True)]
    print(f"| added, query by query | {statistics.median(added):.2f} | {statistics.quantiles(added, n=20)[-1]:.2f} |")


def bundled_sentences() -> list[str]:
    """Cut the bundled documents into sentences."""
    folder = Path(str(files("knowledge_lookup.knowledge_base")))
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.md")))
    return [part.strip() for part in re.split(r"[。；\n]", text) if len(part.strip()) > 12]


def unit_vectors(count: int, *, seed: int = 0) -> np.ndarray:
    """Make unit vectors."""
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def chunk(number: int, vector: np.ndarray, sentences: list[str], chance: random.Random) -> TextNode:
    """Make a chunk."""
    path = f"document-{number // CHUNKS_A_DOCUMENT}.md"
    return TextNode(
        id_=f"{number:032}",
        text="。".join(chance.sample(sentences, SENTENCES_A_CHUNK)),
        embedding=vector.tolist(),
        metadata={keys.FILE_PATH: path, keys.TITLE: f"Document {number // CHUNKS_A_DOCUMENT}", keys.SECTION: ""},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=path)},
    )


if __name__ == "__main__":
    main()
