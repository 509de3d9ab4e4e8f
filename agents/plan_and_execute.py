"""Plan and execute: a plan is made, the executor carries out its steps in one session, and an answer is composed."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.agent.workflow import BaseWorkflowAgent, ToolCall, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from pydantic import Field

from knowledge_lookup.agents.executor import TIMED_OUT_KEY
from knowledge_lookup.agents.json_text import json_text
from knowledge_lookup.agents.language_model import (
    DEFAULT_TIMEOUT_SECONDS,
    LanguageModelError,
    LanguageModelTimeoutError,
    answer_in_time,
    is_language_model,
    one_line,
)
from knowledge_lookup.agents.planner import Planner, PlanStep
from knowledge_lookup.agents.prompts import read_prompt
from knowledge_lookup.postprocessors.completeness_hints import Locale

_LOGGER = logging.getLogger(__name__)

_FAILED: dict[Locale, str] = {"zh": "这一步没有完成：{reason}", "en": "This step failed: {reason}"}
_NOT_BEGUN: dict[Locale, str] = {
    "zh": "以下步骤没有执行，因为语言模型没有响应：",
    "en": "These steps were not carried out, because the language model does not respond:",
}


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of one step.

    :param step: The step.
    :param answer: The executor's answer; empty if it failed.
    :param error: Why it failed; None if it didn't.
    :param timed_out: Whether it ended because the language model did not answer in time.
    """

    step: PlanStep
    answer: str
    error: Exception | None = None
    timed_out: bool = False

    @property
    def reason(self) -> str:
        """Why it failed, in one line."""
        return one_line(self.error) if self.error is not None else ""


class QuestionAsked(StartEvent):
    """Starts a run.

    :param user_msg: The question.
    :param memory: The conversation with the executor so far; None begins one. Question and answer are added to it.
    :param retrieved_domains: Domains that the session has searched already; the planner is told.
    """

    user_msg: str
    memory: BaseMemory | None = None
    retrieved_domains: tuple[str, ...] = Field(default=())


class PlanReady(Event):
    """In the stream: the plan, before its first step is carried out.

    :param steps: The steps.
    """

    steps: tuple[PlanStep, ...]


class _StepDue(Event):
    question: str
    steps: tuple[PlanStep, ...]
    results: tuple[StepResult, ...]
    memory: BaseMemory


class _StepsDone(Event):
    question: str
    results: tuple[StepResult, ...]
    not_begun: tuple[PlanStep, ...]
    memory: BaseMemory


class PlanAndExecute(Workflow):
    """A LlamaIndex workflow that is run like the executor, and whose runs end in the text of an answer.

    ::

        flow = PlanAndExecute(build_planner(llm, knowledge_map), pipeline.executor("s1"), llm)
        handler = flow.run(user_msg="ERR_TIMEOUT 和 Redis 的超时有什么区别？")
        async for event in handler.stream_events():  # PlanReady, and the executor's ToolCall and ToolCallResult
            ...
        answer = str(await handler)

    All steps share one conversation, so that a step finds there what the session has been given before it. A step
    that fails is named in the answer; where all of them fail, the run fails with the first one's error. After a step
    in which the language model did not answer in time, the rest is not begun, and no answer is composed.

    :param planner: Makes the plan; only it knows the map of the knowledge base.
    :param executor: Carries out the steps; its tools are bound to the session.
    :param llm: Composes the answer; with None or the embedded extractive responder, or where the model fails, the
        answers of the steps are put one after the other.
    :param locale: Language of the prompt and of the words around a step that failed.
    :param timeout_seconds: How long the model may take for the answer, the client's retries included; seconds, above 0.
    """

    def __init__(
        self,
        planner: Planner,
        executor: BaseWorkflowAgent,
        llm: LLM | None,
        *,
        locale: Locale = "zh",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(timeout=None)
        self._planner = planner
        self._executor = executor
        self._llm = llm if is_language_model(llm) else None
        self._locale = locale
        self._seconds = timeout_seconds

    @step
    async def make_plan(self, ctx: Context, ev: QuestionAsked) -> _StepDue:
        """Make the plan."""
        steps = await self._planner.aplan(ev.user_msg, retrieved_domains=ev.retrieved_domains)
        ctx.write_event_to_stream(PlanReady(steps=steps))
        memory = ChatMemoryBuffer.from_defaults(llm=self._executor.llm) if ev.memory is None else ev.memory
        return _StepDue(question=ev.user_msg, steps=steps, results=(), memory=memory)

    @step
    async def carry_out_step(self, ctx: Context, ev: _StepDue) -> _StepDue | _StepsDone:
        """Have the executor carry out the next step."""
        result = await self._carried_out(ctx, ev.steps[len(ev.results)], ev.memory)
        results = (*ev.results, result)
        left = ev.steps[len(results) :]
        if left and not result.timed_out:
            return _StepDue(question=ev.question, steps=ev.steps, results=results, memory=ev.memory)
        return _StepsDone(question=ev.question, results=results, not_begun=left, memory=ev.memory)

    @step
    async def compose_answer(self, ev: _StepsDone) -> StopEvent:
        """Make one answer of what came of the steps."""
        first = ev.results[0]
        if all(result.error is not None for result in ev.results):
            raise first.error or AssertionError("a step has an answer or an error")
        if len(ev.results) == 1 and first.step.instruction == ev.question:
            return StopEvent(result=first.answer)
        if ev.results[-1].timed_out:
            answer = self._joined(ev.results, ev.not_begun)
        else:
            answer = await self._composed(ev.question, ev.results)
        await ev.memory.aput(ChatMessage(role=MessageRole.USER, content=ev.question))
        await ev.memory.aput(ChatMessage(role=MessageRole.ASSISTANT, content=answer))
        return StopEvent(result=answer)

    async def _carried_out(self, ctx: Context, plan_step: PlanStep, memory: BaseMemory) -> StepResult:
        handler = self._executor.run(user_msg=plan_step.instruction, memory=memory)
        try:
            async for event in handler.stream_events():
                if isinstance(event, ToolCall | ToolCallResult):
                    ctx.write_event_to_stream(event)
            answer = str(await handler).strip()
            timed_out = handler.ctx is not None and await handler.ctx.store.get(TIMED_OUT_KEY, default=False)
            return StepResult(plan_step, answer, timed_out=timed_out)
        except asyncio.CancelledError:
            # The executor's run has tasks of its own, which would go on.
            await handler.cancel_run()
            raise
        except Exception as error:
            result = StepResult(plan_step, "", error, timed_out=isinstance(error, LanguageModelTimeoutError))
            _LOGGER.warning("a step of the plan failed: %s", result.reason)
            return result

    async def _composed(self, question: str, results: Sequence[StepResult]) -> str:
        if self._llm is not None:
            material = {"question": question, "steps": [_as_material(result) for result in results]}
            messages = [
                ChatMessage(role=MessageRole.SYSTEM, content=read_prompt("chat-answer-prompt", self._locale)),
                ChatMessage(role=MessageRole.USER, content=json_text(material)),
            ]
            try:
                answer = (await answer_in_time(self._llm.achat(messages), seconds=self._seconds)).message.content
            except LanguageModelError as error:
                _LOGGER.warning("no answer was composed, the steps' answers are given one by one: %s", error)
            else:
                if answer is not None and answer.strip():
                    return answer.strip()
        return self._joined(results)

    def _joined(self, results: Sequence[StepResult], not_begun: Sequence[PlanStep] = ()) -> str:
        if len(results) == 1 and not not_begun:
            return results[0].answer
        parts = [
            f"{number}. {result.step.instruction}\n\n"
            + (result.answer if result.error is None else _FAILED[self._locale].format(reason=result.reason))
            for number, result in enumerate(results, start=1)
        ]
        if not_begun:
            numbered = enumerate(not_begun, start=len(results) + 1)
            parts.append("\n".join([_NOT_BEGUN[self._locale], *(f"{n}. {step.instruction}" for n, step in numbered)]))
        return "\n\n".join(parts)


def _as_material(result: StepResult) -> dict[str, str]:
    outcome = {"answer": result.answer} if result.error is None else {"error": result.reason}
    return {"instruction": result.step.instruction} | outcome
