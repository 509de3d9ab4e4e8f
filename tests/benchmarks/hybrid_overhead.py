"""What the search by words and the judgement by evidence add to a semantic look-up over 10,000 chunks.

Milvus Lite, flushed. Texts are put together of the bundled documents' sentences; vectors are sums of a random vector
for each word and of noise, so much that the two searches agree as they do on real documentation, where half of the ten
best by words are among the forty best by meaning. Both ways are asked in turn, in one process, with the query's
embedding given.

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
from knowledge_lookup.retrievers.search_terms import passage_terms, query_terms

DIMENSION = 384
CHUNKS_A_DOCUMENT = 8
SENTENCES_A_CHUNK = 8
QUERY_LENGTH = 24
CANDIDATES = 40
NOISE = 0.6


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
        vectors = TextVectors()
        for start in range(0, options.chunks, 1000):
            numbers = range(start, min(start + 1000, options.chunks))
            store.upsert([chunk(number, vectors, sentences, chance) for number in numbers])
        store.flush()
        index = Bm25Index(store)
        started = time.perf_counter()
        print(f"{index.passage_count()} chunks read and indexed by words in {time.perf_counter() - started:.2f} s")
        measure(store, index, vectors, [chance.choice(sentences)[:QUERY_LENGTH] for _ in range(options.rounds)])
        store.close()


def measure(store: MilvusChunkStore, index: Bm25Index, vectors: "TextVectors", queries: list[str]) -> None:
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
    shared = []
    for query in queries:
        embedding = vectors.of(query)
        near = {scored.node.node_id for scored in dense.retrieve(ScopedQueryBundle(query, embedding=embedding))}
        shared.append(sum(node_id in near for node_id, _ in index.search(query_terms(query), limit=10)))
        for name, way in ways.items():
            bundle = ScopedQueryBundle(query, embedding=embedding)
            started = time.perf_counter()
            way(bundle)
            times[name].append((time.perf_counter() - started) * 1000)
    print(f"of the ten best by words {statistics.mean(shared):.1f} are among the {CANDIDATES} best by meaning")
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
    return [part.strip() for part in re.split(r"[。；\n]", text) if len(query_terms(part.strip()[:QUERY_LENGTH])) > 3]


class TextVectors:
    """Unit vectors of texts that share words point in similar directions."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(0)
        self._terms: dict[str, np.ndarray] = {}

    def of(self, text: str) -> list[float]:
        """Make the vector of a text; another time it has other noise."""
        terms = set(passage_terms(text))
        for term in terms - self._terms.keys():
            self._terms[term] = self._chance.normal(size=DIMENSION).astype(np.float32)
        words = np.sum([self._terms[term] for term in terms], axis=0)
        noise = self._chance.normal(size=DIMENSION).astype(np.float32)
        vector = words / np.linalg.norm(words) + NOISE * noise / np.linalg.norm(noise)
        return list(map(float, vector / np.linalg.norm(vector)))


def chunk(number: int, vectors: TextVectors, sentences: list[str], chance: random.Random) -> TextNode:
    """Make a chunk."""
    path = f"document-{number // CHUNKS_A_DOCUMENT}.md"
    text = "。".join(chance.sample(sentences, SENTENCES_A_CHUNK))
    return TextNode(
        id_=f"{number:032}",
        text=text,
        embedding=vectors.of(text),
        metadata={keys.FILE_PATH: path, keys.TITLE: f"Document {number // CHUNKS_A_DOCUMENT}", keys.SECTION: ""},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=path)},
    )


if __name__ == "__main__":
    main()
