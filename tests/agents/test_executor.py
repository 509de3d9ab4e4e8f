"""FS-5: the prompt, and the executor in LlamaIndex's real ReAct loop."""

import json

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.agent.react.prompts import REACT_CHAT_SYSTEM_HEADER
from llama_index.core.agent.workflow import ToolCallResult
from llama_index.core.llms import LLM
from llama_index.core.memory import ChatMemoryBuffer

from knowledge_lookup.agents import ExtractiveLLM, build_executor
from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import OpenAIStub

QUESTION = "支付网关返回 ERR_TIMEOUT，怎么排查？"
LOOKUP = 'Thought: look it up\nAction: lookup_knowledge\nAction Input: {"query": "ERR_TIMEOUT"}'
ANSWER = "Thought: done\nAnswer: 先查单。来源：knowledge_base/api/payment-errors.md"


@pytest.fixture
def llm(openai_endpoint: OpenAIStub) -> LLM:
    settings = LlmSettings(provider="openai-like", model="stub", base_url=openai_endpoint.base_url)
    return build_llm(settings)


def test_the_prompt_holds_the_four_constraints() -> None:
    prompt = executor_prompt("zh")
    assert "retrievedDomainsThisSession" in prompt
    assert "禁止换关键词重新检索" in prompt
    assert "不查全不会被追责，重复检索才会被惩罚" in prompt
    assert "relevanceLevel" in prompt
    assert "completenessHint" in prompt


def test_the_prompt_says_what_to_do_for_each_level() -> None:
    for locale in ("zh", "en"):
        for outcome in ("PRECISE", "HIGHLY_RELEVANT", "REFERENCE", "found"):
            assert f"- `{outcome}`" in executor_prompt(locale)  # type: ignore[arg-type]


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_the_system_message_is_ours_and_nothing_of_the_stock_header_or_the_old_rule_is_left(
    bundle: KnowledgePipeline, locale: str
) -> None:
    executor = build_executor([bundle.lookup_tool()], ExtractiveLLM(), locale=locale)  # type: ignore[arg-type]
    system = executor.formatter.format(list(executor.tools or []), chat_history=[])[0].content or ""
    assert "lookup_knowledge" in system
    assert '{"query": "ERR_TIMEOUT"}' in system
    assert "hello world" not in system
    assert REACT_CHAT_SYSTEM_HEADER[:60] not in system
    assert "所有需要外部信息的地方，都必须调用对应的工具" not in system
    for form in ("Thought:", "Action:", "Action Input:", "Observation:", "Answer:"):
        assert form in system


def test_no_knowledge_map_is_in_the_prompt(bundle: KnowledgePipeline) -> None:
    executor = bundle.executor()
    system = executor.formatter.format(list(executor.tools or []), chat_history=[])[0].content or ""
    assert "available_knowledge_domains" not in system
    for entry in bundle.keyword_index:
        assert entry.title not in system


async def test_the_embedded_responder_answers_after_one_look_up_with_the_source(bundle: KnowledgePipeline) -> None:
    handler = bundle.executor("s1").run(QUESTION)
    calls = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    answer = str(await handler)
    assert [json.loads(str(call.tool_output))["relevanceLevel"] for call in calls] == ["PRECISE"]
    assert "ERR_TIMEOUT" in answer
    assert "查单" in answer
    assert "来源：knowledge_base/api/payment-errors.md" in answer
    assert "不是语言模型" in answer


async def test_the_embedded_responder_says_when_nothing_is_found(bundle: KnowledgePipeline) -> None:
    answer = str(await bundle.executor().run("今天中午吃什么"))
    assert "知识库中没有找到与该查询相关的内容" in answer


async def test_a_question_about_what_the_conversation_has_already_is_answered_from_it(
    bundle: KnowledgePipeline,
) -> None:
    executor = bundle.executor("s1")
    memory = ChatMemoryBuffer.from_defaults(llm=executor.llm)
    first = str(await executor.run(QUESTION, memory=memory))
    second = str(await executor.run("ERR_TIMEOUT 的含义是什么", memory=memory))
    assert "来源：knowledge_base/api/payment-errors.md" in first
    assert "来源：knowledge_base/api/payment-errors.md" in second


async def test_a_question_beyond_the_knowledge_base_is_not_answered_from_an_earlier_document(
    bundle: KnowledgePipeline,
) -> None:
    executor = bundle.executor("s1")
    memory = ChatMemoryBuffer.from_defaults(llm=executor.llm)
    await executor.run(QUESTION, memory=memory)
    answer = str(await executor.run("今天中午吃什么", memory=memory))
    assert "知识库中没有找到与该查询相关的内容" in answer
    assert "来源" not in answer


async def test_a_look_up_that_fails_is_said_and_not_tried_again(bundle_settings: Settings) -> None:
    with KnowledgePipeline.from_settings(bundle_settings, embed_model=MockEmbedding(embed_dim=3)) as pipeline:
        handler = pipeline.executor("s1").run("今天中午吃什么")
        calls = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
        answer = str(await handler)
    assert len(calls) == 1
    assert "知识库检索失败，无法作答：collection 'knowledge_chunks'" in answer


async def test_without_semantic_search_the_answer_says_so_and_has_what_matches_exactly(
    bundle: KnowledgePipeline,
) -> None:
    milvus = bundle.settings.milvus.model_copy(update={"uri": "http://127.0.0.1:1", "timeout_seconds": 0.5})
    broken = bundle.settings.model_copy(update={"milvus": milvus})
    with KnowledgePipeline.from_settings(broken, embed_model=bundle.embed_model) as pipeline:
        answer = str(await pipeline.executor("s1").run("ERR_TIMEOUT E17"))
        assert "语义检索暂不可用" in answer
        assert "来源：knowledge_base/api/payment-errors.md" in answer
        answer = str(await pipeline.executor("s2").run("今天中午吃什么"))
        assert "语义检索暂不可用" in answer
        assert "没有找到" not in answer


async def test_the_llm_gets_the_prompt_the_question_and_the_observation(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.extend([LOOKUP, ANSWER])
    answer = str(await build_executor([bundle.lookup_tool("s1")], llm).run(QUESTION))
    assert answer == "先查单。来源：knowledge_base/api/payment-errors.md"
    first, second = (request["messages"] for request in openai_endpoint.requests)
    assert [message["role"] for message in first] == ["system", "user"]
    assert first[0]["content"].startswith("你是值班工程师的排障助手")
    assert second[-1]["content"].startswith('Observation: {"found":true,"primary":{')


async def test_an_answer_on_the_last_allowed_step_counts(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.extend([LOOKUP, ANSWER])
    executor = build_executor([bundle.lookup_tool("s1")], llm, max_iterations=2)
    assert str(await executor.run(QUESTION)) == "先查单。来源：knowledge_base/api/payment-errors.md"
    assert len(openai_endpoint.requests) == 2


async def test_at_the_limit_one_closing_call_with_all_observations_ends_the_run(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    other = LOOKUP.replace("ERR_TIMEOUT", "CROSSSLOT")
    openai_endpoint.replies.extend([LOOKUP, other, LOOKUP.replace("ERR_TIMEOUT", "Flyway"), ANSWER])
    executor = build_executor([bundle.lookup_tool("s1")], llm, max_iterations=3)
    answer = str(await executor.run("ERR_TIMEOUT、CROSSSLOT 和 Flyway 报错怎么排查？"))
    assert answer == "先查单。来源：knowledge_base/api/payment-errors.md"
    closing = openai_endpoint.last_messages()
    assert "不能再调用工具" in closing[-1]["content"]
    assert sum(message["content"].startswith("Observation: ") for message in closing) == 2
    assert "".join(message["content"] for message in closing).count('"relevanceLevel":"PRECISE"') == 2
    assert [message["role"] for message in closing] == ["system", "user", "assistant", "user", "assistant", "user"]


async def test_a_limit_named_for_the_run_wins(bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.extend([LOOKUP, ANSWER])
    answer = await build_executor([bundle.lookup_tool("s1")], llm).run(QUESTION, max_iterations=1)
    assert str(answer) == "先查单。来源：knowledge_base/api/payment-errors.md"
    assert "不能再调用工具" in openai_endpoint.last_messages()[-1]["content"]


async def test_a_model_that_never_answers_still_ends_the_run(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = lambda messages: LOOKUP
    answer = await build_executor([bundle.lookup_tool("s1")], llm).run(QUESTION)
    assert str(answer) == "在允许的步数内没有得出答案。\n检索到的内容来自：knowledge_base/api/payment-errors.md"
    assert len(openai_endpoint.requests) == 4  # the look-up, two repetitions that are not made, the closing call


async def test_a_second_question_in_the_same_conversation_has_all_its_steps(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.extend([LOOKUP, ANSWER, LOOKUP, ANSWER])
    executor = build_executor([bundle.lookup_tool("s1")], llm, max_iterations=2)
    memory = ChatMemoryBuffer.from_defaults(llm=executor.llm)
    await executor.run(QUESTION, memory=memory)
    assert str(await executor.run(QUESTION, memory=memory)) == "先查单。来源：knowledge_base/api/payment-errors.md"
    history = "".join(message["content"] for message in openai_endpoint.last_messages())
    assert history.count(QUESTION) == 2


async def test_braces_in_question_and_documents_do_not_break_the_prompt(
    bundle: KnowledgePipeline, llm: LLM, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.replies.extend([LOOKUP, "Thought: {x}\nAnswer: {tool_desc} {{ jinja }}"])
    answer = await build_executor([bundle.lookup_tool("s1")], llm).run("{tool_names} {{ x }} ERR_TIMEOUT")
    assert str(answer) == "{tool_desc} {{ jinja }}"
