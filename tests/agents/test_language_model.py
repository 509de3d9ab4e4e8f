"""Asking a language model in bounded time."""

import threading
import time

import pytest
from llama_index.core.llms import LLM, MockLLM

from knowledge_lookup.agents import ExtractiveLLM
from knowledge_lookup.agents.language_model import BoundedChat, LanguageModelError, is_language_model
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import OpenAIStub

REFUSED = 400  # the client doesn't try again


@pytest.fixture
def llm(openai_endpoint: OpenAIStub) -> LLM:
    return build_llm(LlmSettings(provider="openai-like", model="stub", base_url=openai_endpoint.base_url))


def test_instructions_and_material_are_separate_messages(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.append("the answer {x}")
    assert BoundedChat(llm, seconds=10).ask("do {this}", "with {{that}} {") == "the answer {x}"
    assert openai_endpoint.last_messages() == [
        {"role": "system", "content": "do {this}"},
        {"role": "user", "content": "with {{that}} {"},
    ]


def test_a_slow_model_is_not_waited_for(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.delay_seconds = 3
    started = time.monotonic()
    with pytest.raises(LanguageModelError, match=r"\(no answer within 0\.2 s\)$"):
        BoundedChat(llm, seconds=0.2).ask("do this", "with that")
    assert time.monotonic() - started < 1.5
    left = [thread for thread in threading.enumerate() if thread.name == "language-model"]
    assert left
    assert all(thread.daemon for thread in left)


def test_the_retries_of_the_client_are_within_the_time(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.append("the client is built")
    BoundedChat(llm, seconds=10).ask("do this", "with that")
    openai_endpoint.answer = lambda messages: 500
    started = time.monotonic()
    with pytest.raises(LanguageModelError, match="no answer within"):
        BoundedChat(llm, seconds=1.0).ask("do this", "with that")
    assert time.monotonic() - started < 2.5
    assert len(openai_endpoint.requests) > 2


def test_what_the_endpoint_says_is_the_reason_in_one_line(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.append(REFUSED)
    with pytest.raises(LanguageModelError, match=r"BadRequestError.*scripted failure") as failure:
        BoundedChat(llm, seconds=10).ask("do this", "with that")
    assert "\n" not in str(failure.value)


def test_an_empty_answer_is_a_failure(llm: LLM, openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.replies.append("  \n")
    with pytest.raises(LanguageModelError, match="empty"):
        BoundedChat(llm, seconds=10).ask("do this", "with that")


def test_after_three_failures_in_a_row_the_model_has_a_rest(
    llm: LLM, openai_endpoint: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedChat, "PAUSE_SECONDS", 1.0)
    chat = BoundedChat(llm, seconds=10)
    openai_endpoint.replies.extend([REFUSED, REFUSED, "fine", REFUSED, REFUSED, REFUSED, "fine again"])
    outcomes = []
    for _ in range(9):
        try:
            outcomes.append(chat.ask("do this", "with that"))
        except LanguageModelError as error:
            outcomes.append("not asked" if "is not asked" in str(error) else "failed")
    assert outcomes == [*["failed"] * 2, "fine", *["failed"] * 3, *["not asked"] * 3]
    assert len(openai_endpoint.requests) == 6
    time.sleep(1.1)
    assert chat.ask("do this", "with that") == "fine again"


def test_only_what_writes_text_is_a_language_model() -> None:
    assert is_language_model(MockLLM())
    assert not is_language_model(ExtractiveLLM())
    assert not is_language_model(None)
