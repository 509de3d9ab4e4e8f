"""Look-ups that only repeat are not made, and a run that gets nowhere is closed."""

import json
from typing import Any

import pytest
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from knowledge_lookup.agents import build_executor
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.scripted_agent import ANSWER, ANSWERED, CALL, NO_ANSWER, QUESTION, Agent
from tests.servers.openai_stub import OpenAIStub


@pytest.fixture
def agent(bundle: KnowledgePipeline, openai_endpoint: OpenAIStub) -> Agent:
    return Agent(bundle, openai_endpoint)


async def test_after_a_precise_result_new_words_for_the_same_question_are_not_looked_up(agent: Agent) -> None:
    again = CALL.replace("ERR_TIMEOUT", "支付网关 超时 怎么处理")
    run = await agent.run(CALL, again, ANSWER)
    assert run.answer == ANSWERED
    assert run.queries == ["ERR_TIMEOUT"]
    told = run.requests[-1][-1]["content"]
    assert told.startswith("Observation: 这个问题已经检索过，结果见上文，不再检索。请直接作答。")
    assert len(told) < 300


@pytest.mark.parametrize(
    ("question", "queries"),
    [
        ("ERR_TIMEOUT 和 ERR_SIGN_INVALID 有什么区别？", ["ERR_TIMEOUT", "ERR_SIGN_INVALID"]),
        ("ERR_TIMEOUT 和 Redis CROSSSLOT 分别怎么处理？", ["ERR_TIMEOUT", "CROSSSLOT"]),
        ("How do I handle ERR_TIMEOUT, and how does Flyway fail?", ["ERR_TIMEOUT", "Flyway"]),
        ("ERR_TIMEOUT 怎么处理，数据库连接池耗尽怎么办？", ["ERR_TIMEOUT", "数据库连接池耗尽"]),
    ],
)
async def test_after_a_precise_result_another_part_of_the_question_is_looked_up(
    agent: Agent, question: str, queries: list[str]
) -> None:
    run = await agent.run(*(CALL.replace("ERR_TIMEOUT", query) for query in queries), ANSWER, question=question)
    assert json.loads(str(run.calls[0].tool_output))["relevanceLevel"] == "PRECISE"
    assert run.queries == queries
    assert run.answer == ANSWERED


async def test_a_model_that_goes_on_from_section_to_section_is_stopped_after_three_look_ups(agent: Agent) -> None:
    sections = ["重试与资金速查", "什么时候升级", "通用查法", "ERR_ORDER_CLOSED"]
    calls = [CALL.replace('"}', f'", "section_title": "{title}"}}') for title in sections]
    run = await agent.run(CALL, *calls, ANSWER, question="ERR_TIMEOUT 怎么重试、升级？查法呢？")
    assert [call.tool_kwargs.get("section_title") for call in run.calls] == [None, *sections[:2]]
    assert run.answer == ANSWERED


async def test_after_a_precise_result_a_section_that_the_question_does_not_name_is_not_looked_up(agent: Agent) -> None:
    section = CALL.replace('"}', '", "section_title": "重试与资金速查"}')
    run = await agent.run(CALL, section, ANSWER, question="ERR_TIMEOUT 是什么意思？")
    assert run.queries == ["ERR_TIMEOUT"]
    assert run.answer == ANSWERED


async def test_the_second_look_up_that_repeats_closes_the_run(agent: Agent) -> None:
    run = await agent.run(CALL, CALL, CALL.replace("ERR_TIMEOUT", "err_timeout 。"), ANSWER)
    assert run.queries == ["ERR_TIMEOUT"]
    assert run.answer == ANSWERED
    assert "不能再调用工具" in run.requests[-1][-1]["content"]
    assert len(run.requests) == 4


async def test_a_model_that_finds_nothing_in_ever_new_words_is_stopped_after_three_look_ups(agent: Agent) -> None:
    words = ["午餐菜单", "食堂", "外卖推荐", "吃什么", "餐厅"]
    run = await agent.run(*(CALL.replace("ERR_TIMEOUT", word) for word in words), question="今天中午怎么安排")
    assert run.queries == words[:3]
    assert run.answer == NO_ANSWER
    assert "不能再调用工具" in run.requests[-1][-1]["content"]


async def test_different_parts_of_a_question_may_each_find_nothing(agent: Agent) -> None:
    words = ["午餐菜单", "班车时刻", "健身房", "团建安排"]
    question = "午餐菜单、班车时刻、健身房和团建安排在哪里看？"
    run = await agent.run(*(CALL.replace("ERR_TIMEOUT", word) for word in words), ANSWER, question=question)
    assert run.queries == words
    assert run.answer == ANSWERED


async def test_a_tool_that_raises_is_an_observation_and_its_error_can_be_tried_again_once(agent: Agent) -> None:
    def lookup_knowledge(query: str) -> str:
        raise RuntimeError("the server is down")

    executor = build_executor([FunctionTool.from_defaults(lookup_knowledge)], agent.llm)
    run = await agent.run(CALL, executor=executor)
    assert run.queries == ["ERR_TIMEOUT"] * 3
    assert run.requests[1][-1]["content"] == "Observation: the server is down"
    assert run.answer == NO_ANSWER


async def test_the_conversation_keeps_calls_results_and_answer_but_not_what_was_rejected(agent: Agent) -> None:
    executor = agent.executor()
    memory = ChatMemoryBuffer.from_defaults(llm=agent.llm)
    agent.endpoint.replies.extend(["", CALL.replace('"', "'"), CALL, "Answer: 完整的答案", ANSWER])
    await executor.run(QUESTION, memory=memory)
    question, answered = (message.content or "" for message in memory.get_all())
    assert question == QUESTION
    assert answered.startswith(
        'Thought: look it up\nAction: lookup_knowledge\nAction Input: {"query": "ERR_TIMEOUT"}\n'
    )
    assert answered.endswith(f"Answer: {ANSWERED}")
    assert answered.count("Observation: ") == 1
    assert "完整的答案" not in answered


async def test_a_run_after_one_that_failed_begins_anew(agent: Agent) -> None:
    executor = agent.executor()
    context: Context[Any] = Context(executor)
    agent.endpoint.replies.extend([CALL, 400])
    assert "scripted failure" in str(await executor.run(QUESTION, ctx=context))
    agent.endpoint.replies.extend([CALL, ANSWER])
    assert str(await executor.run(QUESTION, ctx=context)) == ANSWERED
