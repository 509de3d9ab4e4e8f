"""The language models that settings can name: the embedded responder and an endpoint."""

import asyncio
import sys
from importlib.metadata import metadata

import pytest
from llama_index.core.llms import ChatMessage

from knowledge_lookup.agents.extractive_llm import ExtractiveLLM
from knowledge_lookup.pipeline.errors import ConfigurationError, MissingExtraError
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import OpenAIStub

QUESTION = [ChatMessage(role="user", content="ERR_TIMEOUT 怎么处理")]


def endpoint_settings(base_url: str) -> LlmSettings:
    return LlmSettings(provider="openai-like", model="some-model", base_url=base_url)


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_the_embedded_responder_is_the_default_and_speaks_the_language_of_the_settings(locale: str) -> None:
    llm = build_llm(LlmSettings(), locale=locale)  # type: ignore[arg-type]
    assert isinstance(llm, ExtractiveLLM)
    assert llm.locale == locale


async def test_an_endpoint_answers_sync_async_and_in_pieces(openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.answer = lambda messages: f"回答：{messages[-1]['content']}"
    llm = build_llm(endpoint_settings(openai_endpoint.base_url))
    expected = "回答：ERR_TIMEOUT 怎么处理"
    assert llm.chat(QUESTION).message.content == expected
    assert (await llm.achat(QUESTION)).message.content == expected
    pieces = [piece.delta async for piece in await llm.astream_chat(QUESTION)]
    assert "".join(piece or "" for piece in pieces) == expected
    assert len(pieces) >= 2
    assert {request["model"] for request in openai_endpoint.requests} == {"some-model"}
    assert all("tools" not in request for request in openai_endpoint.requests)


def test_an_endpoint_answers_in_one_event_loop_after_another(openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.answer = lambda messages: "好"
    llm = build_llm(endpoint_settings(openai_endpoint.base_url))
    assert [asyncio.run(llm.achat(QUESTION)).message.content for _ in range(3)] == ["好"] * 3


def test_an_endpoint_is_taken_for_a_chat_model_with_room_for_results(openai_endpoint: OpenAIStub) -> None:
    described = build_llm(endpoint_settings(openai_endpoint.base_url)).metadata
    assert described.is_chat_model
    assert not described.is_function_calling_model
    assert described.context_window >= 16_000


@pytest.mark.parametrize("missing", ["model", "base_url"])
def test_an_endpoint_needs_its_address_and_model(missing: str) -> None:
    settings = endpoint_settings("http://localhost:8000/v1").model_copy(update={missing: None})
    with pytest.raises(ConfigurationError, match=r"^llm\.provider openai-like needs llm\.base-url .* and llm\.model$"):
        build_llm(settings)


def test_a_missing_package_is_answered_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_index.llms.openai_like", None)
    with pytest.raises(MissingExtraError) as caught:
        build_llm(endpoint_settings("http://localhost:8000/v1"))
    said = str(caught.value)
    assert said.startswith("llm.provider: openai-like needs ")
    assert "llama-index-llms-openai-like" in said
    assert said.endswith('`pip install "knowledge-lookup[openai]"`')
    assert "openai" in (metadata("knowledge-lookup").get_all("Provides-Extra") or [])
