"""A conversation with the bundled executor on the terminal."""

import asyncio
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.plan_and_execute import PlanReady
from knowledge_lookup.pipeline.cli import rendering
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

if TYPE_CHECKING:
    from workflows.handler import WorkflowHandler

    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline

_FAREWELLS = frozenset({"exit", "quit", ":q"})


class ChatError(KnowledgeLookupError):
    """The executor could not answer."""


@dataclass(slots=True)
class Answer:
    """One answer of the executor.

    :param text: What it says.
    :param lookups: The look-ups it made, as (tool name, query, result).
    """

    text: str
    lookups: list[tuple[str, str, LookupResult]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        return {
            "answer": self.text,
            "lookups": [
                {
                    "tool": tool,
                    "query": query,
                    "found": result.found,
                    "relevanceLevel": result.relevance_level,
                    "sources": list(result.sources),
                }
                for tool, query, result in self.lookups
            ],
        }


class Chat:
    """Asks the executor, showing each tool call and its level as it happens.

    :param pipeline: The knowledge base.
    :param session_id: The session; None starts a new one.
    :param plan: Let the planner split each question into steps first.
    :param quiet: Show nothing.
    """

    def __init__(
        self, pipeline: "KnowledgePipeline", *, session_id: str | None, plan: bool = False, quiet: bool = False
    ) -> None:
        from llama_index.core.memory import ChatMemoryBuffer

        self._pipeline = pipeline
        self._plan = plan
        self._quiet = quiet
        self._session_id = session_id if session_id is not None else uuid.uuid4().hex
        # Handed to each run: a workflow's Context doesn't carry its memory over to the next one.
        self._memory = ChatMemoryBuffer.from_defaults(llm=pipeline.llm)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()

    def ask(self, question: str) -> Answer:
        """Ask one question; later ones know what was said before.

        :param question: The question.
        :returns: The answer.
        :raises ChatError: If the language model can't be reached or the run fails.
        """
        try:
            return self._runner.run(self._ask(question))
        except KnowledgeLookupError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ChatError(
                f"the executor could not answer ({reason[:300]}): check llm.provider, llm.model and llm.base-url"
            ) from error

    def run_interactive(self) -> None:
        """Ask what the user types, until an empty end of input or ``exit``."""
        rendering.remark("Ask a question; 'exit' or Ctrl-D ends the session.")
        while True:
            try:
                question = input("> ").strip()
            except (EOFError, KeyboardInterrupt):
                rendering.remark("")
                return
            if question in _FAREWELLS:
                return
            if question:
                try:
                    self.ask(question)
                except KnowledgeLookupError as error:
                    rendering.remark(f"error: {error}")

    async def _ask(self, question: str) -> Answer:
        from llama_index.core.agent.workflow import ToolCall, ToolCallResult

        handler = self._run(question)
        answer = Answer(text="")
        async for event in handler.stream_events():
            if isinstance(event, PlanReady):
                for number, step in enumerate(event.steps, start=1):
                    self._show(f"{number}. {step.instruction}")
            elif isinstance(event, ToolCallResult):
                self._show_result(event, answer)
            elif isinstance(event, ToolCall):
                self._show(f"→ {event.tool_name}({_arguments(event.tool_kwargs)})")
        answer.text = str(await handler).strip()
        self._show(f"\n{answer.text}")
        return answer

    def _run(self, question: str) -> "WorkflowHandler":
        if not self._plan:
            return self._pipeline.executor(self._session_id).run(user_msg=question, memory=self._memory)
        return self._pipeline.plan_and_execute(self._session_id).run(
            user_msg=question,
            memory=self._memory,
            retrieved_domains=tuple(self._pipeline.memory.get_retrieved_domains(self._session_id)),
        )

    def _show_result(self, event: Any, answer: Answer) -> None:
        result = event.tool_output.raw_output
        if isinstance(result, LookupResult):
            answer.lookups.append((event.tool_name, str(event.tool_kwargs.get("query", "")), result))
            self._show(f"← {rendering.headline(result)}")
        else:
            self._show(f"← {event.tool_output.content}")

    def _show(self, text: str) -> None:
        if not self._quiet:
            rendering.raw(text)


def _arguments(kwargs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
