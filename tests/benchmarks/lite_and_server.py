"""Which index a collection should have: Milvus Lite and a Milvus server, by index type, searched as a look-up searches.

Vectors lie in clusters of clusters around random directions, as texts lie in topics, so that the nearest ones are few
and an approximate search can miss them. Each search is ``MilvusChunkStore.search`` for 40 candidates, as a look-up
makes it. Recall is that of the ten nearest against exact distances: over all chunks; over those of five documents, as
a look-up searches documents that it knows by keyword; and the latter right after the last chunk was written and
flushed, when a server may still be indexing ("fresh").

Milvus Lite is filled in one process and measured in a new one; each index type gets a server of its own, so that the
memory is that of this index.

    python tests/benchmarks/lite_and_server.py [--chunks 100000] [--queries 50] [--only lite|server] [--types FLAT HNSW]

The server is the ``milvus`` package (``pip install "knowledge-lookup[servers]"``).
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.vector_stores.milvus import MilvusVectorStore

sys.path.insert(0, str(Path(__file__).parents[2]))

from knowledge_lookup.retrievers import MilvusChunkStore
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.milvus_lite import release_milvus_lite
from knowledge_lookup.retrievers.milvus_rows import row_of
from tests.servers.milvus import milvus_server

DIMENSION = 384
CHUNKS_A_DOCUMENT = 8
CHUNKS_A_TOPIC = 50
TOPICS_A_FIELD = 20
BATCH = 1000
CANDIDATES = 40
NEAREST = 10
WARM_UP = 5
FEW_DOCUMENTS = 5
PATIENCE_SECONDS = 600.0
SETTLING_SECONDS = 20.0
COLLECTION = "chunks"
INDEX_TYPES = {
    "FLAT": {},
    "AUTOINDEX": {},
    "HNSW": {"M": 16, "efConstruction": 200},
    "IVF_FLAT": {"nlist": 1024},
}
TEXT = "连接池耗尽时应用拿不到连接，先看活动连接数和等待线程数，再看慢查询和未提交的事务。" * 10

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Searches:
    """What was measured in a filled collection.

    :param open_seconds: Connecting, loading and the first search.
    :param milliseconds: Each search.
    :param recall: Share of the ten nearest that were found.
    :param in_few: The same where only five documents are searched.
    :param megabytes: Memory of the process that holds the index.
    """

    open_seconds: float
    milliseconds: list[float]
    recall: float
    in_few: float
    megabytes: float


class Vectors:
    """Unit vectors of chunks in topics, of topics in fields, and of queries near the topics.

    :param chunks: How many chunks.
    :param queries: How many queries.
    """

    def __init__(self, chunks: int, queries: int) -> None:
        chance = np.random.default_rng(0)
        topics = chunks // CHUNKS_A_TOPIC + 1
        fields = chance.normal(size=(topics // TOPICS_A_FIELD + 1, DIMENSION))
        centres = fields[np.arange(topics) // TOPICS_A_FIELD] + chance.normal(size=(topics, DIMENSION))
        # Documents are about one topic each, and are written in any order.
        topic_of = np.repeat(chance.integers(topics, size=chunks // CHUNKS_A_DOCUMENT + 1), CHUNKS_A_DOCUMENT)[:chunks]
        self.chunks = self._near(centres[topic_of], chance)
        self.queries = self._near(centres[chance.integers(topics, size=queries)], chance)

    @staticmethod
    def _near(centres: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        vectors = centres + chance.normal(size=centres.shape)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    """Measure each index type on both, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000, help="Chunks in the collection.")
    parser.add_argument("--queries", type=int, default=50, help="Measured searches.")
    parser.add_argument("--only", choices=["lite", "server"], help="Measure only one of the two.")
    parser.add_argument("--types", nargs="+", choices=INDEX_TYPES, default=["FLAT", "HNSW"], help="Index types.")
    options = parser.parse_args()
    print(f"{options.chunks} chunks of {DIMENSION} dimensions\n")
    print("| Milvus | index | load s | open s | p50 ms | p95 ms | recall@10 | in 5 documents | fresh | memory MB |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    size = (options.chunks, options.queries)
    for place, measure in {"Lite": measure_lite, "server": measure_server}.items():
        if options.only in {None, place.lower()}:
            for index_type in options.types:
                print_row(place, index_type, *measure(index_type, *size))


def print_row(place: str, index_type: str, load_seconds: float, fresh: float, found: Searches) -> None:
    """Print one row of the table."""
    late = statistics.quantiles(found.milliseconds, n=20)[-1]
    print(
        f"| {place} | {index_type} | {load_seconds:.1f} | {found.open_seconds:.2f} "
        f"| {statistics.median(found.milliseconds):.1f} | {late:.1f} | {found.recall:.3f} | {found.in_few:.3f} "
        f"| {fresh:.3f} | {found.megabytes:.0f} |",
        flush=True,
    )


def measure_lite(index_type: str, chunks: int, queries: int) -> tuple[float, float, Searches]:
    """Fill Milvus Lite in one process and measure it in the next."""
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "milvus.db")
        load_seconds, fresh = in_new_process(fill, uri, index_type, chunks, queries)
        return load_seconds, fresh, in_new_process(search, uri, chunks, queries, None)


def measure_server(index_type: str, chunks: int, queries: int) -> tuple[float, float, Searches]:
    """Fill and measure a server of its own."""
    with tempfile.TemporaryDirectory() as folder, milvus_server(Path(folder)) as uri:
        load_seconds, fresh = in_new_process(fill, uri, index_type, chunks, queries)
        # What the server loads once it has built it.
        time.sleep(SETTLING_SECONDS)
        return load_seconds, fresh, in_new_process(search, uri, chunks, queries, server_process(Path(folder)))


def in_new_process(function: Callable[..., Answer], *arguments: object) -> Answer:
    """Call a function in a process that ends afterwards."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def fill(uri: str, index_type: str, chunks: int, queries: int) -> tuple[float, float]:
    """Write all chunks, flush, and wait until they are indexed.

    :returns: The seconds that it took, without making the chunks; and the recall in a few documents before the wait.
    """
    vectors = Vectors(chunks, queries)
    seconds = 0.0
    with vector_store(uri, index_type) as given:
        for start in range(0, chunks, BATCH):
            numbers = range(start, min(start + BATCH, chunks))
            rows = [row_of(chunk(number, vectors.chunks[number]), given) for number in numbers]
            started = time.perf_counter()
            given.client.insert(COLLECTION, rows, timeout=PATIENCE_SECONDS)
            seconds += time.perf_counter() - started
        started = time.perf_counter()
        given.client.flush(COLLECTION, timeout=PATIENCE_SECONDS)
        seconds += time.perf_counter() - started
        fresh = recall_in_few(MilvusChunkStore.from_vector_store(given, timeout=PATIENCE_SECONDS), vectors)
        started = time.perf_counter()
        while int(given.client.describe_index(COLLECTION, given.embedding_field).get("pending_index_rows", 0)):
            time.sleep(0.2)
        return seconds + time.perf_counter() - started, fresh


def search(uri: str, chunks: int, queries: int, server: int | None) -> Searches:
    """Search a filled collection, after some searches that aren't measured.

    :param server: Process id of the server; None for Milvus Lite, which is in this process.
    """
    vectors = Vectors(chunks, queries)
    before = 0.0 if server else resident_megabytes(os.getpid())
    started = time.perf_counter()
    with vector_store(uri) as given:
        store = MilvusChunkStore.from_vector_store(given, timeout=PATIENCE_SECONDS)
        store.search(vectors.queries[0].tolist(), limit=CANDIDATES)
        opened = time.perf_counter() - started
        for query in vectors.queries[:WARM_UP]:
            store.search(query.tolist(), limit=CANDIDATES)
        milliseconds, right = [], []
        for query in vectors.queries:
            started = time.perf_counter()
            found = store.search(query.tolist(), limit=CANDIDATES)
            milliseconds.append((time.perf_counter() - started) * 1000)
            right.append(overlap(found, vectors.chunks @ query))
        megabytes = resident_megabytes(server or os.getpid()) - before
        return Searches(opened, milliseconds, statistics.mean(right), recall_in_few(store, vectors), megabytes)


def recall_in_few(store: MilvusChunkStore, vectors: Vectors) -> float:
    """Ask each query of five documents alone."""
    chance = np.random.default_rng(1)
    chunks = len(vectors.chunks)
    right = []
    for query in vectors.queries:
        few = chance.choice(chunks // CHUNKS_A_DOCUMENT, FEW_DOCUMENTS, replace=False)
        found = store.search(query.tolist(), limit=CANDIDATES, only_documents=[path_of(int(one)) for one in few])
        among = (few[:, None] * CHUNKS_A_DOCUMENT + np.arange(CHUNKS_A_DOCUMENT)).ravel()
        cosines = np.full(chunks, -1.0, dtype=np.float32)
        cosines[among] = vectors.chunks[among] @ query
        right.append(overlap(found, cosines))
    return statistics.mean(right)


def overlap(found: list[NodeWithScore], cosines: np.ndarray) -> float:
    """Tell which share of the nearest chunks are the first found."""
    nearest = np.argpartition(-cosines, NEAREST)[:NEAREST]
    return len({int(one.node.node_id) for one in found[:NEAREST]} & set(nearest.tolist())) / NEAREST


@contextmanager
def vector_store(uri: str, index_type: str | None = None) -> Iterator[MilvusVectorStore]:
    """Open the collection, or make it with an index type."""
    config = {} if index_type is None else {"index_type": index_type, **INDEX_TYPES[index_type]}
    store = MilvusVectorStore(
        uri=uri,
        collection_name=COLLECTION,
        dim=DIMENSION,
        similarity_metric="L2",
        index_config=config,
        use_async_client=False,
    )
    try:
        yield store
    finally:
        store.client.close()
        if uri.endswith(".db"):
            release_milvus_lite(uri)


def chunk(number: int, vector: np.ndarray) -> TextNode:
    """Make a chunk."""
    path = path_of(number // CHUNKS_A_DOCUMENT)
    return TextNode(
        id_=str(number),
        text=TEXT,
        embedding=vector.tolist(),
        metadata={keys.FILE_PATH: path, keys.TITLE: "连接池", keys.SECTION: "排查步骤"},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=path)},
    )


def path_of(document: int) -> str:
    """Name a document."""
    return f"document-{document}.md"


def server_process(folder: Path) -> int:
    """Find the server that runs in a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink().is_relative_to(folder):
                return int(process.name)
        except OSError:
            continue  # gone, or of another user
    raise RuntimeError(f"no process runs a program in {folder}")


def resident_megabytes(process: int) -> float:
    """Tell how much memory a process has in use."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
