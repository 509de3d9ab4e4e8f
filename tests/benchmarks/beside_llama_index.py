"""``lookup`` beside what LlamaIndex users build, with the same chunks, vectors and embedding model.

- fusion: ``QueryFusionRetriever`` (reciprocal ranks, no generated queries) over ``BM25Retriever``, for which jieba cuts
  the words, and ``MilvusVectorStore`` by inner product;
- hybrid: the hybrid query of ``MilvusVectorStore``: its vectors by inner product and Milvus's own BM25 with the jieba
  tokenizer, fused by Milvus's ``RRFRanker``.

Each gets 20 candidates from either search, on Milvus Lite, flushed. All are asked each query once, twenty at a time
in turn, those that exact match settles a second time.

    python tests/benchmarks/beside_llama_index.py --data DATA --work WORK [--corpus NAME] [--queries 400]

Of ``lookup`` there are two rows: what it delivers, which is nothing where the evidence is too weak, and how it ranks
before that (``pipeline.evaluate``), which is what can be compared with those who always answer. Kinds of queries:

- unique keyword: keywords and titles of the documents' front matter, and labelled queries, that exact match settles;
- others: the labels' own kinds, without those; ``unanswerable`` ones should get no answer. XQuAD has none labelled:
  each question is asked once more with its whole article left out, for LlamaIndex taken out of its 20 results.
"""

import argparse
import hashlib
import logging
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from corpora import Corpus, corpora
from llama_index.core import VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode
from llama_index.core.utils import iter_batch
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BM25BuiltInFunction
from stock_llama_index import JiebaBM25Retriever, jieba, read_chunks

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import LabelledQuery, Share
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.tuning import StatisticsWithout
from knowledge_lookup.postprocessors import EvidencePostprocessor, relevance_level_of
from knowledge_lookup.retrievers import KnowledgeRetriever, ScopedQueryBundle
from knowledge_lookup.retrievers.metadata import document_of
from knowledge_lookup.retrievers.milvus_lite import release_milvus_lite

CANDIDATES = 20
DEPTH = 5
WARM_UP = 5
BLOCK = 20
UNIQUE = "unique keyword"
AGAIN = "unique keyword, asked again"
UNANSWERABLE = "unanswerable"
OURS, RANKED = "`lookup`, delivered", "`lookup`, ranked"
FUSION, HYBRID = "fusion", "hybrid"

Ask = Callable[[str], list[str]]


@dataclass
class Answers:
    """What one way to search gave to the queries of one kind.

    :param ranks: Of each answerable query the rank of the first right document, from 1; None if it isn't among five.
    :param answered: Of each unanswerable query whether it got an answer.
    :param milliseconds: Time of each query.
    """

    ranks: list[int | None] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    def recall_at(self, k: int) -> Share:
        """Share of the queries with a right document among the first k."""
        return Share(sum(rank is not None and rank <= k for rank in self.ranks), len(self.ranks))


def main() -> None:
    """Measure every corpus and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the public data.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for indexes, kept from run to run.")
    parser.add_argument("--corpus", help="Only the corpora whose name has this in it.")
    parser.add_argument("--queries", type=int, default=400, help="Most queries of each kind and corpus.")
    options = parser.parse_args()
    jieba.setLogLevel(logging.WARNING)
    for corpus in corpora(options.data, options.work):
        if "english" in {query.kind for query in corpus.queries} and "XQuAD" in corpus.name:
            continue  # the same documents once more
        if options.corpus is None or options.corpus in corpus.name:
            with corpus.pipeline(options.work) as pipeline:
                report(corpus, pipeline, options.work, options.queries)


def report(corpus: Corpus, pipeline: KnowledgePipeline, work: Path, most: int) -> None:
    """Ask the queries of one corpus and print its tables."""
    queries = queries_of(corpus, pipeline, most)
    found: dict[tuple[str, str], Answers] = {}
    results: dict[tuple[str, str], list[str]] = {}
    with llama_index_retrievers(corpus, pipeline, work) as retrievers:
        ways: dict[str, Ask] = {
            OURS: lambda query: [span.file_path for span in pipeline.lookup(query).passages],
            **{name: documents_found_by(retriever) for name, retriever in retrievers.items()},
        }
        warm_up(ways, queries)
        for query, name, documents, milliseconds in ask_in_turn(ways, queries):
            note(found.setdefault((query.kind, name), Answers()), query, documents, milliseconds)
            results[name, query.query] = documents
        # No query is embedded for an exact match, so that nothing but the document's text is known already.
        for _, name, _, milliseconds in ask_in_turn(ways, [query for query in queries if query.kind == UNIQUE]):
            found.setdefault((AGAIN, name), Answers()).milliseconds.append(milliseconds)
    for outcome in pipeline.evaluate(queries).outcomes:
        note(found.setdefault((outcome.query.kind, RANKED), Answers()), outcome.query, list(outcome.ranked), None)
    if all(query.gold for query in queries):
        ask_without_answer(corpus, pipeline, queries, found, results)
    print_tables(corpus.name, found)


def ask_in_turn(
    ways: dict[str, Ask], queries: Sequence[LabelledQuery]
) -> Iterator[tuple[LabelledQuery, str, list[str], float]]:
    """Ask each query of each way, and give the documents and the milliseconds.

    Some queries at a time: what one way leaves in the processor's caches, and its threads, are no part of the next.
    """
    names = list(ways)
    for number, some in enumerate(iter_batch(queries, BLOCK)):
        # Each takes its turn at being first, which has to fetch the queries' words into the caches.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            for query in some:
                started = time.perf_counter()
                documents = ways[name](query.query)
                yield query, name, documents, (time.perf_counter() - started) * 1000


def queries_of(corpus: Corpus, pipeline: KnowledgePipeline, most: int) -> list[LabelledQuery]:
    """Choose the queries: each text once, those that exact match settles as a kind of their own."""
    by_text = {term: LabelledQuery(term, frozenset({path}), UNIQUE) for term, path in front_matter_terms(pipeline)}
    for query in corpus.queries:
        is_unique = bool(query.gold) and pipeline.keyword_retriever.match(query.query).decisive
        by_text[query.query] = LabelledQuery(query.query, query.gold, UNIQUE if is_unique else query.kind)
    kinds = dict.fromkeys(query.kind for query in by_text.values())
    return [query for kind in kinds for query in islice((one for one in by_text.values() if one.kind == kind), most)]


def front_matter_terms(pipeline: KnowledgePipeline) -> Iterator[tuple[str, str]]:
    """Give the keywords and titles that stand in one document's front matter, and that exact match settles."""
    paths: dict[str, set[str]] = {}
    for record in pipeline.documents.list():
        for term in [record.metadata.get("title"), *(record.metadata.get("keywords") or [])]:
            if term:
                paths.setdefault(str(term), set()).add(record.file_path)
    for term, (path, *others) in paths.items():
        if not others and pipeline.keyword_retriever.match(term).decisive:
            yield term, path


@contextmanager
def llama_index_retrievers(
    corpus: Corpus, pipeline: KnowledgePipeline, work: Path
) -> Iterator[dict[str, BaseRetriever]]:
    """Build both, their Milvus collections being kept from run to run as long as the chunks are the same."""
    chunks = read_chunks(pipeline, KnowledgeFiles(corpus.folder))
    nodes: list[BaseNode] = [chunks[node_id].node for node_id in sorted(chunks)]
    digest = hashlib.sha256("\n".join(f"{node.hash}{node.get_embedding()[:3]}" for node in nodes).encode()).hexdigest()
    uri = str(work / f"llama-index-{corpus.folder.name}-{digest[:12]}.db")
    options = {"uri": uri, "dim": len(nodes[0].get_embedding()), "similarity_metric": "IP"}
    by_meaning = filled(nodes, collection_name="by_meaning", **options)
    by_both = filled(
        nodes,
        collection_name="by_both",
        enable_sparse=True,
        sparse_embedding_function=BM25BuiltInFunction(analyzer_params={"tokenizer": "jieba"}),
        hybrid_ranker="RRFRanker",
        **options,
    )
    try:
        yield {
            FUSION: QueryFusionRetriever(
                [
                    JiebaBM25Retriever(nodes, similarity_top_k=CANDIDATES),
                    index_of(by_meaning, pipeline).as_retriever(similarity_top_k=CANDIDATES),
                ],
                llm=MockLLM(),  # never asked, but without one LlamaIndex makes an OpenAI client
                mode=FUSION_MODES.RECIPROCAL_RANK,
                similarity_top_k=CANDIDATES,
                num_queries=1,
                use_async=False,
            ),
            HYBRID: index_of(by_both, pipeline).as_retriever(
                similarity_top_k=CANDIDATES, vector_store_query_mode="hybrid"
            ),
        }
    finally:
        by_meaning.client.close()
        by_both.client.close()
        release_milvus_lite(uri)


def filled(nodes: list[BaseNode], **options: Any) -> MilvusVectorStore:
    """Open a collection that has these chunks, or make it."""
    store = MilvusVectorStore(**options)
    store.client.load_collection(store.collection_name)
    rows = store.client.query(store.collection_name, filter="", output_fields=["count(*)"])
    if rows[0]["count(*)"] != len(nodes):
        store.client.close()
        store = MilvusVectorStore(overwrite=True, **options)
        store.add(nodes, force_flush=True)
    return store


def index_of(store: MilvusVectorStore, pipeline: KnowledgePipeline) -> VectorStoreIndex:
    """Put the embedding model of the pipeline before a store."""
    return VectorStoreIndex.from_vector_store(store, embed_model=pipeline.embed_model)


def documents_found_by(retriever: BaseRetriever) -> Ask:
    """Make a function that gives the documents of what a retriever finds, best first."""
    return lambda query: [document_of(scored) for scored in retriever.retrieve(query)]


def warm_up(ways: dict[str, Ask], queries: Sequence[LabelledQuery]) -> None:
    """Load models and collections, with texts that aren't asked again."""
    for query in queries[-WARM_UP:]:
        for ask in ways.values():
            ask(f"{query.query} warm-up")


def note(answers: Answers, query: LabelledQuery, documents: Sequence[str], milliseconds: float | None) -> None:
    """Judge the answer to a query."""
    if milliseconds is not None:
        answers.milliseconds.append(milliseconds)
    if query.gold:
        ranked = list(dict.fromkeys(documents))[:DEPTH]
        answers.ranks.append(next((rank for rank, path in enumerate(ranked, 1) if path in query.gold), None))
    else:
        answers.answered.append(bool(documents))


def ask_without_answer(
    corpus: Corpus,
    pipeline: KnowledgePipeline,
    queries: Sequence[LabelledQuery],
    found: dict[tuple[str, str], Answers],
    results: dict[tuple[str, str], list[str]],
) -> None:
    """Ask each query with what answers it left out of the search and of the statistics."""
    assert pipeline.evidence is not None, "the embedded model has an evidence profile"
    ways = [OURS, FUSION, HYBRID]
    answered = {way: found.setdefault((UNANSWERABLE, way), Answers()).answered for way in ways}
    for query in queries:
        left_out = frozenset(corpus.leave_out(query))
        statistics_without = StatisticsWithout(pipeline.bm25_index, left_out)
        judge = EvidencePostprocessor(statistics=statistics_without, profile=pipeline.evidence.profile)
        retriever = KnowledgeRetriever(
            pipeline.keyword_retriever, pipeline.hybrid_retriever, node_postprocessors=[judge]
        )
        nodes = retriever.retrieve(ScopedQueryBundle(query.query, exclude_documents=left_out))
        answered[OURS].append(relevance_level_of(nodes) is not None)
        for way in [FUSION, HYBRID]:
            answered[way].append(any(path not in left_out for path in results[way, query.query]))


def print_tables(name: str, found: dict[tuple[str, str], Answers]) -> None:
    """Print how right the answers are, and how fast they come."""
    kinds = Counter(kind for kind, _ in found)
    print(f"\n### {name}\n")
    print("| queries | | Recall@1 | Recall@3 | MRR@5 | only it / only `lookup` right first |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        ours = found.get((kind, RANKED), Answers()).ranks
        for way in [OURS, RANKED, FUSION, HYBRID]:
            answers = found.get((kind, way), Answers())
            if not answers.ranks:
                continue
            first = [(its == 1, our == 1) for its, our in zip(answers.ranks, ours, strict=True)]
            apart = f"{first.count((True, False))} / {first.count((False, True))}" if way in {FUSION, HYBRID} else ""
            mrr = statistics.mean(1 / rank if rank else 0.0 for rank in answers.ranks)
            print(f"| {kind} | {way} | {answers.recall_at(1)} | {answers.recall_at(3)} | {mrr:.3f} | {apart} |")
    print("\n| unanswerable | got an answer |\n|---|---|")
    for way in [OURS, FUSION, HYBRID]:
        answered = found[UNANSWERABLE, way].answered
        print(f"| {way} | {Share(sum(answered), len(answered))} |")
    print("\n| queries | | p50 ms | p95 ms | p50, `lookup` is 1 |\n|---|---|---|---|---|")
    for kind in kinds:
        for way in [OURS, FUSION, HYBRID]:
            times = found[kind, way].milliseconds
            if len(times) > 1:
                median, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
                ratio = median / statistics.median(found[kind, OURS].milliseconds)
                print(f"| {kind} | {way.split(',')[0]} | {median:.2f} | {late:.2f} | {ratio:.1f} |")
    print(flush=True)


if __name__ == "__main__":
    main()
