"""REQ-04: the planner with the map, and the workflow that carries its plan out by the executor."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import ToolCall, ToolCallResult
from llama_index.core.llms import LLM
from llama_index.core.memory import ChatMemoryBuffer

from knowledge_lookup.agents import (
    ExtractiveLLM,
    PlanAndExecute,
    PlanReady,
    PlanStep,
    build_executor,
    build_planner,
)
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import OpenAIStub

QUESTION = "ERR_TIMEOUT 和 CROSSSLOT 分别是什么意思？"
MAP = "- domain_id: api\n  description: 接口 {x}\n  when_to_retrieve: 返回 ERR_ 开头的错误码时\n  documents: []\n"
RULES = (
    "制定步骤时，先查看 `available_knowledge_domains`，按 `when_to_retrieve` 判断是否需要检索该域",
    "每个域最多指示 Executor 检索一次；已检索过的域不再安排检索步骤",
)
STEPS = (PlanStep("查询 ERR_TIMEOUT 的含义", "api"), PlanStep("查询 CROSSSLOT 的含义", "infrastructure"))
PLAN = json.dumps(
    {"steps": [{"instruction": step.instruction, "domain_id": step.domain_id} for step in STEPS]}, ensure_ascii=False
)
COMPOSED = "两者的区别如下。来源：knowledge_base/api/payment-errors.md"


@pytest.fixture
def llm(openai_endpoint: OpenAIStub) -> LLM:
    return build_llm(LlmSettings(provider="openai-like", model="stub", base_url=openai_endpoint.base_url))


# The prompt


def test_the_prompt_ends_with_the_map_and_has_the_two_rules() -> None:
    prompt = build_planner(None, MAP).system_prompt
    for rule in RULES:
        assert rule in prompt
    assert prompt.rstrip().endswith(f"## available_knowledge_domains\n\n{MAP.strip()}")


@pytest.mark.parametrize("locale", ["zh", "en"])
@pytest.mark.parametrize("knowledge_map", ["", "\n"])
def test_without_a_map_there_are_neither_block_nor_rules(knowledge_map: str, locale: str) -> None:
    planner = build_planner(None, knowledge_map, locale=locale)  # type: ignore[arg-type]
    for word in ("available_knowledge_domains", "when_to_retrieve", "domain_id", "retrieved_domains"):
        assert word not in planner.system_prompt
        assert word in build_planner(None, MAP, locale=locale).system_prompt  # type: ignore[arg-type]
    assert '{"steps": [{"instruction": ' in planner.system_prompt


def test_the_model_gets_the_prompt_and_the_question_as_they_are(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.extend([PLAN, PLAN])
    planner = build_planner(llm, MAP)
    planner.plan("{tool_desc} {{x}} %s？")
    assert openai_endpoint.last_messages() == [
        {"role": "system", "content": planner.system_prompt},
        {"role": "user", "content": "{tool_desc} {{x}} %s？"},
    ]
    planner.plan(QUESTION, retrieved_domains=["api", "domain"])
    assert openai_endpoint.last_messages()[1]["content"] == f"{QUESTION}\n\nretrieved_domains: api, domain"


# The plan


def plan_of(steps: list[Any]) -> str:
    return json.dumps({"steps": steps}, ensure_ascii=False)


def searching(instruction: str, domain_id: object) -> dict[str, object]:
    return {"instruction": instruction, "domain_id": domain_id}


ITSELF = (PlanStep(QUESTION),)
ANSWERS: list[tuple[str | int, tuple[PlanStep, ...]]] = [
    (PLAN, STEPS),
    (f"计划如下：\n```json\n{PLAN}\n```\n完毕 [1]", STEPS),
    (str(json.loads(PLAN)), STEPS),
    (PLAN[:-20], (STEPS[0], PlanStep(STEPS[1].instruction))),
    (PLAN[:-40], STEPS[:1]),
    (json.dumps(json.loads(PLAN)["steps"]), STEPS),
    (plan_of(["查甲", " 查 乙 ", "", None, 7]), (PlanStep("查甲"), PlanStep("查 乙"), PlanStep("7"))),
    ('{"steps": "查甲"}', (PlanStep("查甲"),)),
    ('{"steps": {"instruction": "查甲"}}', (PlanStep("查甲"),)),
    (plan_of([searching("查甲", None), searching("查乙", "null")]), (PlanStep("查甲"), PlanStep("查乙"))),
    (
        plan_of(
            [searching("查甲", "api"), searching("查乙", "infra"), searching("查丙", "api"), searching("查丁", None)]
        ),
        (PlanStep("查甲\n查丙", "api"), PlanStep("查乙", "infra"), PlanStep("查丁")),
    ),
    (plan_of([f"查 {number}" for number in range(9)]), tuple(PlanStep(f"查 {number}") for number in range(6))),
    (plan_of([]), ITSELF),
    (plan_of([{"domain_id": "api"}, {}]), ITSELF),
    ('{"plan": ["查甲"]}', ITSELF),
    ("不需要计划。", ITSELF),
    ("", ITSELF),
    (400, ITSELF),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
async def test_every_answer_gives_a_plan_that_searches_each_domain_once(
    llm: LLM, openai_endpoint: OpenAIStub, answer: str | int, expected: tuple[PlanStep, ...]
) -> None:
    openai_endpoint.replies.extend([answer, answer])
    planner = build_planner(llm, MAP)
    assert planner.plan(QUESTION) == expected
    assert await planner.aplan(QUESTION) == expected


@pytest.mark.parametrize("no_model", [None, ExtractiveLLM()])
async def test_without_a_language_model_the_plan_is_the_question(no_model: LLM | None) -> None:
    planner = build_planner(no_model, MAP)
    assert planner.plan(QUESTION) == ITSELF
    assert await planner.aplan(QUESTION) == ITSELF


# Plan and execute


def look_up(query: str) -> str:
    return f'Thought: look it up\nAction: lookup_knowledge\nAction Input: {{"query": "{query}"}}'


def script(
    *, plan: str = PLAN, composed: str | int = COMPOSED, fails_at: str = "nowhere"
) -> Callable[[list[dict[str, str]]], str | int]:
    """Play the model: plan, look each step up once and answer it, compose."""

    def answer(messages: list[dict[str, str]]) -> str | int:
        system = messages[0]["content"]
        if "Planner" in system:
            return plan
        if "`steps`" in system:
            return composed
        instruction = [message["content"] for message in messages if not message["content"].startswith("Obs")][1:][-1]
        asked = [message["content"] for message in messages if message["role"] == "user"]
        if fails_at in [text for text in asked if not text.startswith("Observation:")][-1]:
            return 400
        if messages[-1]["content"].startswith("Observation:"):
            found = json.loads(messages[-1]["content"].removeprefix("Observation: "))
            return f"Thought: done\nAnswer: 第 {len(asked)} 条：{found.get('primary', {}).get('source')}"
        return look_up("ERR_TIMEOUT" if "ERR_TIMEOUT" in instruction else "CROSSSLOT")

    return answer


def flow(bundle: KnowledgePipeline, llm: LLM, *, locale: Any = "zh") -> PlanAndExecute:
    planner = build_planner(llm, "- domain_id: SECRET-MAP\n", locale=locale)
    return PlanAndExecute(planner, build_executor([bundle.lookup_tool("s1")], llm, locale=locale), llm, locale=locale)


async def run(workflow: PlanAndExecute, question: str = QUESTION, **options: Any) -> tuple[list[Any], str]:
    handler = workflow.run(user_msg=question, **options)
    events = [event async for event in handler.stream_events()]
    return events, str(await handler)


async def test_a_plan_is_carried_out_in_one_session_and_an_answer_is_composed(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = script()
    events, answer = await run(flow(bundle, llm))
    assert answer == COMPOSED
    assert [event.steps for event in events if isinstance(event, PlanReady)] == [STEPS]
    assert isinstance(events[0], PlanReady)
    calls = [event.tool_kwargs["query"] for event in events if type(event) is ToolCall]
    results = [event.tool_output.raw_output for event in events if isinstance(event, ToolCallResult)]
    assert calls == ["ERR_TIMEOUT", "CROSSSLOT"]
    assert [result.found for result in results] == [True, True]
    assert results[1].retrieved_domains_this_session == ("api", "infrastructure")
    assert tuple(bundle.memory.get_retrieved_domains("s1")) == ("api", "infrastructure")
    material = json.loads(openai_endpoint.last_messages()[1]["content"])
    assert material["question"] == QUESTION
    assert [step["instruction"] for step in material["steps"]] == [step.instruction for step in STEPS]
    assert material["steps"][0]["answer"].endswith("knowledge_base/api/payment-errors.md")
    assert material["steps"][1]["answer"].endswith("knowledge_base/infrastructure/redis-config.md")


async def test_only_the_planner_sees_the_map(bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.answer = script()
    await run(flow(bundle, llm))
    seen = ["SECRET-MAP" in json.dumps(request["messages"]) for request in openai_endpoint.requests]
    assert seen == [True] + [False] * 5
    executor_systems = {request["messages"][0]["content"] for request in openai_endpoint.requests[1:-1]}
    assert all("available_knowledge_domains" not in system for system in executor_systems)


async def test_a_later_step_has_the_conversation_of_the_earlier_ones(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = script()
    await run(flow(bundle, llm))
    before_last_answer = json.dumps(openai_endpoint.requests[-2]["messages"], ensure_ascii=False)
    assert STEPS[0].instruction in before_last_answer
    assert "第 2 条" in before_last_answer


async def test_a_step_that_fails_is_part_of_the_answer(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, caplog: pytest.LogCaptureFixture
) -> None:
    openai_endpoint.answer = script(fails_at="ERR_TIMEOUT")
    _, answer = await run(flow(bundle, llm))
    assert answer == COMPOSED
    first, second = json.loads(openai_endpoint.last_messages()[1]["content"])["steps"]
    assert list(first) == ["instruction", "error"]
    assert "scripted failure" in first["error"]
    assert "answer" in second
    assert any("a step of the plan failed" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("composed", [400, "", "  "])
async def test_where_no_answer_is_composed_the_answers_of_the_steps_are_given(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub, composed: str | int
) -> None:
    openai_endpoint.answer = script(composed=composed, fails_at="CROSSSLOT")
    _, answer = await run(flow(bundle, llm))
    first, second = answer.split("\n\n2. ")
    assert first == f"1. {STEPS[0].instruction}\n\n第 2 条：knowledge_base/api/payment-errors.md"
    assert second.startswith(f"{STEPS[1].instruction}\n\n这一步没有完成：")
    assert "scripted failure" in second


async def test_when_all_steps_fail_the_run_fails_with_the_reason(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = lambda messages: 400
    with pytest.raises(Exception, match="scripted failure"):
        await run(flow(bundle, llm))


async def test_an_answer_to_the_question_itself_is_not_composed_again(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = script(plan="没有计划")
    events, answer = await run(flow(bundle, llm), "ERR_TIMEOUT 是什么意思？")
    assert answer == "第 2 条：knowledge_base/api/payment-errors.md"
    assert len(openai_endpoint.requests) == 3
    assert isinstance(events[0], PlanReady)


async def test_with_the_embedded_responder_one_step_answers_with_its_source(bundle: KnowledgePipeline) -> None:
    llm = ExtractiveLLM()
    events, answer = await run(flow(bundle, llm), "支付网关返回 ERR_TIMEOUT，怎么排查？")
    assert events[0] == PlanReady(steps=(PlanStep("支付网关返回 ERR_TIMEOUT，怎么排查？"),))
    assert sum(isinstance(event, ToolCallResult) for event in events) == 1
    assert "来源：knowledge_base/api/payment-errors.md" in answer
    assert "不是语言模型" in answer


async def test_answers_of_the_embedded_responder_keep_their_sources_when_they_are_joined(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.append(PLAN)
    extractive = ExtractiveLLM()
    executor = build_executor([bundle.lookup_tool("s1")], extractive)
    _, answer = await run(PlanAndExecute(build_planner(llm, MAP), executor, extractive))
    assert "来源：knowledge_base/api/payment-errors.md" in answer
    assert "来源：knowledge_base/infrastructure/redis-config.md" in answer
    assert len(openai_endpoint.requests) == 1


async def test_a_conversation_goes_on_with_the_memory_that_is_handed_in(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = script()
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    workflow = flow(bundle, llm)
    await run(workflow, memory=memory, retrieved_domains=("domain",))
    assert "retrieved_domains: domain" in openai_endpoint.requests[0]["messages"][1]["content"]
    question, answer = memory.get()[-2:]
    assert (question.content, answer.content) == (QUESTION, COMPOSED)
    openai_endpoint.answer = script(plan="没有计划")
    await run(workflow, "CROSSSLOT 还有别的原因吗？", memory=memory)
    assert COMPOSED in [message["content"] for message in openai_endpoint.last_messages()]


@pytest.mark.timeout(30)
async def test_cancelling_a_run_stops_the_executor(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = script()
    handler = flow(bundle, llm).run(user_msg=QUESTION)
    async for event in handler.stream_events():
        if isinstance(event, PlanReady):
            openai_endpoint.delay_seconds = 0.3
            break
    await asyncio.sleep(0.1)
    await handler.cancel_run()
    await asyncio.sleep(0.1)
    asked = len(openai_endpoint.requests)
    await asyncio.sleep(1.0)
    assert len(openai_endpoint.requests) == asked
