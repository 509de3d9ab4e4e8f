"""Exact match over the bundled documents: what it calls decisive is right, on every labelled query and every trap."""

from pathlib import Path

import pytest

from knowledge_lookup.pipeline.evaluation.labelled_queries import read_queries
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.source_document import read_source_document
from knowledge_lookup.retrievers import KeywordIndex, KeywordRetriever
from tests.knowledge_bases import BUNDLED_DOCUMENTS

LABELLED = Path(__file__).parents[1] / "labelled_queries"
PAYMENT = "api/payment-errors.md"
FAULTS = "troubleshooting/fault-diagnosis-process.md"
FLYWAY = "infrastructure/flyway-best-practices.md"
POOL = "infrastructure/mysql-connection-pool.md"
REDIS = "infrastructure/redis-config.md"


@pytest.fixture(scope="module")
def retriever() -> KeywordRetriever:
    files = KnowledgeFiles(BUNDLED_DOCUMENTS)
    index = KeywordIndex()
    for file_path in files.scan():
        assert isinstance(file_path, str)
        index.add(read_source_document(files.read(file_path), file_path=file_path).keyword_entry())
    return KeywordRetriever(index, files)


def settled(retriever: KeywordRetriever, query: str) -> str | None:
    """The document that a query is decisive for."""
    matches = retriever.match(query)
    return matches.matches[0].entry.file_path if matches.decisive else None


@pytest.mark.parametrize("name", ["bundled.jsonl", "precise_traps.jsonl"])
def test_no_query_is_decisive_for_a_document_that_does_not_answer_it(retriever: KeywordRetriever, name: str) -> None:
    queries = read_queries(LABELLED / name)

    found = {query.query: (settled(retriever, query.query), query.gold) for query in queries}

    assert {query: path for query, (path, gold) in found.items() if path is not None and path not in gold} == {}


def test_what_names_a_keyword_and_asks_for_nothing_else_stays_decisive(retriever: KeywordRetriever) -> None:
    decisive = {"keyword": 0, "identifier": 0}
    for query in read_queries(LABELLED / "bundled.jsonl"):
        path = settled(retriever, query.query)
        if query.kind in decisive and path in query.gold:
            decisive[query.kind] += 1

    # Of the 33 topics 16 are listed keywords; of the 60 identifiers 10 are, and most others stand in the text alone.
    assert decisive["keyword"] >= 16
    assert decisive["identifier"] >= 10


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("ERR_TIMEOUT 是什么", PAYMENT),
        ("如何处理 ERR_TIMEOUT", PAYMENT),
        ("为什么报 ERR_TIMEOUT", PAYMENT),
        ("what does ERR_TIMEOUT mean", PAYMENT),
        ("支付网关返回 HTTP 429，怎么排查？", PAYMENT),
        ("支付网关错误码", PAYMENT),
        ("为什么会 OOMKilled", FAULTS),
        ("difference between OOMKilled and OutOfMemoryError", FAULTS),
        ("CPU 飙高怎么办", FAULTS),
        ("遇到 checksum mismatch 怎么办", FLYWAY),
        ("数据库迁移怎么做", FLYWAY),
        ("why do we get Too many connections", POOL),
        ("连接池耗尽怎么解决", POOL),
        ("What is CLUSTERDOWN?", REDIS),
        ("CROSSSLOT 报错怎么解决", REDIS),
    ],
)
def test_asking_for_meaning_cause_or_remedy_of_a_keyword_is_decisive(
    retriever: KeywordRetriever, query: str, path: str
) -> None:
    assert settled(retriever, query) == path
