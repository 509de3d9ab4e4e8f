"""The executor over the bundled documents with a model that says what a test scripts, over HTTP."""

from dataclasses import dataclass

from llama_index.core.agent.workflow import ToolCallResult
from llama_index.core.llms import LLM

from knowledge_lookup.agents import KnowledgeExecutor, build_executor
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from tests.servers.openai_stub import OpenAIStub, Reply

QUESTION = "支付网关返回 ERR_TIMEOUT，怎么排查？"
CALL = 'Thought: look it up\nAction: lookup_knowledge\nAction Input: {"query": "ERR_TIMEOUT"}'
ANSWER = "Thought: done\nAnswer: 先查单。来源：knowledge_base/api/payment-errors.md"
ANSWERED = "先查单。来源：knowledge_base/api/payment-errors.md"
NO_ANSWER = "在允许的步数内没有得出答案。"
SOURCE = "knowledge_base/api/payment-errors.md"


@dataclass
class Run:
    """What came of a run."""

    answer: str
    calls: list[ToolCallResult]
    requests: list[list[dict[str, str]]]

    @property
    def queries(self) -> list[str]:
        return [call.tool_kwargs["query"] for call in self.calls]


class Agent:
    """The executor over the bundled documents, with a scripted model."""

    def __init__(self, bundle: KnowledgePipeline, endpoint: OpenAIStub) -> None:
        self.bundle = bundle
        self.endpoint = endpoint
        self.llm: LLM = build_llm(LlmSettings(provider="openai-like", model="stub", base_url=endpoint.base_url))

    def executor(self, *, locale: str = "zh", max_iterations: int = 8) -> KnowledgeExecutor:
        tools = [self.bundle.lookup_tool()]
        return build_executor(tools, self.llm, locale=locale, max_iterations=max_iterations)  # type: ignore[arg-type]

    async def run(self, *replies: Reply, question: str = QUESTION, executor: KnowledgeExecutor | None = None) -> Run:
        """Ask a question; the model says the replies and, after the last, the last again and again."""
        said = len(self.endpoint.requests)
        self.endpoint.replies.clear()
        self.endpoint.replies.extend(replies)
        self.endpoint.answer = lambda messages: replies[-1]
        handler = (executor or self.executor()).run(question)
        calls = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
        return Run(str(await handler), calls, [r["messages"] for r in self.endpoint.requests[said:]])
