"""Asking a language model one thing, in bounded time, where its failure must not stop the work around it."""

import asyncio
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeGuard, TypeVar

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM

from knowledge_lookup.agents.extractive_llm import ExtractiveLLM
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

Answer = TypeVar("Answer")

DEFAULT_TIMEOUT_SECONDS = 120.0
"""How long one answer of a language model may take where the settings don't say."""


class LanguageModelError(KnowledgeLookupError):
    """The language model did not answer."""


class LanguageModelTimeoutError(LanguageModelError):
    """The language model did not answer in time; another question would wait as long.

    :param seconds: The time that it had.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the language model gave no answer within {seconds:g} s: check that the endpoint at llm.base-url is up, "
            "or allow a slow model more by llm.timeout-seconds"
        )
        self.seconds = seconds


async def answer_in_time(answer: Awaitable[Answer], *, seconds: float) -> Answer:
    """Await an answer of a language model for a bounded time, which the client's own retries are part of.

    A model that blocks the event loop can't be left; a client of an endpoint doesn't.

    :param answer: The call.
    :param seconds: Most seconds to wait, above 0.
    :returns: The answer.
    :raises LanguageModelTimeoutError: If it takes longer; the call is cancelled.
    :raises LanguageModelError: If the call fails.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await answer
    except Exception as error:
        if limit.expired():
            raise LanguageModelTimeoutError(seconds) from error
        raise LanguageModelError(
            f"the language model failed ({one_line(error)}): check llm.base-url, llm.model and llm.api-key"
        ) from error


class BoundedChat:
    """Asks one question at a time, each for a bounded time.

    The call runs in a thread of its own, because a time-out of the client bounds one attempt and not its retries: a
    client of an OpenAI-compatible endpoint makes several attempts of that time. A call that takes too long is left
    to itself; its thread ends with the client's own limits, or with the process.

    After three failures in a row the model is not asked for a minute, so that a thousand documents don't wait for an
    endpoint that is down a thousand times.

    :param llm: A language model.
    :param seconds: Most seconds to wait for an answer, above 0.
    """

    MOST_FAILURES = 3
    PAUSE_SECONDS = 60.0

    def __init__(self, llm: LLM, *, seconds: float) -> None:
        self._llm = llm
        self._seconds = seconds
        self._lock = threading.Lock()
        self._failures = 0
        self._paused_until = 0.0

    def ask(self, instructions: str, material: str) -> str:
        """Ask the model.

        :param instructions: The system message.
        :param material: The user's message.
        :returns: The answer, never empty.
        :raises LanguageModelError: If the model fails, takes too long, says nothing, or isn't asked after failures.
        """
        self._refuse_while_paused()
        try:
            answer = self._chat_in_time(instructions, material)
        except Exception as error:
            self._count_failure()
            reason = f"no answer within {self._seconds:g} s" if isinstance(error, TimeoutError) else one_line(error)
            raise LanguageModelError(f"the language model failed ({reason})") from error
        with self._lock:
            self._failures = 0
        if not answer.strip():
            raise LanguageModelError("the language model's answer is empty")
        return answer

    def _chat_in_time(self, instructions: str, material: str) -> str:
        messages = [
            ChatMessage(role=MessageRole.SYSTEM, content=instructions),
            ChatMessage(role=MessageRole.USER, content=material),
        ]
        answer: Future[str] = Future()
        context = copy_context()

        def chat() -> None:
            try:
                answer.set_result(context.run(self._llm.chat, messages).message.content or "")
            except BaseException as error:
                answer.set_exception(error)

        # Not a thread pool's thread: the interpreter waits for those when it ends.
        threading.Thread(target=chat, name="language-model", daemon=True).start()
        return answer.result(self._seconds)

    def _refuse_while_paused(self) -> None:
        with self._lock:
            seconds_left = self._paused_until - time.monotonic()
        if seconds_left > 0:
            raise LanguageModelError(
                f"the language model failed {self.MOST_FAILURES} times in a row and is not asked for another "
                f"{seconds_left:.0f} s"
            )

    def _count_failure(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= self.MOST_FAILURES:
                self._paused_until = time.monotonic() + self.PAUSE_SECONDS


def is_language_model(llm: LLM | None) -> TypeGuard[LLM]:
    """Tell whether something can be asked to write text.

    :param llm: The LLM of the settings, if any.
    :returns: False for None and for the embedded extractive responder, which only quotes.
    """
    return llm is not None and not isinstance(llm, ExtractiveLLM)


def one_line(error: BaseException) -> str:
    """Say what an error is in one line.

    :param error: The error.
    :returns: Its class and message, at most 300 characters.
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
