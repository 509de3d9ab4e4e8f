"""What real models put out instead of well-formed ReAct is taken as it is meant, in LlamaIndex's real loop."""

import asyncio
import json
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.agent.workflow import AgentStream, ToolCallResult
from llama_index.core.tools import FunctionTool

from knowledge_lookup.agents import build_executor
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.scripted_agent import ANSWER, ANSWERED, CALL, NO_ANSWER, QUESTION, SOURCE, Agent
from tests.servers.openai_stub import OpenAIStub

THOUGHT = "Thought: look it up\n"
ACTION = f"{THOUGHT}Action: lookup_knowledge\n"


@pytest.fixture
def agent(bundle: KnowledgePipeline, openai_endpoint: OpenAIStub) -> Agent:
    return Agent(bundle, openai_endpoint)


MEANT_AS_CALLS = {
    "as Python dict": ACTION + "Action Input: {'query': 'ERR_TIMEOUT'}",
    "Python dict with a comment": ACTION + "Action Input: {'query': 'ERR_TIMEOUT',}  # 查询",
    "text after the input": ACTION + 'Action Input: {"query": "ERR_TIMEOUT"}\n\nI will wait for {the} result.',
    "made-up observation and answer": ACTION
    + 'Action Input: {"query": "ERR_TIMEOUT"}\nObservation: {"found": true}\nThought: good\nAnswer: 重启即可。',
    "made-up observation on the same line": ACTION
    + 'Action Input: {"query": "ERR_TIMEOUT"} Observation: {"query": "Redis"}',
    "input in a fence": ACTION + 'Action Input:\n```json\n{"query": "ERR_TIMEOUT"}\n```',
    "braces after the input": ACTION + 'Action Input: {"query": "ERR_TIMEOUT"}，然后看{结果}',
    "input in a fence on the label's line": ACTION + 'Action Input: ```{"query": "ERR_TIMEOUT"}```',
    "all in a fence": f"```\n{CALL}\n```",
    "all in a fence, with a made-up answer behind it": f"```text\n{CALL}\n```\n\nAnswer: 重启即可。",
    "full-width colons": 'Thought：查\nAction：lookup_knowledge\nAction Input：{"query"："ERR_TIMEOUT"}',
    "full-width colons and quotes": "Thought：查\nAction：lookup_knowledge\nAction Input：{“query”：“ERR_TIMEOUT”}",
    "name in another case": CALL.replace("lookup_knowledge", "Lookup_Knowledge"),
    "name in camel case": CALL.replace("lookup_knowledge", "LookupKnowledge"),
    "name with a space": CALL.replace("lookup_knowledge", "lookup knowledge"),
    "name in backticks": CALL.replace("lookup_knowledge", "`lookup_knowledge`"),
    "name in quotes": CALL.replace("lookup_knowledge", '"lookup_knowledge"'),
    "name in parentheses": CALL.replace("lookup_knowledge", "(lookup_knowledge)"),
    "name with empty parentheses": CALL.replace("lookup_knowledge", "lookup_knowledge()"),
    "name in bold": CALL.replace("Action: lookup_knowledge", "**Action:** **lookup_knowledge**"),
    "name in a sentence": CALL.replace("lookup_knowledge", "调用 lookup_knowledge 工具"),
    "call as code": THOUGHT + 'Action: lookup_knowledge(query="ERR_TIMEOUT")',
    "call as code with a bare text": THOUGHT + "Action: lookup_knowledge('ERR_TIMEOUT')",
    "two actions": f'{CALL}\nAction: lookup_knowledge\nAction Input: {{"query": "Redis"}}',
    "two rounds": f'{CALL}\n\nThought: more\nAction: lookup_knowledge\nAction Input: {{"query": "Redis"}}',
    "two inputs": CALL + '\nAction Input: {"query": "Redis"}',
    "two objects": CALL + '\n{"query": "Redis"}',
    "all on one line": CALL.replace("\n", " "),
    "labels in lower case": CALL.replace("Action Input", "action_input").replace("Action:", "action:"),
    "no thought": CALL.removeprefix(THOUGHT),
    "no label before the input": f'{ACTION}{{"query": "ERR_TIMEOUT"}}',
    "no action label": THOUGHT + 'Action Input: {"query": "ERR_TIMEOUT"}',
    "a bare text": ACTION + "Action Input: ERR_TIMEOUT",
    "a bare text in quotes": ACTION + 'Action Input: "ERR_TIMEOUT"',
    "a bare text and more": ACTION + "Action Input: ERR_TIMEOUT\n\n然后等待结果。",
    "a key without braces": ACTION + "Action Input: query: ERR_TIMEOUT",
    "a key without quotes": ACTION + "Action Input: {query: ERR_TIMEOUT}",
    "another key": ACTION + 'Action Input: {"input": "ERR_TIMEOUT"}',
    "yet another key": ACTION + 'Action Input: {"keyword": "ERR_TIMEOUT", "top_k": 3}',
    "several other keys": ACTION + 'Action Input: {"category": "api", "keyword": "ERR_TIMEOUT"}',
    "a list": ACTION + 'Action Input: {"query": ["ERR_TIMEOUT"]}',
    "nested arguments": ACTION + 'Action Input: {"arguments": {"query": "ERR_TIMEOUT"}}',
    "arguments that the tool lacks": ACTION + 'Action Input: {"query": "ERR_TIMEOUT", "top_k": 3, "ctx": null}',
    "JSON in a string": ACTION + f"Action Input: {json.dumps(json.dumps({'query': 'ERR_TIMEOUT'}))}",
    "JSON that stops": ACTION + 'Action Input: {"query": "ERR_TIMEOUT"',
    "JSON with a missing quote": ACTION + 'Action Input: {"query": "ERR_TIMEOUT}',
    "reasoning before it": f"<think>\nAction: none\nAnswer: draft\n</think>\n{CALL}",
    "reasoning whose start is in the prompt": f"I had better search.\n</think>\n\n{CALL}",
    "reasoning that never ends": f"<think>\nI had better search.\n{CALL}",
    "a function call": '<tool_call>\n{"name": "lookup_knowledge", "arguments": {"query": "ERR_TIMEOUT"}}\n</tool_call>',
    "a JSON action": '{"thought": "查", "action": "lookup_knowledge", "action_input": {"query": "ERR_TIMEOUT"}}',
    "the arguments alone": '```json\n{"query": "ERR_TIMEOUT"}\n```',
    "code alone": 'lookup_knowledge(query="ERR_TIMEOUT")',
    "a copied answer, then the call": f"Thought: x\nAnswer: 完整的答案\n{CALL}",
    "Windows line ends": CALL.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("output", MEANT_AS_CALLS.values(), ids=MEANT_AS_CALLS.keys())
async def test_what_is_meant_as_a_call_is_made_once_and_shown_in_the_right_form(agent: Agent, output: str) -> None:
    run = await agent.run(output, ANSWER)
    assert run.answer == ANSWERED
    assert [call.tool_kwargs for call in run.calls] == [{"query": "ERR_TIMEOUT"}]
    first, second = run.requests
    shown = second[len(first)]["content"].split("\n")
    assert shown[0].startswith("Thought: ")
    assert shown[1:] == ["Action: lookup_knowledge", 'Action Input: {"query": "ERR_TIMEOUT"}']
    assert second[-1]["content"].startswith('Observation: {"found":true,')


@pytest.mark.parametrize("output", MEANT_AS_CALLS.values(), ids=MEANT_AS_CALLS.keys())
async def test_a_model_that_goes_on_writing_the_same_call_gets_one_look_up_and_an_honest_end(
    agent: Agent, output: str
) -> None:
    run = await agent.run(output)
    assert run.answer == f"{NO_ANSWER}\n检索到的内容来自：{SOURCE}"
    assert run.queries == ["ERR_TIMEOUT"]
    assert len(run.requests) == 4


MEANT_AS_ANSWERS = {
    "plain text": ANSWERED,
    "plain text in a fence": f"```\n{ANSWERED}\n```",
    "a thought, then text": f"Thought: 已有结果。\n\n{ANSWERED}",
    "a thought with a full-width colon, then text": f"Thought：已有结果。\n{ANSWERED}",
    "full-width colons": f"Thought：已有结果\nAnswer：{ANSWERED}",
    "no thought": f"Answer: {ANSWERED}",
    "another case": f"thought: x\nanswer: {ANSWERED}",
    "bold": f"**Thought:** x\n**Answer:** {ANSWERED}",
    "final answer": f"Thought: x\nFinal Answer: {ANSWERED}",
    "all on one line": f"Thought: 已有结果。Answer: {ANSWERED}",
    "all in a fence": f"```\nThought: x\nAnswer: {ANSWERED}\n```",
    "no action": f"Thought: x\nAction: None\nAction Input: None\nAnswer: {ANSWERED}",
    "no action in Chinese": f"Thought: x\nAction: 无需检索，直接作答\nAnswer: {ANSWERED}",
    "answering as an action": f"Thought: x\nAction: Final Answer\nAction Input: {ANSWERED}",
    "answering as an action in JSON": f'Thought: x\nAction: finish\nAction Input: {{"answer": "{ANSWERED}"}}',
    "JSON": json.dumps({"thought": "x", "answer": ANSWERED}, ensure_ascii=False),
    "another round after it": f"{ANSWER}\n\n{CALL}\nObservation: x",
    "a call after it": f"{ANSWER}\n{CALL.removeprefix(THOUGHT)}",
    "a copied answer first": f"Thought: x\nAnswer: 完整的答案\n\nAnswer: {ANSWERED}",
    "reasoning before it": f"<think>Answer: draft</think>{ANSWER}",
}


@pytest.mark.parametrize("output", MEANT_AS_ANSWERS.values(), ids=MEANT_AS_ANSWERS.keys())
async def test_what_is_meant_as_an_answer_ends_the_run(agent: Agent, output: str) -> None:
    run = await agent.run(CALL, output)
    assert run.answer == ANSWERED
    assert len(run.requests) == 2


@pytest.mark.parametrize(
    "text",
    [
        'The label "Answer:" begins an answer.\nAnswer: is how it looks.',
        "步骤：\nAction: 重启网关\nObservation: 日志恢复正常",
        "```\nThe log.\n```",
        "以 Action: 开头的行",
    ],
)
async def test_labels_and_fences_within_an_answer_stay(agent: Agent, text: str) -> None:
    run = await agent.run(CALL, f"Thought: x\nAnswer: {text}")
    assert run.answer == text


async def test_labels_within_an_answer_that_has_no_label_stay(agent: Agent) -> None:
    text = "排查步骤：\nAction: 重启网关\nObservation: 日志恢复正常"
    assert (await agent.run(CALL, text)).answer == text


async def test_several_tools_are_told_apart_and_get_their_own_arguments(agent: Agent) -> None:
    asked: list[tuple[str, int]] = []

    def count_rows(table: str, limit: int = 10) -> str:
        """Count rows."""
        asked.append((table, limit))
        return f"{table}: {limit}"

    tools = [agent.bundle.lookup_tool(), FunctionTool.from_defaults(count_rows)]
    executor = build_executor(tools, agent.llm)
    run = await agent.run(
        "Thought: x\nAction: `Count-Rows`\nAction Input: {'Table': 'orders', 'limit': 5, 'verbose': True} and go",
        "Thought: x\nAction: count_rows\nAction Input: {}",
        "Thought: x\nAction: delete_rows\nAction Input: {}",
        "Thought: x\nAction: count_rows\nAction Input: orders",
        ANSWER,
        executor=executor,
    )
    assert asked == [("orders", 5), ("orders", 10)]
    assert run.answer == ANSWERED
    assert "Action Input 缺少参数 table。" in run.requests[2][-1]["content"]
    assert "Action: count_rows\n" in run.requests[2][-1]["content"]
    assert "可用的工具：lookup_knowledge、count_rows。" in run.requests[3][-1]["content"]


@pytest.mark.parametrize("streaming", [True, False])
async def test_runs_are_repaired_with_and_without_streaming(agent: Agent, streaming: bool) -> None:
    executor = agent.executor()
    executor.streaming = streaming
    replies = ["", MEANT_AS_CALLS["as Python dict"], f"Answer：{ANSWERED}"]
    agent.endpoint.replies.extend(replies)
    handler = executor.run(QUESTION)
    events = [event async for event in handler.stream_events()]
    assert str(await handler) == ANSWERED
    assert sum(isinstance(event, ToolCallResult) for event in events) == 1
    streamed = "".join(event.delta for event in events if isinstance(event, AgentStream))
    assert streamed == ("".join(replies) if streaming else "")
    assert all(bool(request.get("stream")) is streaming for request in agent.endpoint.requests)


PIECES = st.sampled_from(
    [
        *"\n :：{}[]()'\"`“”，\\",
        "Thought:",
        "Action:",
        "Action Input：",
        "Answer:",
        "Observation:",
        "lookup_knowledge",
        '{"query": "ERR_TIMEOUT"}',
        "{'query': 'x'",
        '"query"',
        "```json\n",
        "<think>",
        "</think>",
        "<tool_call>",
        "None",
        "完整的答案",
        "\\ud83d",
        "\ud83d",
        "\0",
        "{tool_names}",
    ]
)
OUTPUTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12).map("".join)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outputs=st.lists(OUTPUTS, min_size=1, max_size=4))
def test_a_run_ends_in_an_answer_within_its_limit_whatever_the_model_puts_out(agent: Agent, outputs: list[str]) -> None:
    said = len(agent.endpoint.requests)
    turns = cycle(outputs)
    agent.endpoint.answer = lambda messages: next(turns)

    async def answer() -> str:
        return str(await agent.executor(max_iterations=5).run(QUESTION))

    assert asyncio.run(answer()).strip()
    assert len(agent.endpoint.requests) - said <= 6
