"""A language model that is down, slow or answers garbage: each run ends soon, and in the truth."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import LLM
from llama_index.core.memory import ChatMemoryBuffer

from knowledge_lookup.agents import PlanAndExecute, build_executor, build_planner
from knowledge_lookup.agents.language_model import LanguageModelError, LanguageModelTimeoutError
from knowledge_lookup.agents.planner import PlanStep
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.models import language_models
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import Fault, OpenAIStub, Reply

QUESTION = "支付网关返回 ERR_TIMEOUT，怎么排查？"
LOOKUP = 'Thought: look it up\nAction: lookup_knowledge\nAction Input: {"query": "ERR_TIMEOUT"}'
ANSWER = "Thought: done\nAnswer: 先查单。"
SOURCE = "knowledge_base/api/payment-errors.md"
LIMIT = 0.5
"""Seconds."""
SLOW = 3.0
FAILURES: list[Reply] = [500, 429, 400, Fault.HTML, Fault.EMPTY, Fault.RESET, Fault.HALF]


@pytest.fixture
def llm(openai_endpoint: OpenAIStub, monkeypatch: pytest.MonkeyPatch) -> LLM:
    # The client's pauses between attempts are its own business; one attempt shows what comes of a failure.
    monkeypatch.setattr(language_models, "_RETRIES", 0)
    return build_llm(LlmSettings(provider="openai-like", model="stub", base_url=openai_endpoint.base_url))


def after(first: list[Reply], then: Reply) -> Callable[[Any], Reply]:
    """Give some replies, then one again and again."""
    left = list(first)
    return lambda messages: left.pop(0) if left else then


@pytest.mark.parametrize("failure", FAILURES, ids=str)
async def test_a_failure_before_anything_was_retrieved_is_an_error_of_one_line(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, failure: Reply
) -> None:
    openai_endpoint.answer = lambda messages: failure
    with pytest.raises(LanguageModelError, match=r"^the language model.*: check llm\.base-url") as raised:
        await build_executor([bundle.lookup_tool("s1")], llm).run(QUESTION)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("failure", FAILURES, ids=str)
async def test_a_failure_after_a_look_up_ends_in_an_answer_that_says_so_and_names_the_source(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, failure: Reply
) -> None:
    openai_endpoint.answer = after([LOOKUP], failure)
    answer = str(await build_executor([bundle.lookup_tool("s1")], llm).run(QUESTION))
    said, source = answer.split("\n")
    assert said.startswith("语言模型调用失败（")
    assert said.endswith("），没有得出答案。")
    assert source == f"检索到的内容来自：{SOURCE}"


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("zh", f"语言模型在 0.5 秒内没有响应，没有得出答案。\n检索到的内容来自：{SOURCE}"),
        (
            "en",
            "The language model did not respond within 0.5 s; no answer was reached.\n"
            f"What was retrieved comes from: {SOURCE}",
        ),
    ],
)
async def test_a_slow_model_is_given_up_in_time_before_and_after_a_look_up(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, locale: Any, expected: str
) -> None:
    executor = build_executor([bundle.lookup_tool("s1")], llm, locale=locale, timeout_seconds=LIMIT)

    def answer(messages: list[dict[str, str]]) -> str:
        openai_endpoint.delay_seconds = SLOW
        return LOOKUP

    openai_endpoint.answer = answer
    started = time.monotonic()
    assert str(await executor.run(QUESTION)) == expected
    with pytest.raises(LanguageModelTimeoutError, match=r"no answer within 0\.5 s: check .* llm\.timeout-seconds$"):
        await executor.run(QUESTION)
    assert time.monotonic() - started < 2 * LIMIT + 1.0


async def test_what_was_retrieved_before_the_failure_is_there_for_the_next_question(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = after([LOOKUP], 500)
    executor = build_executor([bundle.lookup_tool("s1")], llm)
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    await executor.run(QUESTION, memory=memory)
    openai_endpoint.answer = after([], ANSWER)
    assert str(await executor.run(QUESTION, memory=memory)) == "先查单。"
    assert '"relevanceLevel":"PRECISE"' in "".join(m["content"] for m in openai_endpoint.last_messages())


def test_an_endpoint_that_is_down_is_said_after_a_few_seconds(bundle: KnowledgePipeline) -> None:
    settings = bundle.settings.model_copy(
        update={"llm": LlmSettings(provider="openai-like", model="m", base_url="http://127.0.0.1:1/v1")}
    )
    with KnowledgePipeline.from_settings(settings, embed_model=bundle.embed_model) as pipeline:
        from knowledge_lookup.pipeline.cli.chat import Chat

        started = time.monotonic()
        with (
            Chat(pipeline, session_id=None, quiet=True) as chat,
            pytest.raises(LanguageModelError, match=r"APIConnectionError: Connection error\.\): check llm\.base-url"),
        ):
            chat.ask(QUESTION)
        assert time.monotonic() - started < 10


# Plan and execute


def flow(bundle: KnowledgePipeline, llm: LLM) -> PlanAndExecute:
    executor = build_executor([bundle.lookup_tool("s1")], llm, timeout_seconds=LIMIT)
    return PlanAndExecute(build_planner(llm, timeout_seconds=LIMIT), executor, llm, timeout_seconds=LIMIT)


PLAN = '{"steps": [{"instruction": "查 ERR_TIMEOUT"}, {"instruction": "查 CROSSSLOT"}, {"instruction": "比较"}]}'


@pytest.mark.parametrize("is_sync", [True, False])
async def test_a_slow_planner_gives_way_to_the_question_as_the_only_step(
    llm: LLM, openai_endpoint: OpenAIStub, is_sync: bool
) -> None:
    openai_endpoint.delay_seconds = SLOW
    planner = build_planner(llm, timeout_seconds=LIMIT)
    started = time.monotonic()
    plan = planner.plan(QUESTION) if is_sync else await planner.aplan(QUESTION)
    assert plan == (PlanStep(QUESTION),)
    assert time.monotonic() - started < LIMIT + 1.0


async def test_after_a_step_without_response_the_others_are_not_begun_and_named(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    replies = [PLAN, LOOKUP]

    def answer(messages: list[dict[str, str]]) -> str:
        if len(replies) == 1:
            openai_endpoint.delay_seconds = SLOW
        return replies.pop(0)

    openai_endpoint.answer = answer
    started = time.monotonic()
    text = str(await flow(bundle, llm).run(user_msg="ERR_TIMEOUT 和 CROSSSLOT 有什么区别？"))
    assert text == (
        f"1. 查 ERR_TIMEOUT\n\n语言模型在 0.5 秒内没有响应，没有得出答案。\n检索到的内容来自：{SOURCE}\n\n"
        "以下步骤没有执行，因为语言模型没有响应：\n2. 查 CROSSSLOT\n3. 比较"
    )
    assert time.monotonic() - started < LIMIT + 1.5


async def test_where_nothing_was_retrieved_a_plan_fails_with_the_time_that_was_up(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.delay_seconds = SLOW
    started = time.monotonic()
    with pytest.raises(LanguageModelTimeoutError):
        await flow(bundle, llm).run(user_msg=QUESTION)
    assert time.monotonic() - started < 2 * LIMIT + 1.0


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_answer_that_the_model_could_not_finish_says_so(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, streaming: bool
) -> None:
    openai_endpoint.finish_reason = "length"
    openai_endpoint.answer = after([LOOKUP], "Thought: done\nAnswer: it was the chann")
    executor = build_executor([bundle.lookup_tool("s1")], llm, locale="en")
    executor.streaming = streaming
    answer = str(await executor.run(QUESTION))
    assert answer == "it was the chann\n(The answer reached the model's length limit and may be incomplete.)"
