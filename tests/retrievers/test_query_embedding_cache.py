"""The embeddings of the queries asked last, and what the retriever makes of them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core.schema import QueryBundle

from knowledge_lookup.retrievers import EmbeddingError, MilvusChunkStore, MilvusVectorRetriever, circuit_breaker
from knowledge_lookup.retrievers.query_embedding_cache import QueryEmbeddingCache
from tests.retrievers.chunks import AHEAD, ChosenVectors


def test_an_embedding_is_found_by_the_texts_that_the_model_got() -> None:
    cache = QueryEmbeddingCache(2)
    cache.put(["a", "b"], [0.1, 0.2])
    assert cache.get(["a", "b"]) == [0.1, 0.2]
    assert cache.get(("a", "b")) == [0.1, 0.2]
    assert cache.get(["b", "a"]) is None
    assert cache.get(["ab"]) is None
    assert cache.get([]) is None


def test_the_one_not_used_for_longest_is_forgotten() -> None:
    cache = QueryEmbeddingCache(2)
    cache.put(["first"], [1.0])
    cache.put(["second"], [2.0])
    assert cache.get(["first"]) == [1.0]
    cache.put(["third"], [3.0])
    assert [cache.get([text]) for text in ("first", "second", "third")] == [[1.0], None, [3.0]]


def test_of_size_zero_it_keeps_nothing_and_below_zero_it_is_refused() -> None:
    cache = QueryEmbeddingCache(0)
    cache.put(["a"], [1.0])
    assert cache.get(["a"]) is None
    with pytest.raises(ValueError, match=r"^the size of the query cache must be 0 or more, got -1$"):
        QueryEmbeddingCache(-1)


def test_neither_what_goes_in_nor_what_comes_out_can_change_it() -> None:
    cache = QueryEmbeddingCache(1)
    given = [0.6, 0.8]
    cache.put(["a"], given)
    given[0] = 9.0
    taken = cache.get(["a"])
    assert taken == [0.6, 0.8]
    taken.clear()
    assert cache.get(["a"]) == [0.6, 0.8]


def test_threads_get_each_texts_own_embedding_while_others_are_forgotten() -> None:
    cache = QueryEmbeddingCache(8)
    wrong: list[tuple[int, list[float]]] = []

    def use(start: int) -> None:
        for number in range(start, start + 2000):
            text = number % 12
            found = cache.get([str(text)])
            if found is not None and found != [float(text)]:
                wrong.append((text, found))
            cache.put([str(text)], [float(text)])

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(cache.get([str(text)]) is not None for text in range(12)) == 8


# In the retriever


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MilvusChunkStore]:
    store = MilvusChunkStore(uri=str(tmp_path / "unused.db"))
    yield store
    store.close()


def test_the_model_is_asked_once_for_the_same_texts(store: MilvusChunkStore) -> None:
    model = ChosenVectors({"long": (0.0, 7.0, 0.0, 0.0)})
    retriever = MilvusVectorRetriever(store, model)
    first = retriever.embed(QueryBundle("long"))
    assert first == [0.0, 1.0, 0.0, 0.0]
    first[0] = 5.0
    assert retriever.embed(QueryBundle("long")) == [0.0, 1.0, 0.0, 0.0]
    # What counts is what the model gets, not the query that it belongs to.
    assert retriever.embed(QueryBundle("another", custom_embedding_strs=["long"])) == [0.0, 1.0, 0.0, 0.0]
    assert model.asked == ["long"]
    assert retriever.embed(QueryBundle("another")) == list(AHEAD)
    assert model.asked == ["long", "another"]


def test_an_embedding_that_the_query_brings_is_neither_looked_up_nor_kept(store: MilvusChunkStore) -> None:
    model = ChosenVectors()
    retriever = MilvusVectorRetriever(store, model)
    retriever.embed(QueryBundle("ahead"))
    assert retriever.embed(QueryBundle("ahead", embedding=[0.0, 2.0])) == [0.0, 1.0]
    assert retriever.embed(QueryBundle("ahead")) == list(AHEAD)
    assert model.asked == ["ahead"]


def test_with_a_cache_of_size_zero_the_model_is_asked_each_time(store: MilvusChunkStore) -> None:
    model = ChosenVectors()
    retriever = MilvusVectorRetriever(store, model, query_cache_size=0)
    assert retriever.embed(QueryBundle("ahead")) == retriever.embed(QueryBundle("ahead")) == list(AHEAD)
    assert model.asked == ["ahead", "ahead"]


def test_what_failed_or_is_no_usable_vector_is_asked_for_again(
    store: MilvusChunkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "PAUSE_SECONDS", 0.0)

    class Recovering(ChosenVectors):
        def _get_query_embedding(self, query: str) -> list[float]:
            vector = super()._get_query_embedding(query)
            if len(self.asked) == 1:
                raise ConnectionError("no route to host")
            return [0.0] * 4 if len(self.asked) == 2 else vector

    retriever = MilvusVectorRetriever(store, Recovering())
    with pytest.raises(EmbeddingError, match="no route to host"):
        retriever.embed(QueryBundle("ahead"))
    with pytest.raises(EmbeddingError, match=r"a vector of length 0\.0"):
        retriever.embed(QueryBundle("ahead"))
    assert retriever.embed(QueryBundle("ahead")) == list(AHEAD)
