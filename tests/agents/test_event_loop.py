"""Look-ups awaited in an event loop: they overlap, and the loop runs its other tasks meanwhile."""

import asyncio
import time
from pathlib import Path

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from tests.heartbeat import LONGEST_PAUSE, longest_pause
from tests.knowledge_bases import document, write_documents
from tests.servers.openai_stub import OpenAIStub

QUESTION = "数据库连接被耗尽，应用拿不到连接"
KEYWORD = "ERR_TIMEOUT"
AT_ONCE = 8
SLOW = 0.3
"""Seconds."""


async def test_a_first_look_up_that_opens_everything_leaves_the_loop_free(
    bundle_settings: Settings, embed_model: BaseEmbedding
) -> None:
    with KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model) as warming:
        warming.lookup(QUESTION)  # imports hold the interpreter wherever they run

    async def first_look_up() -> None:
        pipeline = KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model)
        try:
            assert (await pipeline.alookup(QUESTION, "s1")).found
        finally:
            await asyncio.to_thread(pipeline.close)

    assert await longest_pause(first_look_up) <= LONGEST_PAUSE


@pytest.mark.parametrize("query", [QUESTION, KEYWORD])
async def test_look_ups_tool_calls_and_retrievals_leave_the_loop_free(bundle: KnowledgePipeline, query: str) -> None:
    tool = bundle.lookup_tool("s1")
    await bundle.alookup(query, "warm")
    assert await longest_pause(lambda: bundle.alookup(query)) <= LONGEST_PAUSE
    assert await longest_pause(lambda: tool.acall(query=query)) <= LONGEST_PAUSE
    assert await longest_pause(lambda: bundle.retriever.aretrieve(query)) <= LONGEST_PAUSE
    at_once = [f"{query} {number}" for number in range(AT_ONCE)]
    assert await longest_pause(lambda: asyncio.gather(*(bundle.alookup(q, q) for q in at_once))) <= LONGEST_PAUSE


async def test_look_ups_at_once_wait_for_a_slow_endpoint_together(openai_endpoint: OpenAIStub, tmp_path: Path) -> None:
    openai_endpoint.embed = lambda text: [float(len(text)), 1.0, 0.0]
    texts = {f"{name}.md": document(f"{name}的说明。", title=name) for name in ("连接池", "缓存", "网关")}
    settings = Settings(
        knowledge={"base_path": write_documents(tmp_path / "docs", texts)},
        data_dir=tmp_path / "data",
        embedding={"provider": "openai-like", "model": "some-model", "base_url": openai_endpoint.base_url},
    )
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync()
        pipeline.lookup("先打开所有部件")
        openai_endpoint.delay_seconds = SLOW
        seconds: list[float] = []

        async def look_up_at_once() -> None:
            started, run = time.monotonic(), len(seconds)
            await asyncio.gather(*(pipeline.alookup(f"问题 {run} {n}", f"s{n}") for n in range(AT_ONCE)))
            seconds.append(time.monotonic() - started)

        pause = await longest_pause(look_up_at_once)
        assert min(seconds) < AT_ONCE * SLOW / 2
        assert pause <= LONGEST_PAUSE


async def test_a_cancelled_look_up_is_not_remembered_as_given(openai_endpoint: OpenAIStub, tmp_path: Path) -> None:
    openai_endpoint.embed = lambda text: [1.0, 0.0]
    base = write_documents(tmp_path / "docs", {"pool.md": document("连接池的说明。", title="连接池")})
    settings = Settings(
        knowledge={"base_path": base},
        data_dir=tmp_path / "data",
        embedding={"provider": "openai-like", "model": "some-model", "base_url": openai_endpoint.base_url},
    )
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync()
        pipeline.lookup("先打开所有部件")
        openai_endpoint.delay_seconds = SLOW
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pipeline.alookup("连接池 耗尽", "s1"), timeout=SLOW / 4)
        await asyncio.sleep(2 * SLOW)  # what goes on in its thread comes to its end
        assert (await pipeline.alookup("连接池 耗尽", "s1")).found
