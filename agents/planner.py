"""The planner: splits a question into steps for the executor, knowing the map of the knowledge base."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM

from knowledge_lookup.agents.json_answer import read_json_answer, text_of
from knowledge_lookup.agents.language_model import (
    DEFAULT_TIMEOUT_SECONDS,
    BoundedChat,
    LanguageModelError,
    answer_in_time,
    is_language_model,
)
from knowledge_lookup.agents.prompts import read_prompt
from knowledge_lookup.postprocessors.completeness_hints import Locale

_LOGGER = logging.getLogger(__name__)

MAX_STEPS = 6
"""Steps beyond these are not carried out; the prompt names the same number."""

_INSTRUCTION_CHARACTERS = 1_000
_DOMAIN_ID_CHARACTERS = 255
_NO_DOMAIN = {"", "null", "none"}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan.

    :param instruction: What the executor is told to do.
    :param domain_id: The domain that the step searches; None where the planner named none.
    """

    instruction: str
    domain_id: str | None = None


class Planner:
    """Asks the language model for a plan, and falls back to one step: the question itself.

    :param llm: The language model; None and the embedded extractive responder are not asked.
    :param system_prompt: What the model is told before the question.
    :param timeout_seconds: How long the model may take, the client's retries included; seconds, above 0.
    """

    def __init__(
        self, llm: LLM | None, *, system_prompt: str, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> None:
        self._llm = llm if is_language_model(llm) else None
        self._seconds = timeout_seconds
        self.system_prompt = system_prompt

    def plan(self, question: str, *, retrieved_domains: Sequence[str] = ()) -> tuple[PlanStep, ...]:
        """Plan for a question.

        :param question: The user's question.
        :param retrieved_domains: Domains that this session has searched already, for the model to know.
        :returns: At least one step and at most 6, each domain in one of them at most. A model that fails or gives no
            usable plan is logged, and the one step is the question.
        """
        if self._llm is None:
            return (PlanStep(question),)
        try:
            answer = BoundedChat(self._llm, seconds=self._seconds).ask(
                self.system_prompt, _asked(question, retrieved_domains)
            )
        except LanguageModelError as error:
            return _unplanned(question, str(error))
        return _steps_of(answer, question)

    async def aplan(self, question: str, *, retrieved_domains: Sequence[str] = ()) -> tuple[PlanStep, ...]:
        """Plan for a question without blocking the event loop; see :meth:`plan`.

        :param question: The user's question.
        :param retrieved_domains: Domains that this session has searched already.
        :returns: The steps.
        """
        if self._llm is None:
            return (PlanStep(question),)
        messages = [
            ChatMessage(role=MessageRole.SYSTEM, content=self.system_prompt),
            ChatMessage(role=MessageRole.USER, content=_asked(question, retrieved_domains)),
        ]
        try:
            response = await answer_in_time(self._llm.achat(messages), seconds=self._seconds)
        except LanguageModelError as error:
            return _unplanned(question, str(error))
        return _steps_of(response.message.content or "", question)


def build_planner(
    llm: LLM | None,
    knowledge_map: str = "",
    *,
    locale: Locale = "zh",
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Planner:
    """Build the planner.

    ::

        planner = build_planner(llm, pipeline.knowledge_map())
        steps = planner.plan("ERR_TIMEOUT 和 Redis 的超时有什么区别？")

    :param llm: Any LlamaIndex LLM; with None or the embedded extractive responder every plan is the question itself.
    :param knowledge_map: The domains of the knowledge base as YAML. It becomes the block
        ``available_knowledge_domains`` at the end of the system prompt; without a map there are neither that block
        nor the rules about it.
    :param locale: Language of the prompt.
    :param timeout_seconds: How long the model may take for a plan, the client's retries included; seconds, above 0.
    :returns: The planner.
    """
    prompt = read_prompt("chat-planner-prompt", locale)
    if knowledge_map.strip():
        prompt = f"{prompt}\n{read_prompt('chat-planner-domains', locale)}\n{knowledge_map.strip()}\n"
    return Planner(llm, system_prompt=prompt, timeout_seconds=timeout_seconds)


def _asked(question: str, retrieved_domains: Sequence[str]) -> str:
    searched = f"\n\nretrieved_domains: {', '.join(retrieved_domains)}" if retrieved_domains else ""
    return question + searched


def _steps_of(answer: str, question: str) -> tuple[PlanStep, ...]:
    values = read_json_answer(answer, keys=("steps",)) or {}
    items = values.get("steps")
    steps = _each_domain_once(step for step in map(_step_of, items if isinstance(items, list) else [items]) if step)
    if not steps:
        return _unplanned(question, "the answer holds no steps")
    if len(steps) > MAX_STEPS:
        _LOGGER.warning("the plan has %d steps, the first %d are carried out", len(steps), MAX_STEPS)
    return tuple(steps[:MAX_STEPS])


def _step_of(item: Any) -> PlanStep | None:
    if not isinstance(item, dict):
        instruction = text_of(item, limit=_INSTRUCTION_CHARACTERS)
        return PlanStep(instruction) if instruction else None
    instruction = text_of(item.get("instruction"), limit=_INSTRUCTION_CHARACTERS)
    domain_id = text_of(item.get("domain_id"), limit=_DOMAIN_ID_CHARACTERS)
    if not instruction:
        return None
    return PlanStep(instruction, None if domain_id.lower() in _NO_DOMAIN else domain_id)


def _each_domain_once(steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Join steps that search the same domain: what they ask for stays, the domain is searched once."""
    kept: list[PlanStep] = []
    places: dict[str, int] = {}
    for step in steps:
        if step.domain_id is None or step.domain_id not in places:
            if step.domain_id is not None:
                places[step.domain_id] = len(kept)
            kept.append(step)
        else:
            place = places[step.domain_id]
            kept[place] = replace(kept[place], instruction=f"{kept[place].instruction}\n{step.instruction}")
    return kept


def _unplanned(question: str, reason: str) -> tuple[PlanStep, ...]:
    _LOGGER.warning("no plan, the question is the only step: %s", " ".join(reason.split())[:300])
    return (PlanStep(question),)
