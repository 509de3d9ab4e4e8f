"""Scripted agents: what they ask, what their figures mean, and sessions over the bundled documents."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from knowledge_lookup.agents.lookup_result import PassageSpan
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import (
    Agent,
    AgentFigures,
    Ask,
    LabelledQueryError,
    QuerySession,
    Repetition,
    SessionReport,
    SessionRun,
    Share,
    Signal,
    ToolAnswer,
    converse,
    read_sessions,
    repetition,
    require_gold_documents,
    run_sessions,
    sessions_of,
)

TWENTY = QuerySession("topic", frozenset(), tuple(f"variant {number}" for number in range(20)))


def answering(*signals: Signal) -> tuple[Ask, list[str]]:
    """Answer with one signal after the other, the last one for ever; and list what was asked."""
    asked: list[str] = []

    def ask(query: str) -> ToolAnswer:
        asked.append(query)
        return ToolAnswer("text", (), signals[min(len(asked), len(signals)) - 1])

    return ask, asked


def run(pieces: Sequence[Sequence[PassageSpan]], *gold: str) -> SessionRun:
    """A session whose calls sent these pieces, and ten characters each."""
    answers = tuple(ToolAnswer("0123456789", tuple(of_call)) for of_call in pieces)
    return SessionRun(QuerySession("topic", frozenset(gold), ("query",)), answers)


@pytest.mark.parametrize(
    ("signals", "calls"),
    [
        ((Signal.STOP,), 1),
        ((Signal.ONE_MORE, Signal.STOP), 2),
        ((Signal.ONE_MORE,), 2),
        ((Signal.NONE,), 4),
    ],
)
def test_the_obedient_agent_follows_the_signals_and_without_any_is_as_forgetful_as_the_next(
    signals: tuple[Signal, ...], calls: int
) -> None:
    ask, asked = answering(*signals)
    assert len(converse(Agent.OBEDIENT, TWENTY, ask).answers) == calls
    assert asked == list(TWENTY.queries[:calls])


@pytest.mark.parametrize(("agent", "calls"), [(Agent.FORGETFUL, 4), (Agent.STUBBORN, 20)])
def test_the_other_agents_ask_on_whatever_they_are_told(agent: Agent, calls: int) -> None:
    ask, asked = answering(Signal.STOP)
    assert len(converse(agent, TWENTY, ask).answers) == calls
    assert asked == list(TWENTY.queries[:calls])


def test_no_agent_asks_more_than_the_session_has() -> None:
    ask, _ = answering(Signal.NONE)
    assert len(converse(Agent.FORGETFUL, QuerySession("t", frozenset(), ("one", "two")), ask).answers) == 2


def test_each_agent_goes_through_each_session_in_a_session_of_its_own_which_ends() -> None:
    began: list[str] = []
    ended: list[str] = []

    @contextmanager
    def open_session() -> Iterator[Ask]:
        name = str(len(began))
        began.append(name)
        yield answering(Signal.STOP)[0]
        ended.append(name)

    seen: list[tuple[int, int, str]] = []
    other = QuerySession("other", frozenset(), ("one",))
    runs = run_sessions(open_session, [TWENTY, other], progress=lambda *done: seen.append(done))
    assert list(runs) == [Agent.OBEDIENT, Agent.FORGETFUL, Agent.STUBBORN]
    assert [[len(one.answers) for one in of_agent] for of_agent in runs.values()] == [[1, 1], [4, 1], [20, 1]]
    assert ended == began
    assert len(began) == 6
    assert (seen[0], seen[-2], seen[-1]) == ((0, 6, "topic"), (5, 6, "other"), (6, 6, ""))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([PassageSpan("a.md", 0, 100), PassageSpan("a.md", 81, 200)], Repetition(0, 0)),
        ([PassageSpan("a.md", 0, 100), PassageSpan("a.md", 80, 200)], Repetition(1, 20)),
        ([PassageSpan("a.md", 0, 100), PassageSpan("b.md", 0, 100)], Repetition(0, 0)),
        ([PassageSpan("a.md", 0, 100), PassageSpan("a.md", 100, 200), PassageSpan("a.md", 90, 110)], Repetition(1, 20)),
        ([PassageSpan("a.md", 0, 100), PassageSpan("a.md", 40, 45)], Repetition(1, 5)),
        ([PassageSpan("a.md", 0, 50), PassageSpan("a.md", 0, 50), PassageSpan("a.md", 0, 50)], Repetition(2, 100)),
        ([PassageSpan("a.md", 5, 5), PassageSpan("a.md", 5, 5)], Repetition(0, 0)),
    ],
)
def test_a_passage_is_sent_again_from_twenty_known_characters_on_or_when_all_of_it_was_known(
    pieces: list[PassageSpan], expected: Repetition
) -> None:
    assert repetition(pieces) == expected


def test_figures_equal_those_computed_by_hand() -> None:
    a, b = PassageSpan("a.md", 0, 100), PassageSpan("b.md", 0, 60)
    figures = AgentFigures(
        [
            run([[a, b], [a], []], "a.md", "c.md"),
            run([[b]], "b.md"),
            run([[], [a], [], []]),
        ]
    )
    assert figures.calls.values == (3, 1, 4)
    assert figures.characters.values == (30, 10, 40)
    assert figures.passages.values == (3, 1, 1)
    assert figures.passages_again.values == (1, 0, 0)
    assert figures.characters_again.values == (100, 0, 0)
    assert figures.gold_sent.values == (0.5, 1.0)
    assert figures.answered_without_gold == Share(1, 4)
    assert figures.to_dict()["calls"] == {"mean": 2.6667, "least": 1, "most": 4, "n": 3}
    assert figures.described()["tool calls"] == "2.67 (1-4)"


def test_a_figure_of_no_session_is_no_number() -> None:
    figures = AgentFigures([run([[]])])
    assert figures.gold_sent.mean is None
    assert figures.described()["right documents sent"] == "-"
    assert figures.to_dict()["goldSent"] == {"mean": None, "least": None, "most": None, "n": 0}


def test_sessions_are_read_in_order(tmp_path: Path) -> None:
    first = {"topic": "Redis", "gold": ["b.md", "a.md"], "queries": ["Redis", "缓存"], "note": "ignored"}
    second = {"topic": "年假", "gold": [], "queries": ["年假"]}
    lines = [json.dumps(first, ensure_ascii=False), "", json.dumps(second)]
    (tmp_path / "s.jsonl").write_text("\n".join(lines), encoding="utf-8-sig")
    assert read_sessions(tmp_path / "s.jsonl") == [
        QuerySession("Redis", frozenset({"a.md", "b.md"}), ("Redis", "缓存")),
        QuerySession("年假", frozenset(), ("年假",)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", r"s\.jsonl' has no sessions"),
        ('{"topic": "a", "gold": [], "queries": ["a"]}\nnot json', r"s\.jsonl:2: not JSON"),
        ('["a"]', r's\.jsonl:1: an object with a text "topic"'),
        ('{"query": "a", "gold": []}', r's\.jsonl:1: an object with a text "topic"'),
        ('{"topic": "a", "gold": "a.md", "queries": ["a"]}', r's\.jsonl:1: "gold" must be a list of paths'),
        ('{"topic": "a", "gold": []}', r's\.jsonl:1: "queries" must be a list of texts'),
        ('{"topic": "a", "gold": [], "queries": []}', r's\.jsonl:1: "queries" must be a list of texts'),
        ('{"topic": "a", "gold": [], "queries": ["a", " "]}', r's\.jsonl:1: "queries" must be a list of texts'),
    ],
)
def test_a_file_that_is_no_list_of_sessions_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(LabelledQueryError, match=message):
        read_sessions(tmp_path / "s.jsonl")


def test_a_gold_path_that_names_no_document_is_refused() -> None:
    sessions = [QuerySession("Redis", frozenset({"a.md"}), ("Redis",)), TWENTY]
    require_gold_documents(sessions, ["a.md", "b.md"])
    with pytest.raises(LabelledQueryError, match=r"'a\.md', gold of 'Redis'"):
        require_gold_documents(sessions, ["b.md"])


def test_sessions_over_the_bundled_documents_leave_no_trace_and_send_no_passage_twice(
    bundle: KnowledgePipeline,
) -> None:
    sessions = [
        QuerySession(
            "ERR_TIMEOUT",
            frozenset({"api/payment-errors.md"}),
            ("ERR_TIMEOUT", "支付网关超时", "ERR_TIMEOUT 怎么处理", "支付超时后怎么查单", "ERR_TIMEOUT", "支付网关"),
        ),
        QuerySession("午饭", frozenset(), ("今天中午吃什么", "食堂几点开门")),
    ]
    lookup = bundle.unrecorded_lookup()
    runs = run_sessions(sessions_of(lookup), sessions)
    report = SessionReport.of(runs)
    obedient, forgetful, stubborn = report.figures.values()
    assert obedient.calls.values == (1, 1)  # PRECISE; nothing found
    assert forgetful.calls.values == (4, 2)
    assert stubborn.calls.values == (6, 2)
    for figures in report.figures.values():
        assert figures.passages_again.values == (0, 0)
        assert figures.gold_sent.values == (1.0,)
        assert figures.answered_without_gold.count == 0
    first = runs[Agent.STUBBORN][0].answers[0]
    assert json.loads(first.text)["relevanceLevel"] == "PRECISE"
    assert {passage.file_path for passage in first.passages} == {"api/payment-errors.md"}
    assert report.to_dict()["sessions"] == 2
    assert report.to_dict()["agents"]["stubborn"]["calls"]["mean"] == 4

    assert lookup.memory is not bundle.memory
    assert bundle.recorder.flush(timeout=5)
    with bundle.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM tool_invocation").scalar_one() == 0
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM retrieved_document").scalar_one() == 0
