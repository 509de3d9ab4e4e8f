"""The bundled executor: a ReAct agent that knows when to stop searching."""

from collections.abc import Sequence
from typing import cast

from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.react.types import ObservationReasoningStep, ResponseReasoningStep
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentWorkflowStartEvent,
    ToolCall,
)
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import BaseTool
from llama_index.core.workflow import Context, StopEvent, step

from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.postprocessors.completeness_hints import Locale

DEFAULT_MAX_ITERATIONS = 8

_CLOSING_REQUEST = {
    "zh": (
        "检索次数已用完，不能再调用工具。请仅根据上文已有的检索结果作答，并说明哪些信息没有查到。"
        "按格式输出：\nThought: 说明依据\nAnswer: 完整的答案"
    ),
    "en": (
        "No further tool calls are possible. Answer from the results above alone, and say what was not found. "
        "Use the format:\nThought: what the answer rests on\nAnswer: the complete answer"
    ),
}
_NO_ANSWER = {
    "zh": "在允许的步数内没有得出答案。",
    "en": "No answer was reached within the allowed number of steps.",
}


class KnowledgeExecutor(ReActAgent):
    """A LlamaIndex ``ReActAgent`` whose runs end in an answer.

    An answer on the last allowed step counts. Where that step asks for another tool call instead, the LLM is
    called once more, with all the observations so far, to close with what it has.

    :param locale: Language of the closing request.
    :param max_iterations: LLM calls before the closing one, at least 1; ``run(max_iterations=...)`` overrides it.
    """

    locale: Locale = Field(default="zh")
    max_iterations: int = Field(default=DEFAULT_MAX_ITERATIONS, ge=1)

    async def _init_context(self, ctx: Context, ev: AgentWorkflowStartEvent) -> None:
        await super()._init_context(ctx, ev)
        # The base class stores its own default where the run names no limit.
        if ev.get("max_iterations", default=None) is None:
            await ctx.store.set("max_iterations", self.max_iterations)

    @step
    async def parse_agent_output(self, ctx: Context, ev: AgentOutput) -> StopEvent | AgentInput | ToolCall | None:
        """Go on with what the LLM put out; on the last step, end in an answer."""
        allowed = await ctx.store.get("max_iterations", default=self.max_iterations)
        is_last = await ctx.store.get("num_iterations", default=0) + 1 >= allowed
        if not is_last:
            return cast("StopEvent | AgentInput | ToolCall | None", await super().parse_agent_output(ctx, ev))
        if ev.tool_calls or ev.retry_messages:
            ev = await self._closing_output(ctx, ev)
        # The base class raises when the last step is reached, even by an answer.
        await ctx.store.set("num_iterations", -1)
        return cast("StopEvent | AgentInput | ToolCall | None", await super().parse_agent_output(ctx, ev))

    async def _closing_output(self, ctx: Context, ev: AgentOutput) -> AgentOutput:
        memory: BaseMemory = await ctx.store.get("memory")
        reasoning = await ctx.store.get(self.reasoning_key, default=[])
        observed = [number for number, s in enumerate(reasoning) if isinstance(s, ObservationReasoningStep)]
        # A call that was asked for on the last step was never made: it has no observation and is left out.
        reasoning = reasoning[: observed[-1] + 1] if observed else []
        messages = self.formatter.format(
            list(await self.get_tools()), chat_history=await memory.aget(), current_reasoning=reasoning
        )
        messages.append(ChatMessage(role=MessageRole.USER, content=_CLOSING_REQUEST[self.locale]))
        response = await self._get_llm_response(ctx, messages)
        text = _answer_in(response.message.content or "") or _NO_ANSWER[self.locale]
        answer = ResponseReasoningStep(thought="", response=text)
        await ctx.store.set(self.reasoning_key, [*reasoning, answer])
        return AgentOutput(
            response=ChatMessage(role=MessageRole.ASSISTANT, content=text),
            raw=response.raw,
            current_agent_name=self.name,
        )


def build_executor(
    tools: Sequence[BaseTool],
    llm: LLM,
    *,
    locale: Locale = "zh",
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
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
    )


def _answer_in(text: str) -> str:
    _, marker, answer = text.rpartition("Answer:")
    if marker:
        return answer.strip()
    return "" if "Action:" in text else text.strip()
