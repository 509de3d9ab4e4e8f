"""The search by words: what it finds, and that it follows what changes."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from threading import Barrier, Event

import pytest

from knowledge_lookup.retrievers import Bm25Index, MilvusChunkStore, TermStatistics, VectorStoreUnavailableError
from knowledge_lookup.retrievers.search_terms import query_terms
from tests.retrievers.chunks import MODEL, chunk
from tests.retrievers.passages import Documents

HOSTILE_PATHS = [
    'a"b.md',
    "a'b.md",
    "a\\b.md",
    'x" OR id:"',
    "[a TO b] (c).md",
    "支付/网关（一）.md",
    "长" * 990 + ".md",
]


def ids(index: Bm25Index, query: str, **scope: Collection[str] | None) -> list[str]:
    return [node_id for node_id, _ in index.search(query_terms(query), limit=10, **scope)]  # type: ignore[arg-type]


# Finding


@pytest.fixture(scope="module")
def codes() -> Bm25Index:
    """Give an index that no test changes."""
    return Bm25Index(
        Documents(
            oracle=["ORA-12541：监听程序未启动", "ORA-12514：监听程序不认识服务名", "ORA-12154：无法解析连接标识符"],
            tidb=["tidb_mem_quota_query 限制单条查询的内存", "mem_quota_limit 是旧名", "错误码 8005：写冲突"],
            pool=["HikariCP 的 maxPoolSize 是连接池上限", "pooling 与 18005 无关"],
        )
    )


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("ORA-12541", "oracle.md#0"),
        ("ora-12514 怎么办", "oracle.md#1"),
        ("tidb_mem_quota_query", "tidb.md#0"),
        ("错误码 8005", "tidb.md#2"),
        ("maxPoolSize", "pool.md#0"),
        ("ＭＡＸＰＯＯＬＳＩＺＥ", "pool.md#0"),
        ("pool", "pool.md#0"),
        ("连接标识符", "oracle.md#2"),
    ],
)
def test_identifiers_and_chinese_words_find_their_passage_first(codes: Bm25Index, query: str, best: str) -> None:
    assert ids(codes, query)[0] == best


def test_scores_are_above_zero_best_first_and_as_many_as_asked_for(codes: Bm25Index) -> None:
    found = codes.search(query_terms("ORA-12541 监听程序"), limit=10)
    # the first has all terms, the second lacks the number, the third has nothing but the prefix
    assert [node_id for node_id, _ in found] == ["oracle.md#0", "oracle.md#1", "oracle.md#2"]
    scores = [score for _, score in found]
    assert scores[0] > scores[1] > scores[2] > 0.0
    assert codes.search(query_terms("ORA-12541 监听程序"), limit=2) == found[:2]


def test_what_no_passage_has_is_not_found(codes: Bm25Index) -> None:
    assert codes.search(query_terms("kafka"), limit=3) == []
    assert codes.search([], limit=3) == []


def test_fewer_than_one_passage_cannot_be_asked_for(codes: Bm25Index) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        codes.search(["redis"], limit=0)


def test_a_scope_leaves_documents_out_or_takes_them_alone(codes: Bm25Index) -> None:
    assert set(ids(codes, "ora 监听 mem")) == {"oracle.md#0", "oracle.md#1", "oracle.md#2", "tidb.md#0", "tidb.md#1"}
    assert set(ids(codes, "ora 监听 mem", exclude_documents=["oracle.md"])) == {"tidb.md#0", "tidb.md#1"}
    assert set(ids(codes, "ora 监听 mem", only_documents=["tidb.md", "pool.md"])) == {"tidb.md#0", "tidb.md#1"}
    assert ids(codes, "ora", only_documents=["oracle.md"], exclude_documents=["oracle.md"]) == []
    assert ids(codes, "ora", only_documents=[]) == []
    assert ids(codes, "ora", only_documents=["none.md"]) == []


def test_a_scope_does_not_change_the_scores(codes: Bm25Index) -> None:
    everywhere = dict(codes.search(query_terms("监听程序"), limit=10))
    assert dict(codes.search(query_terms("监听程序"), limit=10, only_documents=["oracle.md"])) == everywhere
    assert dict(codes.search(query_terms("监听程序"), limit=10, exclude_documents=["pool.md"])) == everywhere


def test_it_tells_how_many_passages_contain_a_term(codes: Bm25Index) -> None:
    assert isinstance(codes, TermStatistics)
    assert codes.passage_count() == 8
    assert {term: codes.passage_frequency(term) for term in ("ora", "监听", "mem", "pool", "8005", "kafka")} == {
        "ora": 3,
        "监听": 2,
        "mem": 2,
        "pool": 1,
        "8005": 1,
        "kafka": 0,
    }


def test_it_tells_how_many_passages_of_some_documents_contain_a_term(codes: Bm25Index) -> None:
    assert codes.passage_count(within=["oracle.md", "pool.md"]) == 5
    assert codes.passage_frequency("mem", within=["tidb.md"]) == 2
    assert codes.passage_frequency("mem", within=["oracle.md", "pool.md"]) == 0
    assert codes.passage_count(within=[]) == codes.passage_frequency("mem", within=[]) == 0


def test_a_document_may_have_any_path() -> None:
    documents = Documents()
    documents.texts = {path: [f"shared number{number}"] for number, path in enumerate(HOSTILE_PATHS)}
    index = Bm25Index(documents)
    for number, path in enumerate(HOSTILE_PATHS):
        own = f"{path}#0"
        others = {f"{other}#0" for other in HOSTILE_PATHS} - {own}
        assert ids(index, "shared", only_documents=[path]) == [own]
        assert set(ids(index, "shared", exclude_documents=[path])) == others
        assert index.passage_frequency(f"number{number}", within=[path]) == 1
        assert index.passage_count(within=[path]) == 1
    del documents.texts[HOSTILE_PATHS[0]]
    index.mark_changed(HOSTILE_PATHS[0])
    assert set(ids(index, "shared")) == {f"{path}#0" for path in HOSTILE_PATHS[1:]}


def test_an_empty_corpus_has_nothing_to_find() -> None:
    documents = Documents()
    index = Bm25Index(documents)
    assert ids(index, "redis") == []
    assert index.passage_count() == index.passage_frequency("redis") == 0
    documents.texts["new.md"] = ["redis"]
    index.mark_changed("new.md")
    assert ids(index, "redis") == ["new.md#0"]


def test_the_passages_of_a_chunk_store_are_searched_by_title_and_text(tmp_path: Path) -> None:
    store = MilvusChunkStore(uri=str(tmp_path / "milvus.db"), embedding_model=MODEL, timeout=10)
    index = Bm25Index(store)
    assert ids(index, "redis") == []
    titled = chunk("redis.md", text="maxmemory-policy 的取值")
    titled.metadata["title"] = "Redis 淘汰策略"
    store.upsert([titled, chunk("redis.md", 1, text="noeviction"), chunk("a'\"b.md", text="allkeys-lru")])
    index.mark_changed("redis.md")
    assert ids(index, "Redis 淘汰") == ids(index, "maxmemory-policy") == [titled.node_id]
    assert ids(index, "allkeys-lru") == []
    index.mark_changed("a'\"b.md")
    assert ids(index, "allkeys-lru") == [chunk("a'\"b.md").node_id]
    store.delete_documents(["redis.md"])
    index.mark_changed("redis.md")
    assert ids(index, "redis noeviction 淘汰") == []
    store.close()


# Following changes


def test_nothing_is_read_before_the_first_use_and_nothing_twice() -> None:
    documents = Documents(a=["redis"])
    index = Bm25Index(documents)
    index.mark_changed("a.md")
    assert documents.asked == []
    for _ in range(3):
        assert ids(index, "redis") == ["a.md#0"]
        assert index.passage_count() == 1
    assert documents.asked == [None]


def test_only_the_documents_that_changed_are_read_again() -> None:
    documents = Documents(a=["redis"], b=["kafka"], c=["flink"])
    index = Bm25Index(documents)
    assert index.passage_count() == 3
    for name in ("b.md", "c.md", "b.md"):
        index.mark_changed(name)
    assert ids(index, "redis") == ["a.md#0"]
    assert documents.asked == [None, {"b.md", "c.md"}]


def test_a_change_is_not_seen_before_it_is_marked() -> None:
    documents = Documents(a=["redis"])
    index = Bm25Index(documents)
    assert ids(index, "redis") == ["a.md#0"]
    documents.texts["a.md"] = ["kafka"]
    assert ids(index, "kafka") == []
    index.mark_changed("a.md")
    assert ids(index, "kafka") == ["a.md#0"]


def test_new_replaced_and_deleted_documents_are_followed_by_search_and_statistics() -> None:
    documents = Documents(old=["redis one", "redis two"], kept=["redis three"])
    index = Bm25Index(documents)
    assert set(ids(index, "redis")) == {"old.md#0", "old.md#1", "kept.md#0"}
    documents.texts["old.md"] = ["kafka"]
    documents.texts["new.md"] = ["redis four"]
    for name in ("old.md", "new.md"):
        index.mark_changed(name)
    assert set(ids(index, "redis")) == {"kept.md#0", "new.md#0"}
    assert ids(index, "kafka") == ["old.md#0"]
    assert index.passage_count() == 3
    assert index.passage_frequency("redis", within=documents.texts) == 2
    del documents.texts["old.md"], documents.texts["kept.md"]
    for name in ("old.md", "kept.md", "never.md"):
        index.mark_changed(name)
    assert ids(index, "redis kafka") == ["new.md#0"]
    assert index.passage_count() == 1


@pytest.mark.parametrize(
    "counted",
    [
        lambda index: index.passage_count(),
        lambda index: index.passage_frequency("kafka"),
        lambda index: index.passage_count(within=["a.md"]),
        lambda index: index.passage_frequency("kafka", within=["a.md"]),
    ],
    ids=["count", "frequency", "count within", "frequency within"],
)
def test_a_search_takes_up_a_change_first_and_counts_are_as_it_saw_them(counted: Callable[[Bm25Index], int]) -> None:
    documents = Documents(a=["kafka"])
    index = Bm25Index(documents)
    assert counted(index) == 1
    documents.texts["a.md"] = ["flink kafka", "kafka", "kafka streams"]
    index.mark_changed("a.md")
    assert counted(index) == 1
    assert len(index.search(["kafka"], limit=10)) == 3
    assert counted(index) == 3


def test_a_first_reading_that_fails_half_way_is_done_again_by_the_next_use() -> None:
    documents = Documents(a=["redis", "kafka"])
    documents.fails = True
    index = Bm25Index(documents)
    for _ in range(2):
        with pytest.raises(VectorStoreUnavailableError, match="Milvus doesn't answer"):
            ids(index, "redis")
    documents.fails = False
    assert ids(index, "redis kafka") == ["a.md#0", "a.md#1"]
    assert index.passage_count() == 2


def test_a_change_that_cannot_be_read_stays_marked_and_is_not_applied_by_halves() -> None:
    documents = Documents(a=["redis"], b=["kafka"])
    index = Bm25Index(documents)
    assert ids(index, "redis") == ["a.md#0"]
    documents.texts = {"a.md": ["flink", "spark"], "b.md": ["kafka"]}
    index.mark_changed("a.md")
    documents.fails = True
    for _ in range(2):
        with pytest.raises(VectorStoreUnavailableError, match="Milvus doesn't answer"):
            ids(index, "flink")
    index.mark_changed("b.md")
    documents.fails = False
    assert ids(index, "flink spark") == ["a.md#0", "a.md#1"]
    assert ids(index, "redis") == []
    assert index.passage_count() == 3
    assert documents.asked[-1] == {"a.md", "b.md"}


# Threads


def test_a_document_that_changes_while_it_is_read_is_read_again() -> None:
    documents = Documents(a=["first"])
    index = Bm25Index(documents)
    assert ids(index, "first") == ["a.md#0"]
    documents.texts["a.md"] = ["second"]
    index.mark_changed("a.md")
    documents.half_way = Event()
    with ThreadPoolExecutor(1) as thread:
        searching = thread.submit(ids, index, "second")
        assert documents.half_way.wait(10)
        documents.texts["a.md"] = ["third"]
        index.mark_changed("a.md")
        documents.go_on.set()
        assert searching.result(10) == ["a.md#0"]
    assert ids(index, "third") == ["a.md#0"]
    assert ids(index, "second") == []
    assert documents.asked == [None, {"a.md"}, {"a.md"}]


def test_a_document_that_changes_during_the_first_reading_is_read_again() -> None:
    documents = Documents(a=["first"])
    documents.half_way = Event()
    index = Bm25Index(documents)
    with ThreadPoolExecutor(1) as thread:
        searching = thread.submit(ids, index, "first")
        assert documents.half_way.wait(10)
        documents.texts["a.md"] = ["second"]
        index.mark_changed("a.md")
        documents.go_on.set()
        assert searching.result(10) == ["a.md#0"]
    assert ids(index, "second") == ["a.md#0"]


def test_a_search_waits_for_a_change_that_another_thread_is_reading() -> None:
    documents = Documents(a=["first"])
    index = Bm25Index(documents)
    assert ids(index, "first") == ["a.md#0"]
    documents.texts["a.md"] = ["second"]
    index.mark_changed("a.md")
    documents.half_way = Event()
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(ids, index, "first")
        assert documents.half_way.wait(10)
        searching = threads.submit(ids, index, "second")
        with pytest.raises(TimeoutError):
            searching.result(0.2)
        # What changes after the search began isn't waited for: where documents change without end it would never end.
        index.mark_changed("b.md")
        documents.go_on.set()
        assert searching.result(10) == ["a.md#0"]
        assert reading.result(10) == []
    assert documents.asked == [None, {"a.md"}]


def test_many_threads_read_the_corpus_once() -> None:
    documents = Documents(a=["redis"], b=["redis"])
    index = Bm25Index(documents)
    barrier = Barrier(6)

    def search() -> set[str]:
        barrier.wait()
        return set(ids(index, "redis"))

    with ThreadPoolExecutor(6) as threads:
        answers = [future.result() for future in [threads.submit(search) for _ in range(6)]]
    assert answers == [{"a.md#0", "b.md#0"}] * 6
    assert documents.asked == [None]
