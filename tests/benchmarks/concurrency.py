"""Look-ups a second of one pipeline, by threads and by asyncio tasks, beside a LlamaIndex retriever in the same run.

- exact: look-ups with a unique exact hit, each in a new session, recorded;
- semantic: look-ups of different questions that exact match doesn't settle, each in a new session, recorded;
- LlamaIndex: ``VectorStoreIndex.as_retriever``, the same questions, the same Milvus Lite and the same model.

    python tests/benchmarks/concurrency.py [--seconds 5]

Each is asked for some seconds by each number of threads (``lookup``, ``retrieve``) and of tasks in one event loop
(``alookup``, ``aretrieve``). No question is asked twice, so that no cached embedding answers. The documents are the
bundled ones. LlamaIndex's ``aretrieve`` needs Milvus's own asynchronous client.
"""

import argparse
import asyncio
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.retrievers import BaseRetriever
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.pipeline import KnowledgePipeline, Settings

THREADS = (1, 2, 4, 8, 32)
TASKS = (1, 8, 32)
EXACT = "ERR_TIMEOUT 怎么处理"
QUESTIONS = (
    "数据库连接被耗尽，应用拿不到连接，第 {} 次",
    "支付渠道一直没有应答，订单 {} 该怎么办",
    "缓存节点 {} 挂了以后请求都打到数据库",
    "迁移脚本 {} 改过以后启动失败",
    "线上第 {} 号故障先看哪些指标",
    "模型反复调用同一个工具 {} 次",
)
WARM_UP = 3


@dataclass
class Measured:
    """What the workers did.

    :param milliseconds: Time of each call.
    :param errors: What went wrong.
    :param seconds: How long all workers ran.
    """

    milliseconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Questions:
    """Gives each worker another question each time, and never one again; safe to use from many threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> tuple[str, str]:
        """Make a question and the id of a new session."""
        number = next(self._numbers)
        return QUESTIONS[number % len(QUESTIONS)].format(number), f"s{number}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="How long each number of workers asks.")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            knowledge={"base_path": Path(str(files("knowledge_lookup.knowledge_base")))}, data_dir=folder
        )
        with KnowledgePipeline.from_settings(settings) as pipeline:
            pipeline.sync()
            print("| call | workers | a second | p50 ms | p95 ms | errors |\n|---|---|---|---|---|---|", flush=True)
            measure_threads(pipeline, seconds)
            asyncio.run(measure_tasks(pipeline, seconds))


def measure_threads(pipeline: KnowledgePipeline, seconds: float) -> None:
    """Ask by threads, the calls in turn at each number of them."""
    store = pipeline.chunk_store.open()
    assert store is not None
    retriever = retriever_on(store, pipeline)
    questions = Questions()
    calls: dict[str, Callable[[str, str], object]] = {
        "exact": lambda _, session: pipeline.lookup(EXACT, session),
        "semantic": pipeline.lookup,
        "LlamaIndex": lambda question, _: retriever.retrieve(question),
    }
    for call, _ in itertools.product(calls.values(), range(WARM_UP)):
        call(*questions.next())
    for workers, (name, call) in itertools.product(THREADS, calls.items()):
        print_row(name, f"{workers} threads", ask_by_threads(call, questions, workers, seconds))


def ask_by_threads(call: Callable[[str, str], object], questions: Questions, workers: int, seconds: float) -> Measured:
    """Have a number of threads call for some seconds."""
    measured = Measured()
    start = threading.Barrier(workers + 1)
    until = [0.0]

    def work() -> None:
        start.wait()
        while (started := time.perf_counter()) < until[0]:
            try:
                call(*questions.next())
            except Exception as error:  # whatever it is, it belongs in the table
                measured.errors.append(f"{type(error).__name__}: {error}")
            measured.milliseconds.append((time.perf_counter() - started) * 1000)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    until[0] = began + seconds
    start.wait()
    for thread in threads:
        thread.join()
    measured.seconds = time.perf_counter() - began
    return measured


async def measure_tasks(pipeline: KnowledgePipeline, seconds: float) -> None:
    """Ask by tasks of one event loop, the calls in turn at each number of them."""
    given = pipeline.chunk_store.open()
    assert given is not None
    questions = Questions()
    store = MilvusVectorStore(
        uri=pipeline.settings.milvus.uri or str(Path(pipeline.settings.data_dir) / "milvus.db"),
        collection_name=given.collection_name,
        similarity_metric="L2",
        use_async_client=True,
    )
    retriever = retriever_on(store, pipeline)
    calls: dict[str, Callable[[str, str], Awaitable[object]]] = {
        "exact": lambda _, session: pipeline.alookup(EXACT, session),
        "semantic": pipeline.alookup,
        "LlamaIndex": lambda question, _: retriever.aretrieve(question),
    }
    for call, _ in itertools.product(calls.values(), range(WARM_UP)):
        await call(*questions.next())
    for workers, (name, call) in itertools.product(TASKS, calls.items()):
        print_row(name, f"{workers} tasks", await ask_by_tasks(call, questions, workers, seconds))
    await store.aclient.close()
    store.client.close()


async def ask_by_tasks(
    call: Callable[[str, str], Awaitable[object]], questions: Questions, workers: int, seconds: float
) -> Measured:
    """Have a number of tasks call for some seconds."""
    measured = Measured()
    began = time.perf_counter()

    async def work() -> None:
        while (started := time.perf_counter()) < began + seconds:
            try:
                await call(*questions.next())
            except Exception as error:  # whatever it is, it belongs in the table
                measured.errors.append(f"{type(error).__name__}: {error}")
            measured.milliseconds.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*(work() for _ in range(workers)))
    measured.seconds = time.perf_counter() - began
    return measured


def retriever_on(store: MilvusVectorStore, pipeline: KnowledgePipeline) -> BaseRetriever:
    """Build what a LlamaIndex user takes for three passages."""
    return VectorStoreIndex.from_vector_store(store, embed_model=pipeline.embed_model).as_retriever(similarity_top_k=3)


def print_row(name: str, workers: str, measured: Measured) -> None:
    """Print one row of the table."""
    times = measured.milliseconds
    late = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    said = f"{len(measured.errors)}: {measured.errors[0]}" if measured.errors else "0"
    rate = (len(times) - len(measured.errors)) / measured.seconds
    print(f"| {name} | {workers} | {rate:,.0f} | {statistics.median(times):.2f} | {late:.2f} | {said} |", flush=True)


if __name__ == "__main__":
    main()
