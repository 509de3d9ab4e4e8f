"""One pipeline under many threads and tasks at once, two on one folder, and what is left when they are closed."""

import asyncio
import gc
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import document, write_documents
from tests.outages.traffic import await_true

EXACT = "ERR_TIMEOUT 怎么处理"
QUESTION = "数据库连接被耗尽，应用拿不到连接"
DOCUMENTS = 6
SECONDS = 3.0


def text(number: int, version: int) -> str:
    """Write a document whose every sentence names its version."""
    mark = f"D{number}V{version}X"
    body = "\n\n".join(
        f"## 第 {part} 节\n\n连接池耗尽时先看监控（{mark}）。再按手册处理（{mark}）。" for part in range(4)
    )
    return document(f"# 手册 {number}\n\n{body}", title=f"手册 {number}", keywords=f"[KEY_{number}]")


def versions(result: LookupResult) -> dict[str, set[str]]:
    """Give the versions of each document that a result has text of."""
    contents = [part.content for part in (result.primary, result.supplement) if part is not None]
    found: dict[str, set[str]] = {}
    for number, version in re.findall(r"D(\d+)V(\d+)X", "\n".join(contents)):
        found.setdefault(number, set()).add(version)
    return found


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[KnowledgePipeline]:
    base = write_documents(tmp_path / "docs", {f"general/d{n}.md": text(n, 0) for n in range(DOCUMENTS)})
    with KnowledgePipeline.from_settings(
        topic_settings(base, tmp_path / "data"), embed_model=TopicEmbedding()
    ) as pipeline:
        pipeline.sync()
        yield pipeline


def test_look_ups_uploads_deletions_and_syncs_at_once_fail_nowhere_and_tear_no_document(
    pipeline: KnowledgePipeline,
) -> None:
    over, errors, torn, results = threading.Event(), list[Exception](), list[object](), list[LookupResult]()
    base = Path(pipeline.settings.knowledge.base_path)

    def note(result: LookupResult) -> None:
        results.append(result)
        torn.extend(found for found in versions(result).items() if len(found[1]) > 1)

    def look_up(kind: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            number = turn % DOCUMENTS
            queries = [f"KEY_{number}", f"连接池耗尽 {turn}", f"KEY_{number} 和 KEY_{(number + 1) % DOCUMENTS}"]
            note(pipeline.lookup(queries[turn % 3], f"s{kind}-{turn}" if kind else None))

    async def alook_up() -> None:
        async def one(kind: int) -> None:
            turn = 0
            while not over.is_set():
                turn += 1
                note(await pipeline.alookup(f"KEY_{turn % DOCUMENTS}", f"a{kind}-{turn}"))

        await asyncio.gather(*map(one, range(3)))

    def change() -> None:
        for version in range(1, 10_000):
            if over.is_set():
                return
            number = version % 2
            pipeline.upload(text(number, version).encode(), name=f"d{number}.md", category="general")
            if version % 5 == 0:
                pipeline.delete(f"general/d{number}.md")

    def synchronize() -> None:
        for version in range(1, 10_000):
            if over.is_set():
                return
            written = base / "general" / ".new"
            written.write_text(text(2, version), encoding="utf-8")
            written.replace(base / "general" / "d2.md")
            pipeline.sync()

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    work = [lambda: look_up(0), lambda: look_up(1), lambda: asyncio.run(alook_up()), change, synchronize]
    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    over.wait(SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert torn == []
    assert len(results) > 20
    assert any(len(versions(result)) > 0 for result in results)
    assert pipeline.recorder.flush(10)
    rows = pipeline.database.read(
        lambda connection: connection.exec_driver_sql("SELECT COUNT(*) FROM tool_invocation").scalar_one()
    )
    assert rows == len(results)
    pipeline.sync()
    assert pipeline.examine() == []


def test_of_two_pipelines_on_one_folder_one_goes_on_when_the_other_is_closed(
    bundle_settings: Settings, embed_model: BaseEmbedding
) -> None:
    first = KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model)
    second = KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model)
    for pipeline in (first, second):
        assert pipeline.lookup(EXACT).relevance_level == "PRECISE"
        assert pipeline.lookup(QUESTION).found
    first.close()
    assert second.lookup(f"{QUESTION}了").found
    assert second.lookup(EXACT).relevance_level == "PRECISE"
    assert first.lookup(f"{QUESTION}吗").found  # used again, it opens anew what it needs
    second.close()
    assert first.lookup(f"{QUESTION}呢").found
    first.close()
    with KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model) as third:
        rows = third.database.read(
            lambda connection: (
                connection.exec_driver_sql("SELECT COUNT(*), COUNT(DISTINCT id) FROM tool_invocation").one()._tuple()
            )
        )
    assert rows == (8, 8)


async def test_closing_leaves_no_thread_and_no_temporary_folder(
    bundle_settings: Settings, embed_model: BaseEmbedding
) -> None:
    before = set(threading.enumerate())
    pipeline = KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model)
    pipeline.lookup(EXACT, "s1")
    assert pipeline.lookup(QUESTION, "s1").found
    data = Path(bundle_settings.data_dir)
    assert len(list(data.glob("working-*"))) == 2  # the search by words, and its lock
    pipeline.close()
    pipeline.close()
    gc.collect()  # ends the threads of the pool that Milvus Lite leaves
    await_true(lambda: not [thread for thread in threading.enumerate() if thread not in before], seconds=10)
    assert list(data.glob("working-*")) == []


def test_closing_in_the_middle_of_look_ups_ends_each_of_them(
    bundle_settings: Settings, embed_model: BaseEmbedding
) -> None:
    pipeline = KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model)
    pipeline.lookup(QUESTION)
    over, unexpected = threading.Event(), list[BaseException]()

    def look_up(number: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            try:
                pipeline.lookup(EXACT if turn % 2 else f"{QUESTION} {number} {turn}", f"{number}-{turn}")
            except BaseException as error:
                unexpected.append(error)

    threads = [threading.Thread(target=look_up, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        over.wait(0.3)
        pipeline.close()
    over.set()
    for thread in threads:
        thread.join(30)
    assert not [thread for thread in threads if thread.is_alive()]
    pipeline.close()
    assert unexpected == []
