"""`evaluate --sessions`: what scripted agents are sent, through the command line's entry point."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.knowledge_bases import BUNDLED_DOCUMENTS

from .conftest import Run

CODE = {
    "topic": "ERR_TIMEOUT",
    "gold": ["api/payment-errors.md"],
    "queries": ["ERR_TIMEOUT", "ERR_TIMEOUT 怎么处理", "支付网关超时", "支付网关", "ERR_TIMEOUT", "超时"],
}
LUNCH = {"topic": "午饭", "gold": [], "queries": ["今天中午吃什么", "食堂几点开门"]}


@pytest.fixture
def indexed(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A working directory with the bundled documents indexed and two sessions."""
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    settings(tmp_path)
    write_sessions(tmp_path, CODE, LUNCH)
    return tmp_path


def settings(folder: Path, **others: Any) -> None:
    """Write settings for the bundled documents; JSON is YAML."""
    tree = {"knowledge": {"base-path": str(BUNDLED_DOCUMENTS)}} | others
    (folder / "knowledge-lookup.yml").write_text(json.dumps(tree), encoding="utf-8")


def write_sessions(folder: Path, *sessions: dict[str, Any]) -> None:
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, sessions)), encoding="utf-8")


def test_the_figures_of_each_agent_are_printed(run: Run, indexed: Path) -> None:
    code, out, err = run("evaluate", "--sessions", "s.jsonl")
    lines = out.splitlines()
    assert code == 0, err
    assert lines[0].startswith("2 sessions, 1 with documents that answer")
    assert [line for line in lines if line.endswith(":")] == ["obedient:", "forgetful:", "stubborn:"]
    stubborn = lines[lines.index("stubborn:") :]
    assert stubborn[1] == f"  {'tool calls':32}4 (2-6)"
    assert f"  {'passages sent again':32}0 (0-0)" in stubborn
    assert f"  {'right documents sent':32}1 (1-1)" in stubborn


def test_the_same_figures_come_as_json(run: Run, indexed: Path) -> None:
    code, out, err = run("evaluate", "--sessions", "s.jsonl", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["sessions"], result["answerable"]) == (2, 1)
    agents = result["agents"]
    assert [agents[name]["calls"]["most"] for name in ("obedient", "forgetful", "stubborn")] == [1, 4, 6]
    assert agents["stubborn"]["goldSent"] == {"mean": 1.0, "least": 1.0, "most": 1.0, "n": 1}
    assert agents["stubborn"]["answeredWithoutGold"]["count"] == 0
    assert agents["obedient"]["characters"]["mean"] < agents["stubborn"]["characters"]["mean"]


def test_the_limits_of_the_settings_apply(run: Run, indexed: Path) -> None:
    settings(indexed, session={"max-lookups": 1})
    write_sessions(indexed, CODE | {"queries": ["ERR_TIMEOUT", "Flyway", "Redis"], "gold": []})
    _, out, _ = run("evaluate", "--sessions", "s.jsonl", "--json")
    answered = json.loads(out)["agents"]["stubborn"]["answeredWithoutGold"]
    assert (answered["count"], answered["n"]) == (1, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give one of the two"),
        (["--queries", "q.jsonl", "--sessions", "s.jsonl"], "give one of the two"),
        (["--sessions", "s.jsonl", "--against", "b.yml"], "compares labelled queries, not sessions"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(run: Run, options: list[str], message: str) -> None:
    code, out, err = run("evaluate", *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"topic": "a", "gold": []}', 's.jsonl:1: "queries" must be a list of texts'),
        (json.dumps(LUNCH | {"gold": ["no.md"]}), "'no.md', gold of '午饭', is not a document of this knowledge base"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(run: Run, indexed: Path, text: str, message: str) -> None:
    (indexed / "s.jsonl").write_text(text, encoding="utf-8")
    code, out, err = run("evaluate", "--sessions", "s.jsonl", "--json")
    assert (code, out) == (1, "")
    assert err.strip().splitlines()[-1].startswith(f"error: {message}")
