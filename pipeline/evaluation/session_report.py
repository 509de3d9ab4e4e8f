"""What the sessions of scripted agents came to: calls, text sent, text sent twice, and the documents that answer."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from knowledge_lookup.agents.lookup_result import PassageSpan
from knowledge_lookup.pipeline.evaluation.report import Share
from knowledge_lookup.pipeline.evaluation.sessions import Agent, QuerySession, SessionRun

LEAST_OVERLAP = 20
"""From so many characters on that the session already had, a passage counts as sent twice."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of each session.

    :param values: One value a session, none below 0.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return fmean(self.values) if self.values else None

    def to_dict(self) -> dict[str, Any]:
        """Return mean, extremes and number as JSON values."""
        if self.mean is None:
            return {"mean": None, "least": None, "most": None, "n": 0}
        least, most = round(min(self.values), 4), round(max(self.values), 4)
        return {"mean": round(self.mean, 4), "least": least, "most": most, "n": len(self.values)}

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{_number(self.mean)} ({_number(min(self.values))}-{_number(max(self.values))})"


@dataclass(frozen=True, slots=True)
class Repetition:
    """What a session was sent more than once.

    :param passages: Passages of which it already had :data:`LEAST_OVERLAP` characters or more, or all.
    :param characters: How many characters of these passages it already had.
    """

    passages: int
    characters: int


def repetition(passages: Iterable[PassageSpan]) -> Repetition:
    """Find what was sent more than once, by document and range of characters.

    :param passages: All that a session was sent, in order.
    :returns: The passages sent again, and the characters.
    """
    sent: dict[str, set[int]] = defaultdict(set)
    repeated = characters = 0
    for passage in passages:
        offsets = set(range(passage.start, passage.end))
        again = len(offsets & sent[passage.file_path])
        if again >= LEAST_OVERLAP or (offsets and again == len(offsets)):
            repeated += 1
            characters += again
        sent[passage.file_path] |= offsets
    return Repetition(repeated, characters)


class AgentFigures:
    """The figures of one agent, a value for each session.

    :param runs: The agent's runs.
    """

    def __init__(self, runs: Iterable[SessionRun]) -> None:
        runs = tuple(runs)
        passages = [[passage for answer in run.answers for passage in answer.passages] for run in runs]
        again = [repetition(of_run) for of_run in passages]
        self.calls = _spread(len(run.answers) for run in runs)
        """Calls of the tool."""
        self.characters = _spread(sum(len(answer.text) for answer in run.answers) for run in runs)
        """Characters that the model had to read, labels and messages included."""
        self.passages = _spread(map(len, passages))
        """Pieces of documents sent."""
        self.passages_again = _spread(one.passages for one in again)
        """Pieces of which the session already had a part."""
        self.characters_again = _spread(one.characters for one in again)
        """Characters of documents that the session already had."""
        self.gold_sent = _spread(
            len(run.session.gold & {passage.file_path for passage in of_run}) / len(run.session.gold)
            for run, of_run in zip(runs, passages, strict=True)
            if run.session.gold
        )
        """Share of the documents that answer of which something was sent, 0 to 1; of sessions that have any."""
        unanswerable = [answer for run in runs if not run.session.gold for answer in run.answers]
        self.answered_without_gold = Share(sum(bool(answer.passages) for answer in unanswerable), len(unanswerable))
        """Calls that sent text, of sessions that nothing answers."""

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values."""
        return {
            "calls": self.calls.to_dict(),
            "characters": self.characters.to_dict(),
            "passages": self.passages.to_dict(),
            "passagesAgain": self.passages_again.to_dict(),
            "charactersAgain": self.characters_again.to_dict(),
            "goldSent": self.gold_sent.to_dict(),
            "answeredWithoutGold": self.answered_without_gold.to_dict(),
        }

    def described(self) -> dict[str, str]:
        """Return all figures for people to read, by their names."""
        return {
            "tool calls": str(self.calls),
            "characters sent": str(self.characters),
            "passages sent": str(self.passages),
            "passages sent again": str(self.passages_again),
            "characters sent again": str(self.characters_again),
            "right documents sent": str(self.gold_sent),
            "unanswerable calls that got text": str(self.answered_without_gold),
        }


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What the agents came to over the same sessions.

    :param sessions: The sessions.
    :param figures: The figures of each agent.
    """

    sessions: tuple[QuerySession, ...]
    figures: Mapping[Agent, AgentFigures]

    @classmethod
    def of(cls, runs: Mapping[Agent, tuple[SessionRun, ...]]) -> "SessionReport":
        """Compute the figures of runs.

        :param runs: What ``run_sessions`` returned.
        :returns: The report.
        """
        sessions = next(iter(runs.values()))
        return cls(tuple(run.session for run in sessions), {agent: AgentFigures(of) for agent, of in runs.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values."""
        return {
            "sessions": len(self.sessions),
            "answerable": sum(bool(session.gold) for session in self.sessions),
            "agents": {agent.value: figures.to_dict() for agent, figures in self.figures.items()},
        }


def _spread(values: Iterable[float]) -> Spread:
    return Spread(tuple(values))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
