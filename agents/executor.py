"""The bundled executor: a ReAct agent that knows when to stop searching."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.react.types import BaseReasoningStep, ObservationReasoningStep, ResponseReasoningStep
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.agent.workflow.agent_context import AgentContext
from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentWorkflowStartEvent,
    ToolCall,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.llms import LLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool, BaseTool
from llama_index.core.workflow import Context, StopEvent, step

from knowledge_lookup.agents.invented_arguments import without_inventions
from knowledge_lookup.agents.language_model import (
    DEFAULT_TIMEOUT_SECONDS,
    LanguageModelError,
    LanguageModelTimeoutError,
    answer_in_time,
)
from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.agents.react_corrections import (
    CorrectionStep,
    RejectedStep,
    closing_request,
    is_template,
    marked_cut_off,
    model_failed,
    no_answer,
    rejection,
    repetition,
    tool_call_step,
)
from knowledge_lookup.agents.react_output_parser import Problem, ReactOutput, read_react_output
from knowledge_lookup.agents.run_economy import RunSoFar
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.normal_form import normal_form

DEFAULT_MAX_ITERATIONS = 8
TIMED_OUT_KEY = "language_model_timed_out"
"""In a run's ``Context`` store: whether the run ended because the language model did not answer in time."""
_CALLS_KEY = "current_tool_calls"


class KnowledgeExecutor(ReActAgent):
    """A LlamaIndex ``ReActAgent`` whose runs end in an answer.

    What the model puts out is read for what it means; where nothing can be made of it, the model is told what was
    wrong, as an observation. A look-up that would only repeat an earlier one is not made. At the step limit, and where
    the run makes no progress any more, the LLM is called once more, with all the results so far, to close with what it
    has; if that yields no answer either, the answer says so and names what was retrieved.

    A language model that fails or takes too long ends the run: with a ``LanguageModelError`` before anything was
    retrieved, afterwards with an answer that says so and names what was retrieved.

    :param locale: Language of what the model is told.
    :param max_iterations: LLM calls before the closing one, at least 1; ``run(max_iterations=...)`` overrides it.
    :param timeout_seconds: How long one call of the LLM may take, the client's retries included; seconds, above 0.
    """

    locale: Locale = Field(default="zh")
    max_iterations: int = Field(default=DEFAULT_MAX_ITERATIONS, ge=1)
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0)

    async def _init_context(self, ctx: Context, ev: AgentWorkflowStartEvent) -> None:
        await super()._init_context(ctx, ev)
        # The base class stores its own default where the run names no limit.
        if ev.get("max_iterations", default=None) is None:
            await ctx.store.set("max_iterations", self.max_iterations)
        # A run that failed, as with an endpoint that is down, leaves its steps in the context.
        await ctx.store.set(self.reasoning_key, [])
        await ctx.store.set(_CALLS_KEY, [])
        await ctx.store.set(TIMED_OUT_KEY, False)

    async def take_step(
        self, ctx: AgentContext, llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: BaseMemory
    ) -> AgentOutput:
        """Call the LLM and follow what it puts out.

        :param ctx: The run.
        :param llm_input: The conversation.
        :param tools: The tools.
        :param memory: Not used; the base class passes it.
        :returns: A tool call, an answer, or what the model has to be told, as retry message.
        :raises LanguageModelError: If the LLM fails or takes too long before anything was retrieved.
        """
        history = llm_input[1:] if llm_input[0].role == MessageRole.SYSTEM else llm_input  # the formatter has its own
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        question: str = await ctx.store.get("user_msg_str", default="")
        so_far = RunSoFar(question, await ctx.store.get(_CALLS_KEY, default=[]))
        is_at_limit = await ctx.store.get("num_iterations", default=0) >= await self._allowed_steps(ctx)
        try:
            if is_at_limit or so_far.is_stuck(reasoning):
                return await self._closing_output(
                    ctx, self.formatter.format(tools, history, _results(reasoning)), so_far, tools
                )
            messages = self.formatter.format(tools, history, reasoning)
            response = await self._ask(ctx, messages)
        except LanguageModelError as error:
            if not so_far.sources:
                raise
            await ctx.store.set(TIMED_OUT_KEY, isinstance(error, LanguageModelTimeoutError))
            return await self._ending(ctx, model_failed(error, so_far.sources, self.locale), raw=None)
        output = self._read(response, tools, question)
        conversation = "\n".join(message.content or "" for message in messages if message.role == MessageRole.USER)
        arguments = without_inventions(
            output.arguments, header=self.formatter.system_header, question=question, conversation=conversation
        )
        output = replace(output, arguments=arguments)
        calls: list[ToolSelection] = []
        steps: list[BaseReasoningStep]
        if output.problem is not None:
            steps = rejection(output, output.problem, tools, question, self.locale)
        elif not output.tool:
            answer = marked_cut_off(output.answer, self.locale) if _is_cut_off(response) else output.answer
            steps = [ResponseReasoningStep(thought=output.thought, response=answer)]
        elif so_far.is_repeated(output.tool, output.arguments):
            steps = repetition(output, self.locale)
        else:
            steps = [tool_call_step(output, self.locale)]
            calls = [ToolSelection(tool_id=str(uuid4()), tool_name=output.tool, tool_kwargs=output.arguments)]
        await ctx.store.set(self.reasoning_key, [*reasoning, *steps])
        told = [step.get_content() for step in steps if isinstance(step, CorrectionStep)]
        return AgentOutput(
            response=response.message,
            tool_calls=calls,
            retry_messages=[ChatMessage(role=MessageRole.USER, content=text) for text in told],
            raw=_raw(response),
            current_agent_name=self.name,
        )

    @step
    async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Go on with what the LLM put out; an answer ends the run, whichever step it is."""
        steps = await ctx.store.get("num_iterations", default=0) + 1
        if not ev.tool_calls and not ev.retry_messages:
            # The base class raises when the last step is reached, even by an answer.
            await ctx.store.set("num_iterations", -1)
        elif ev.retry_messages or steps >= await self._allowed_steps(ctx):
            # What the model is told stands in the reasoning, behind the results it has; the base class would put it
            # before them, after the question once more. At the limit, the next step closes the run.
            await ctx.store.set("num_iterations", steps)
            memory: BaseMemory = await ctx.store.get("memory")
            history = await memory.aget(input=await ctx.store.get("user_msg_str"))
            return AgentInput(input=history, current_agent_name=self.name)
        return cast("StopEvent | AgentInput | ToolCall | None", await super().parse_agent_output(ctx, ev))

    async def finalize(self, ctx: Context, output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """End the run: the conversation keeps calls, results and answer, and nothing of what was rejected."""
        reasoning: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        await ctx.store.set(self.reasoning_key, _without_rejections(reasoning))
        output = await super().finalize(ctx, output, memory)
        if reasoning and isinstance(reasoning[-1], ResponseReasoningStep):
            # The base class cuts the raw output at its first "Answer:", which may be a quotation.
            output.response = ChatMessage(role=MessageRole.ASSISTANT, content=reasoning[-1].response)
        return output

    async def _allowed_steps(self, ctx: AgentContext) -> int:
        return int(await ctx.store.get("max_iterations", default=self.max_iterations))

    async def _ask(self, ctx: AgentContext, messages: list[ChatMessage]) -> ChatResponse:
        answer = self._get_streaming_response(ctx, messages) if self.streaming else self._get_response(messages)
        return await answer_in_time(answer, seconds=self.timeout_seconds)

    def _read(self, response: ChatResponse, tools: Sequence[AsyncBaseTool], question: str) -> ReactOutput:
        def says_nothing(text: str) -> bool:
            return self._is_template(text) or normal_form(text) == normal_form(question)

        return read_react_output(response.message.content or "", tools, is_template=says_nothing)

    def _is_template(self, text: str) -> bool:
        return is_template(text, self.formatter.system_header)

    async def _closing_output(
        self, ctx: AgentContext, messages: list[ChatMessage], so_far: RunSoFar, tools: Sequence[AsyncBaseTool]
    ) -> AgentOutput:
        """Have the LLM answer with what there is."""
        last = messages[-1]
        request = closing_request(self.locale)
        if last.role == MessageRole.USER:
            # Some chat templates refuse two messages of the user in a row.
            messages, request = messages[:-1], f"{last.content or ''}\n\n{request}"
        response = await self._ask(ctx, [*messages, ChatMessage(role=MessageRole.USER, content=request)])
        if response.raw is None and not (response.message.content or "").strip():
            # No completion at all, to the last: an empty body, or a page that isn't an event stream.
            raise LanguageModelError("the language model's answer is empty: check llm.base-url and llm.model")
        output = self._read(response, tools, await ctx.store.get("user_msg_str", default=""))
        text = output.answer if output.problem is None else ""
        if text and _is_cut_off(response):
            text = marked_cut_off(text, self.locale)
        if output.problem is Problem.NO_STEP and so_far.sources and not self._is_template(output.thought):
            text = output.thought  # with results at hand, that is where small models put the answer
        return await self._ending(ctx, text or no_answer(so_far.sources, self.locale), raw=_raw(response))

    async def _ending(self, ctx: AgentContext, text: str, *, raw: Any) -> AgentOutput:
        """End the run with an answer; of the steps, the conversation keeps those that have a result."""
        reasoning = await ctx.store.get(self.reasoning_key, default=[])
        answer = ResponseReasoningStep(thought="", response=text)
        await ctx.store.set(self.reasoning_key, [*_results(reasoning), answer])
        return AgentOutput(
            response=ChatMessage(role=MessageRole.ASSISTANT, content=text),
            raw=raw,
            current_agent_name=self.name,
        )


def build_executor(
    tools: Sequence[BaseTool],
    llm: LLM,
    *,
    locale: Locale = "zh",
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> KnowledgeExecutor:
    """Build the executor.

    Its system prompt is the bundled one (``agents/prompts``), which replaces the header of LlamaIndex's ReAct
    agent as well: that header tells the model to use the tools however it likes. The prompt holds no map of the
    knowledge base.

    ::

        executor = build_executor([build_lookup_tool(lookup, session_id="s1")], llm)
        answer = await executor.run("支付网关返回 ERR_TIMEOUT，怎么排查？")

    :param tools: Usually the ``lookup_knowledge`` tool alone.
    :param llm: Any LlamaIndex LLM.
    :param locale: Language of the prompt.
    :param max_iterations: LLM calls before the run is closed, at least 1.
    :param timeout_seconds: How long one LLM call may take, the client's retries included; seconds, above 0.
    :returns: An agent; ``await agent.run(question)`` ends in an answer.
    """
    return KnowledgeExecutor(
        name="knowledge_executor",
        description="Answers questions from the knowledge base and names the sources.",
        tools=list(tools),
        llm=llm,
        formatter=ReActChatFormatter(system_header=executor_prompt(locale)),
        locale=locale,
        max_iterations=max_iterations,
        timeout_seconds=timeout_seconds,
    )


def _results(reasoning: Sequence[BaseReasoningStep]) -> list[BaseReasoningStep]:
    """Keep what a closing answer can rest on: the calls that have a result."""
    kept = _without_rejections(reasoning)
    observed = [at for at, step_made in enumerate(kept) if isinstance(step_made, ObservationReasoningStep)]
    return kept[: observed[-1] + 1] if observed else []


def _without_rejections(reasoning: Sequence[BaseReasoningStep]) -> list[BaseReasoningStep]:
    return [step_made for step_made in reasoning if not isinstance(step_made, RejectedStep | CorrectionStep)]


def _is_cut_off(response: ChatResponse) -> bool:
    """Tell whether an OpenAI-compatible endpoint stopped the model at its length limit."""
    choices: Any = getattr(response.raw, "choices", None)
    return bool(choices) and getattr(choices[-1], "finish_reason", None) == "length"


def _raw(response: ChatResponse) -> Any:
    return response.raw.model_dump() if isinstance(response.raw, BaseModel) else response.raw
