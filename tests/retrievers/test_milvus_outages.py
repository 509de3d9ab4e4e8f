"""Questions to a Milvus server that is away, slow or out of its mind: how long they take, and what comes after."""

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from pymilvus.grpc_gen import common_pb2, milvus_pb2, schema_pb2

from knowledge_lookup.retrievers import (
    MilvusChunkStore,
    VectorStoreError,
    VectorStoreUnavailableError,
    circuit_breaker,
)
from knowledge_lookup.retrievers.errors import VectorStoreTimeoutError
from knowledge_lookup.retrievers.time_spent import shared_time
from tests.retrievers.broken_connections import black_hole, within

VECTOR = [1.0, 0.0]


class _Methods(grpc.GenericRpcHandler):
    """Answers every method with the same bytes, or with those made for it, after a while."""

    def __init__(self, answers: dict[str, Any], other: bytes, delay: float) -> None:
        self.answers, self.other, self.delay = answers, other, delay
        self.asked: list[str] = []

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]

        def answer(_request: bytes, _context: Any) -> bytes:
            self.asked.append(name)
            time.sleep(self.delay)
            made = self.answers.get(name)
            return self.other if made is None else made.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def grpc_server(
    answers: dict[str, Any] | None = None, *, other: bytes = b"", delay: float = 0.0
) -> Iterator[tuple[str, _Methods]]:
    methods = _Methods(answers or {}, other, delay)
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[methods])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", methods
    finally:
        server.stop(None)


def answers_of_a_collection() -> dict[str, Any]:
    """What a Milvus with one loaded collection of two dimensions says."""
    ok = common_pb2.Status()
    vector = schema_pb2.FieldSchema(fieldID=101, name="embedding", data_type=schema_pb2.FloatVector)
    vector.type_params.add(key="dim", value="2")
    key = schema_pb2.FieldSchema(fieldID=100, name="id", data_type=schema_pb2.VarChar, is_primary_key=True)
    key.type_params.add(key="max_length", value="100")
    schema = schema_pb2.CollectionSchema(name="knowledge_chunks", fields=[key, vector])
    description = milvus_pb2.DescribeCollectionResponse(status=ok, schema=schema, collection_name="knowledge_chunks")
    index = milvus_pb2.IndexDescription(index_name="embedding", field_name="embedding", state=common_pb2.Finished)
    index.params.add(key="metric_type", value="L2")
    index.params.add(key="index_type", value="FLAT")
    return {
        "Connect": milvus_pb2.ConnectResponse(status=ok),
        "HasCollection": milvus_pb2.BoolResponse(status=ok, value=True),
        "DescribeCollection": description,
        "DescribeIndex": milvus_pb2.DescribeIndexResponse(status=ok, index_descriptions=[index]),
        "GetLoadingProgress": milvus_pb2.GetLoadingProgressResponse(status=ok, progress=100, refresh_progress=100),
        "GetLoadState": milvus_pb2.GetLoadStateResponse(status=ok, state=common_pb2.LoadStateLoaded),
    }


def search_answer(distance: float) -> milvus_pb2.SearchResults:
    results = schema_pb2.SearchResultData(num_queries=1, top_k=1, scores=[distance], topks=[1])
    results.ids.str_id.data.append("a")
    return milvus_pb2.SearchResults(status=common_pb2.Status(), results=results, collection_name="knowledge_chunks")


@pytest.mark.parametrize("garbage", [b"\xff\xfe\xfd\xfc" * 100, b"HTTP/1.1 200 OK\r\n\r\n<html>"])
def test_an_answer_that_is_none_of_milvus_is_an_outage(garbage: bytes) -> None:
    with grpc_server(other=garbage) as (uri, _):
        store = MilvusChunkStore(uri=uri, timeout=0.5)
        with within(1.0), pytest.raises(VectorStoreUnavailableError, match=f"^Milvus at {uri} could not be"):
            store.hits(VECTOR, limit=1)
        store.close()


@pytest.mark.parametrize("distance", [float("nan"), float("inf")])
def test_a_distance_that_is_no_number_is_an_outage_and_no_answer(distance: float) -> None:
    with grpc_server(answers_of_a_collection() | {"Search": search_answer(distance)}) as (uri, _):
        store = MilvusChunkStore(uri=uri, timeout=5)
        with pytest.raises(VectorStoreUnavailableError, match=r"can't be understood \(ValueError: the distance"):
            store.hits(VECTOR, limit=1)
        store.close()


def test_several_questions_of_one_query_share_the_time_limit() -> None:
    with grpc_server(answers_of_a_collection() | {"Search": search_answer(0.5)}) as (uri, methods):
        store = MilvusChunkStore(uri=uri, timeout=1.0)
        assert [hit.distance for hit in store.hits(VECTOR, limit=1)] == [0.5]
        methods.delay = 0.4

        def ask_often() -> None:
            for _ in range(10):
                store.hits(VECTOR, limit=1)

        with within(1.4), shared_time(), pytest.raises(VectorStoreTimeoutError, match="no answer within 1 seconds"):
            ask_often()
        # Each by itself would be in time.
        assert store.hits(VECTOR, limit=1)
        store.close()


def test_a_server_that_is_known_to_be_away_costs_no_time_and_is_found_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(circuit_breaker, "PAUSE_SECONDS", 0.6)
    with grpc_server(answers_of_a_collection() | {"Search": search_answer(0.5)}) as (uri, methods):
        store = MilvusChunkStore(uri=uri, timeout=0.8)
        assert store.hits(VECTOR, limit=1)
        methods.delay = 3.0
        for _ in range(circuit_breaker.TIMEOUTS_IN_A_ROW):
            with within(1.3), pytest.raises(VectorStoreTimeoutError):
                store.hits(VECTOR, limit=1)
        asked = len(methods.asked)
        for _ in range(20):
            with within(0.1), pytest.raises(VectorStoreUnavailableError, match="it failed a moment ago"):
                store.hits(VECTOR, limit=1)
        assert len(methods.asked) == asked
        methods.delay = 0.0
        deadline = time.monotonic() + 20
        while True:
            try:
                assert store.hits(VECTOR, limit=1)
                break
            except VectorStoreUnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert store.hits(VECTOR, limit=1)
        store.close()


def test_a_server_that_refuses_one_question_is_not_taken_for_away() -> None:
    refusal = milvus_pb2.SearchResults(status=common_pb2.Status(code=1100, reason="invalid parameter", error_code=1))
    with grpc_server(answers_of_a_collection() | {"Search": refusal}) as (uri, methods):
        store = MilvusChunkStore(uri=uri, timeout=5)
        for _ in range(2 * circuit_breaker.TIMEOUTS_IN_A_ROW):
            with pytest.raises(VectorStoreError, match="invalid parameter") as caught:
                store.hits(VECTOR, limit=1)
            assert not isinstance(caught.value, VectorStoreUnavailableError)
        assert methods.asked.count("Search") == 2 * circuit_breaker.TIMEOUTS_IN_A_ROW
        store.close()


def test_many_threads_before_a_server_that_never_answers_are_all_sent_away_in_time() -> None:
    with black_hole() as port:
        store = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.5)
        took: list[float] = []

        def search() -> None:
            started = time.monotonic()
            with pytest.raises(VectorStoreUnavailableError):
                store.hits(VECTOR, limit=1)
            took.append(time.monotonic() - started)

        threads = [threading.Thread(target=search) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(took) == 20
        assert max(took) <= 1.0
        store.close()
