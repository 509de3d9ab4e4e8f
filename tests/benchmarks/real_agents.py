"""Agents with a real language model on questions over a knowledge base: the bundled executor and LlamaIndex's own.

LlamaIndex's is a ``ReActAgent`` with ``RetrieverTool``, both with all their settings left as they are. The model is
asked through any OpenAI-compatible endpoint. Each question is a run of its own, with a time limit.
"""

import asyncio
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.workflow import ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMChatStartEvent
from llama_index.core.schema import NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from stock_llama_index import read_chunks, stock_tool

from knowledge_lookup.agents.executor import build_executor
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import LabelledQuery, Share, Spread, read_queries
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import LlmSettings
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.metadata import document_of

DEFAULT_SECONDS = 600.0
_LOCALE: Locale = "zh"
_SHORTEST_TEMPLATE = 3
"""Characters; a shorter answer that is in a template may well be an answer."""


@dataclass(frozen=True, slots=True)
class RealLookup:
    """A look-up that an agent made.

    :param documents: Documents of which text was sent.
    :param is_precise: Whether the tool said that nothing better exists.
    """

    documents: frozenset[str]
    is_precise: bool


@dataclass(slots=True)
class RealRun:
    """What came of one question.

    :param question: The question with the documents that answer it.
    :param templates: What the system prompt shows in the place of an answer.
    """

    question: LabelledQuery
    templates: tuple[str, ...]
    answer: str | None = None
    error: str | None = None
    lookups: list[RealLookup] = field(default_factory=list)
    llm_calls: int = 0
    prompt_characters: int = 0
    seconds: float = 0.0
    transcript: list[str] = field(default_factory=list)

    @property
    def after_precise(self) -> int:
        """Look-ups made after one that was ``PRECISE``."""
        first = next((number for number, one in enumerate(self.lookups) if one.is_precise), len(self.lookups))
        return len(self.lookups[first + 1 :])

    @property
    def is_template(self) -> bool:
        """Whether the answer is empty or the template's own words."""
        answer = _bare(self.answer or "")
        return not answer or any(
            template in answer or (answer in template and len(answer) >= _SHORTEST_TEMPLATE)
            for template in map(_bare, self.templates)
        )

    @property
    def is_answered(self) -> bool:
        """Whether the run ended in an answer of its own words."""
        return self.error is None and not self.is_template

    @property
    def names_delivered(self) -> bool:
        """Whether the answer names a document that was sent."""
        return self.is_answered and any(self._names(path) for one in self.lookups for path in one.documents)

    @property
    def names_right(self) -> bool:
        """Whether the answer names a document that answers and was sent."""
        sent = frozenset(path for one in self.lookups for path in one.documents)
        return self.is_answered and any(self._names(path) for path in self.question.gold & sent)

    def _names(self, path: str) -> bool:
        return Path(path).name in (self.answer or "")


class Meter(BaseEventHandler):
    """Counts what the language model is asked, for the run that is under way."""

    run: Any = None

    @classmethod
    def class_name(cls) -> str:
        """Name of the handler."""
        return "Meter"

    def handle(self, event: BaseEvent, **_: Any) -> None:
        """Take note of an LLM call's beginning and end."""
        run: RealRun | None = self.run
        if run is None:
            return
        if isinstance(event, LLMChatStartEvent):
            run.llm_calls += 1
            characters = sum(len(message.content or "") for message in event.messages)
            run.prompt_characters += characters
            run.transcript.append(f"=== call {run.llm_calls}: {characters} characters\n{_shown(event.messages)}")
        elif isinstance(event, LLMChatEndEvent) and event.response is not None:
            run.transcript.append(f"=== reply\n{event.response.message.content}")


def run_real_agents(
    pipeline: KnowledgePipeline,
    files: KnowledgeFiles,
    questions: Path,
    *,
    base_url: str,
    model: str,
    seconds: float,
    transcripts: Path | None,
) -> None:
    """Run both agents on each question and print the tables.

    :param pipeline: The knowledge base.
    :param files: Its documents.
    :param questions: File of labelled questions.
    :param base_url: The endpoint.
    :param model: The model's name there.
    :param seconds: Time limit of a question.
    :param transcripts: Folder for the transcripts; None writes none.
    """
    llm = build_llm(LlmSettings(provider="openai-like", base_url=base_url, model=model), locale=_LOCALE)
    # One request may take as long as the question: a request that is sent again would be counted once and paid twice.
    llm.timeout, llm.max_retries = seconds, 0  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as place:
        chunks = read_chunks(pipeline, files)
        with stock_tool(chunks, pipeline, Path(place)) as tool:
            own = _Contender(
                lambda: build_executor([pipeline.lookup_tool(f"economy-{uuid.uuid4()}")], llm, locale=_LOCALE),
                executor_prompt(_LOCALE),
            )
            stock = _Contender(lambda: ReActAgent(tools=[tool], llm=llm), ReActChatFormatter().system_header)
            runs = asyncio.run(
                _run_all({"LlamaIndex": stock, "this package": own}, read_queries(questions), seconds, transcripts)
            )
    _print_tables(runs)


@dataclass(frozen=True, slots=True)
class _Contender:
    build: Callable[[], ReActAgent]
    prompt: str

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(re.findall(r"^Answer:\s*(.+)$", self.prompt, re.MULTILINE))


async def _run_all(
    contenders: dict[str, _Contender], questions: Sequence[LabelledQuery], seconds: float, transcripts: Path | None
) -> dict[str, list[RealRun]]:
    meter = Meter()
    get_dispatcher().add_event_handler(meter)
    runs: dict[str, list[RealRun]] = {name: [] for name in contenders}
    print("| question | system | look-ups | after `PRECISE` | end | right source | LLM calls | prompt characters | s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for number, question in enumerate(questions, start=1):
        for name, contender in contenders.items():
            run = meter.run = RealRun(question, contender.templates)
            await _run_one(contender.build(), run, seconds)
            meter.run = None
            runs[name].append(run)
            print(
                f"| {question.query} | {name} | {len(run.lookups)} | {run.after_precise} | {_end(run)} "
                f"| {('yes' if run.names_right else 'no') if question.gold else '-'} | {run.llm_calls} "
                f"| {run.prompt_characters:,} | {run.seconds:.0f} |",
                flush=True,
            )
            if transcripts is not None:
                transcripts.mkdir(parents=True, exist_ok=True)
                ending = f"=== end after {run.seconds:.0f} s\n{run.answer if run.error is None else run.error}\n"
                file = transcripts / f"{number:02}-{name.replace(' ', '-')}.txt"
                file.write_text("\n\n".join([question.query, *run.transcript, ending]), encoding="utf-8")
    return runs


async def _run_one(agent: ReActAgent, run: RealRun, seconds: float) -> None:
    started = time.perf_counter()
    handler = agent.run(user_msg=run.question.query)

    async def follow() -> str:
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                run.lookups.extend(_lookup(event.tool_output.raw_output))
        return str(await handler)

    try:
        run.answer = await asyncio.wait_for(follow(), seconds)
    except TimeoutError:
        run.error = f"not done after {seconds:.0f} s"
        await handler.cancel_run()
    except Exception as error:  # whatever ends a run is what is measured here
        run.error = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    run.seconds = time.perf_counter() - started


def _lookup(raw_output: Any) -> Iterator[RealLookup]:
    """What a tool call was, if it was a look-up; a call of a tool that doesn't exist isn't."""
    if isinstance(raw_output, LookupResult):
        documents = frozenset(passage.file_path for passage in raw_output.passages)
        yield RealLookup(documents, raw_output.relevance_level is RelevanceLevel.PRECISE)
    elif isinstance(raw_output, list) and all(isinstance(found, NodeWithScore) for found in raw_output):
        yield RealLookup(frozenset(map(document_of, raw_output)), is_precise=False)


def _print_tables(runs: dict[str, list[RealRun]]) -> None:
    print(f"\n| {len(next(iter(runs.values())))} questions | {' | '.join(runs)} |\n|---|{'---|' * len(runs)}")
    rows: dict[str, Callable[[list[RealRun]], object]] = {
        "ended in an answer of its own words": lambda of: _share(one.is_answered for one in of),
        "answer empty or the template's own words": lambda of: sum(not one.error and one.is_template for one in of),
        "exception or time limit": lambda of: sum(one.error is not None for one in of),
        "look-ups, median (most)": lambda of: f"{median(map(_lookups, of)):g} ({max(map(_lookups, of))})",
        "questions without any look-up": lambda of: sum(not one.lookups for one in of),
        "look-ups after a `PRECISE`": lambda of: sum(one.after_precise for one in of),
        "answers naming a document that was sent, where any was": lambda of: _share(
            one.names_delivered for one in of if any(lookup.documents for lookup in one.lookups)
        ),
        "answers naming a right one, of the answerable": lambda of: _share(
            one.names_right for one in of if one.question.gold
        ),
        "LLM calls": lambda of: Spread(tuple(one.llm_calls for one in of)),
        "prompt characters": lambda of: Spread(tuple(one.prompt_characters for one in of)),
        "seconds": lambda of: Spread(tuple(round(one.seconds, 1) for one in of)),
    }
    for name, figure in rows.items():
        print(f"| {name} | {' | '.join(str(figure(of)) for of in runs.values())} |")


def _lookups(run: RealRun) -> int:
    return len(run.lookups)


def _end(run: RealRun) -> str:
    if run.error is not None:
        return run.error.replace("|", "\\|")[:80]
    return "template" if run.is_template else "answer"


def _share(values: Iterator[bool]) -> Share:
    counted = list(values)
    return Share(sum(counted), len(counted))


def _bare(text: str) -> str:
    """Without what a model adds to or drops from a template: brackets, white space, punctuation at the ends."""
    return re.sub(r"[\s\[\]【】<>《》()（）]", "", text).strip(".。:：")


def _shown(messages: Sequence[ChatMessage]) -> str:
    # The system prompt is the same each time.
    return "\n".join(f"[{message.role.value}] {message.content}" for message in messages if message.role != "system")
