"""The look-up as a LlamaIndex tool: schema, JSON for the LLM, and where the session comes from."""

import asyncio
import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike

from knowledge_lookup.agents import ExtractiveLLM, LookupResult, session_context
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.servers.openai_stub import OpenAIStub


@pytest.fixture
def tool(bundle: KnowledgePipeline) -> FunctionTool:
    return bundle.lookup_tool()


def test_the_llm_sees_the_generated_schema(tool: FunctionTool) -> None:
    assert tool.metadata.name == "lookup_knowledge"
    assert tool.metadata.description == (
        "查询知识库文档。优先精确匹配关键词，未命中或多个匹配时自动补充语义相关片段。"
        "参数 query: 查询关键词，例如 'ERR_TIMEOUT'、'支付网关超时'"
    )
    assert tool.metadata.get_parameters_dict() == {
        "type": "object",
        "properties": {
            "query": {
                "title": "Query",
                "type": "string",
                "description": (
                    "查询关键词或问题，错误码等保留原文 (keywords or a question; keep codes and names as they are)"
                ),
            },
            "section_title": {
                "title": "Section Title",
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "default": None,
                "description": (
                    "一般省略；取 availableSections 中的章节时填 (usually left out; one of availableSections)"
                ),
            },
        },
        "required": ["query"],
    }


def test_search_doc_has_a_schema_of_its_own(bundle: KnowledgePipeline) -> None:
    tool = bundle.search_doc_tool()
    assert tool.metadata.name == "search_doc"
    assert list(tool.metadata.get_parameters_dict()["properties"]) == ["query"]
    assert "lookup_knowledge" in str(tool.metadata.description)


def test_the_llm_sees_compact_camel_case_json_without_any_score(tool: FunctionTool) -> None:
    output = tool.call(query="ERR_TIMEOUT")
    seen = json.loads(str(output))
    assert list(seen) == [
        "found",
        "primary",
        "relevanceLevel",
        "completenessHint",
        "retrievedDomainsThisSession",
        "availableSections",
    ]
    assert list(seen["primary"]) == ["content", "source", "matchType", "confidence"]
    assert "\n" not in str(output)
    assert not [key for key in _keys(seen) if "score" in key.lower() or "similarity" in key.lower()]


def test_the_object_itself_is_the_raw_output(tool: FunctionTool) -> None:
    assert isinstance(tool.call(query="ERR_TIMEOUT").raw_output, LookupResult)


def test_supplement_and_alternatives_have_exactly_their_fields(tool: FunctionTool) -> None:
    seen = json.loads(str(tool.call(query="HTTP 429、CROSSSLOT、Flyway 和 HikariCP 的区别")))
    assert list(seen["supplement"]) == ["content", "source", "matchType"]
    assert seen["supplement"]["matchType"] == "semantic_L1"
    assert all(list(other) == ["title", "source"] for other in seen.get("alternatives", []))


async def test_sync_and_async_calls_outside_a_workflow_agree(tool: FunctionTool) -> None:
    assert str(await tool.acall(query="ERR_TIMEOUT")) == str(tool.call(query="ERR_TIMEOUT"))


def test_a_bound_session_applies(bundle: KnowledgePipeline) -> None:
    tool = bundle.lookup_tool("s1")
    assert _found(tool.call(query="ERR_TIMEOUT")) is True
    assert _found(tool.call(query="ERR_TIMEOUT")) is False
    assert bundle.memory.get_retrieved_domains("s1") == ["api"]


async def test_the_session_of_the_context_variable_applies_and_is_cleared(
    bundle: KnowledgePipeline, tool: FunctionTool
) -> None:
    with session_context("s1"):
        assert _found(await tool.acall(query="ERR_TIMEOUT")) is True
        assert _found(tool.call(query="ERR_TIMEOUT")) is False
    assert bundle.memory.get_retrieved_domains("s1") == []


async def test_the_session_named_in_the_workflow_context_applies(bundle: KnowledgePipeline, tool: FunctionTool) -> None:
    agent = ReActAgent(tools=[tool], llm=ExtractiveLLM())
    context: Context[Any] = Context(agent)
    await context.store.set("session_id", "from-context")
    await agent.run("ERR_TIMEOUT 怎么处理", ctx=context)
    assert bundle.memory.get_retrieved_domains("from-context") == ["api"]


async def test_binding_wins_over_workflow_context_and_context_over_variable(bundle: KnowledgePipeline) -> None:
    agent = ReActAgent(tools=[bundle.lookup_tool()], llm=ExtractiveLLM())
    context: Context[Any] = Context(agent)
    await context.store.set("session_id", "from-context")
    with session_context("from-variable"):
        await agent.run("ERR_TIMEOUT 怎么处理", ctx=context)
        assert bundle.memory.get_retrieved_domains("from-variable") == []
    assert bundle.memory.get_retrieved_domains("from-context") == ["api"]

    bound = ReActAgent(tools=[bundle.lookup_tool("bound")], llm=ExtractiveLLM())
    bound_context: Context[Any] = Context(bound)
    await bound_context.store.set("session_id", "other")
    await bound.run("Flyway 怎么处理", ctx=bound_context)
    assert bundle.memory.get_retrieved_domains("bound") == ["infrastructure"]
    assert bundle.memory.get_retrieved_domains("other") == []


async def test_the_tool_runs_in_an_agent_workflow_with_two_agents(
    bundle: KnowledgePipeline, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.extend(
        [
            'Thought: ask the expert\nAction: handoff\nAction Input: {"to_agent": "expert", "reason": "error code"}',
            'Thought: look it up\nAction: lookup_knowledge\nAction Input: {"query": "ERR_TIMEOUT"}',
            "Thought: I have it\nAnswer: 先查单，不要重发。来源：knowledge_base/api/payment-errors.md",
        ]
    )
    llm = OpenAILike(model="stub", api_base=openai_endpoint.base_url, api_key="none", is_chat_model=True)
    triage = ReActAgent(name="triage", description="Takes questions.", llm=llm, can_handoff_to=["expert"])
    expert = ReActAgent(name="expert", description="Knows the errors.", llm=llm, tools=[bundle.lookup_tool("s1")])
    workflow = AgentWorkflow(agents=[triage, expert], root_agent="triage")
    answer = await workflow.run("ERR_TIMEOUT 怎么处理？")
    assert "先查单" in str(answer)
    observation = openai_endpoint.last_messages()[-1]["content"]
    assert '"relevanceLevel":"PRECISE"' in observation
    assert bundle.memory.get_retrieved_domains("s1") == ["api"]


async def test_sessions_in_tasks_at_once_keep_apart(bundle: KnowledgePipeline, tool: FunctionTool) -> None:
    async def ask(session_id: str) -> list[bool]:
        with session_context(session_id):
            return [_found(await tool.acall(query="ERR_TIMEOUT")) for _ in range(2)]

    assert await asyncio.gather(*(ask(f"s{n}") for n in range(8))) == [[True, False]] * 8


def _found(output: object) -> bool:
    return bool(json.loads(str(output))["found"])


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in _keys(inner))]
    if isinstance(value, list):
        return [key for inner in value for key in _keys(inner)]
    return []
