"""Scripted agents that ask a knowledge base about one topic again and again, and what it sends them.

Three agents, by what they do with the rules of the executor's prompt (``agents/prompts``):

- **obedient**: does what the answer says. It stops at ``PRECISE`` and ``HIGHLY_RELEVANT`` and at every ``found=false``
  (already retrieved, a limit reached, not in the knowledge base). After the first ``REFERENCE`` it asks one more
  variant, and then stops whatever comes. An answer without such a signal doesn't tell it whether to go on: it goes on
  as the forgetful one does.
- **forgetful**: asks, and asks again with the next three variants, whatever comes back.
- **stubborn**: asks all variants, whatever comes back.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from llama_index.core.tools import FunctionTool

from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.lookup_result import LookupResult, PassageSpan
from knowledge_lookup.agents.lookup_tool import build_lookup_tool
from knowledge_lookup.pipeline.evaluation.labelled_queries import (
    LabelledQuery,
    LabelledQueryError,
    require_documents,
)
from knowledge_lookup.postprocessors import RelevanceLevel

FORGETFUL_CALLS = 4
"""The first question and three more."""


class Agent(StrEnum):
    """How an agent treats what it is told about searching on."""

    OBEDIENT = "obedient"
    FORGETFUL = "forgetful"
    STUBBORN = "stubborn"


class Signal(StrEnum):
    """What an answer tells the agent about asking on."""

    STOP = "stop"
    ONE_MORE = "one more"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What one call of a tool sent to the model.

    :param text: All that the model reads.
    :param passages: The pieces of documents in it.
    :param signal: What it says about asking on.
    """

    text: str
    passages: tuple[PassageSpan, ...]
    signal: Signal = Signal.NONE


Ask = Callable[[str], ToolAnswer]
"""Asks a tool a query, within one session."""

OpenSession = Callable[[], AbstractContextManager[Ask]]
"""Begins a new session, and ends it with the ``with`` block."""


@dataclass(frozen=True, slots=True)
class QuerySession:
    """One topic and the ways in which an agent asks about it.

    :param topic: What the session is about.
    :param gold: Paths of the documents that answer it, relative to the base path; empty when none does.
    :param queries: The variants in the order in which they are asked, at least one.
    """

    topic: str
    gold: frozenset[str]
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A session that an agent has gone through.

    :param session: The session.
    :param answers: What each call sent, in order.
    """

    session: QuerySession
    answers: tuple[ToolAnswer, ...]


def read_sessions(path: Path) -> list[QuerySession]:
    """Read a JSONL file of ``{"topic": ..., "gold": [...], "queries": [...]}``; other keys are ignored.

    :param path: The file; empty lines are passed over.
    :returns: The sessions in order, at least one.
    :raises LabelledQueryError: If the file can't be read or a line isn't such an object; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelledQueryError(f"'{path}' can't be read ({error}): give a UTF-8 file of sessions") from error
    sessions = [_session(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not sessions:
        raise LabelledQueryError(
            f"'{path}' has no sessions: one "
            '{"topic": "...", "gold": ["path.md"], "queries": ["..."]} a line is needed'
        )
    return sessions


def require_gold_documents(sessions: Sequence[QuerySession], file_paths: Iterable[str]) -> None:
    """Refuse sessions whose gold documents don't exist: they could never be delivered.

    :param sessions: The sessions.
    :param file_paths: Paths of the documents that there are, relative to the base path.
    :raises LabelledQueryError: If a gold path isn't among them; the message names the first.
    """
    require_documents([LabelledQuery(session.topic, session.gold) for session in sessions], file_paths)


def converse(agent: Agent, session: QuerySession, ask: Ask) -> SessionRun:
    """Have an agent go through a session.

    :param agent: The agent.
    :param session: The session.
    :param ask: Asks the tool within a session of its own.
    :returns: What the tool sent.
    """
    answers: list[ToolAnswer] = []
    for query in session.queries:
        answers.append(ask(query))
        if not _goes_on(agent, answers):
            break
    return SessionRun(session, tuple(answers))


def run_sessions(
    open_session: OpenSession,
    sessions: Sequence[QuerySession],
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[Agent, tuple[SessionRun, ...]]:
    """Have each agent go through each session, every time in a new session of the tool.

    :param open_session: Begins a session of the tool.
    :param sessions: The sessions.
    :param progress: Called with the number of runs done, their total, and the next session's topic.
    :returns: The runs of each agent, in the order of the sessions.
    """
    total = len(Agent) * len(sessions)
    runs: dict[Agent, tuple[SessionRun, ...]] = {}
    for number, agent in enumerate(Agent):
        of_agent = []
        for done, session in enumerate(sessions, start=number * len(sessions)):
            if progress is not None:
                progress(done, total, session.topic)
            with open_session() as ask:
                of_agent.append(converse(agent, session, ask))
        runs[agent] = tuple(of_agent)
    if progress is not None:
        progress(total, total, "")
    return runs


def sessions_of(lookup: KnowledgeLookup) -> OpenSession:
    """Ask a look-up through its tool, each time in a session that nobody else uses and that is cleared afterwards.

    :param lookup: The look-up.
    :returns: Begins such a session.
    """

    @contextmanager
    def open_session() -> Iterator[Ask]:
        session_id = f"evaluation-{uuid.uuid4()}"
        try:
            yield ask_with(build_lookup_tool(lookup, session_id=session_id))
        finally:
            lookup.memory.clear_session(session_id)

    return open_session


def ask_with(tool: FunctionTool) -> Ask:
    """Ask as an LLM does: through the tool, reading what the tool's output says.

    :param tool: A ``lookup_knowledge`` tool, bound to a session.
    :returns: Asks it.
    """

    def ask(query: str) -> ToolAnswer:
        output = tool.call(query=query)
        result = output.raw_output
        assert isinstance(result, LookupResult)
        may_go_on = result.found and result.relevance_level is RelevanceLevel.REFERENCE
        return ToolAnswer(str(output), result.passages, Signal.ONE_MORE if may_go_on else Signal.STOP)

    return ask


def _goes_on(agent: Agent, answers: Sequence[ToolAnswer]) -> bool:
    if agent is Agent.STUBBORN:
        return True
    if agent is Agent.FORGETFUL or answers[-1].signal is Signal.NONE:
        return len(answers) < FORGETFUL_CALLS
    return answers[-1].signal is Signal.ONE_MORE and len(answers) == 1


def _session(line: str, where: str) -> QuerySession:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise LabelledQueryError(f"{where}: not JSON ({error})") from error
    if not isinstance(value, dict) or not _is_text(value.get("topic")):
        raise LabelledQueryError(f'{where}: an object with a text "topic" is needed')
    gold, queries = value.get("gold"), value.get("queries")
    if not isinstance(gold, list) or not all(isinstance(path, str) for path in gold):
        raise LabelledQueryError(f'{where}: "gold" must be a list of paths, empty for a topic without an answer')
    if not isinstance(queries, list) or not queries or not all(_is_text(query) for query in queries):
        raise LabelledQueryError(f'{where}: "queries" must be a list of texts, at least one')
    return QuerySession(topic=value["topic"], gold=frozenset(gold), queries=tuple(queries))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
