"""`lookup --explain` and the evidence in `evaluate`, through the command line's entry point."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.knowledge_bases import BUNDLED_DOCUMENTS

from .conftest import Run

QUESTION = "数据库连接被耗尽，应用拿不到连接"
POOL = "infrastructure/mysql-connection-pool.md"


def write_settings(folder: Path, **others: Any) -> None:
    """Write settings for the bundled documents; JSON is YAML."""
    settings = {"knowledge": {"base-path": str(BUNDLED_DOCUMENTS)}} | others
    (folder / "knowledge-lookup.yml").write_text(json.dumps(settings), encoding="utf-8")


@pytest.fixture
def indexed(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A working directory with the bundled documents indexed."""
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    write_settings(tmp_path)
    return tmp_path


def explain(run: Run, query: str) -> tuple[str, list[str]]:
    """The result and the lines of the explanation below it."""
    code, out, err = run("lookup", query, "--explain")
    assert code == 0, err
    result, _, explanation = out.partition("\n--- evidence\n")
    return result, explanation.splitlines()


@pytest.mark.usefixtures("indexed")
def test_the_result_is_followed_by_words_thresholds_and_passages(run: Run) -> None:
    result, lines = explain(run, QUESTION)
    _, plain, _ = run("lookup", QUESTION)
    assert result.rstrip("\n") == plain.rstrip("\n")
    assert lines[0].startswith("words of the query (passages that have them): 数据 (")
    assert lines[1] == "thresholds: HIGHLY_RELEVANT from 0.900, REFERENCE from 0.300"
    score, level, document = lines[2].split()[:3]
    assert (level, document) == ("HIGHLY_RELEVANT", POOL)
    assert float(score) >= 0.9
    assert "rank by meaning 1, by words" in lines[3]
    assert "similarity 0." in lines[4]
    assert "words covered 0." in lines[4]


@pytest.mark.usefixtures("indexed")
def test_a_query_that_finds_nothing_shows_what_was_rejected(run: Run) -> None:
    result, lines = explain(run, "今天中午吃什么")
    assert result.startswith("nothing found")
    judged = [line.split() for line in lines if ".md" in line]
    assert len(judged) == 3
    assert {level for _, level, *_ in judged} == {"below"}
    assert "中午 (0)" in lines[0]


@pytest.mark.usefixtures("indexed")
def test_a_decisive_match_says_so_and_shows_no_passages(run: Run) -> None:
    result, lines = explain(run, "ERR_TIMEOUT")
    assert result.startswith("PRECISE: ")
    assert lines == [
        "keyword match: api/payment-errors.md by err_timeout",
        "the matched terms account for the whole query: PRECISE, and semantic search is not asked",
    ]


def test_with_explicit_thresholds_similarities_are_explained(run: Run, indexed: Path) -> None:
    write_settings(indexed, retrieval={"normalization": {"highly-relevant-threshold": 0.95}})
    _, lines = explain(run, QUESTION)
    # The other threshold is that of the model's normalization profile.
    assert lines[0] == "thresholds: HIGHLY_RELEVANT from 0.950, REFERENCE from 0.876"
    assert lines[1].split()[1] == "REFERENCE"
    assert not any("words" in line and "covered" in line for line in lines)


@pytest.mark.usefixtures("indexed")
def test_an_explanation_is_for_people_and_has_no_json(run: Run) -> None:
    code, out, err = run("lookup", QUESTION, "--explain", "--json")
    assert (code, out) == (2, "")
    assert "--explain" in err
    assert "leave out --json" in err


@pytest.mark.usefixtures("indexed")
def test_a_session_goes_on_as_without_explanation(run: Run) -> None:
    run("lookup", QUESTION, "--session", "s", "--explain")
    _, out, _ = run("lookup", QUESTION, "--session", "s", "--json")
    assert POOL not in json.loads(out).get("supplement", {}).get("source", "")


@pytest.mark.usefixtures("indexed")
def test_the_worst_errors_of_an_evaluation_carry_their_evidence(run: Run, tmp_path: Path) -> None:
    wrong = [
        {"query": "ERR_TIMEOUT", "gold": [POOL]},
        {"query": QUESTION, "gold": ["domain/spring-ai-tool-best-practices.md"]},
        {"query": "今天中午吃什么", "gold": [POOL]},
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, wrong)), encoding="utf-8")
    code, out, err = run("evaluate", "--queries", "q.jsonl", "--json")
    assert code == 0, err
    precise, strong, missed = json.loads(out)["worst"]
    assert (precise["level"], precise["evidence"]) == ("PRECISE", "keyword err_timeout in api/payment-errors.md")
    assert strong["level"] == "HIGHLY_RELEVANT"
    assert strong["evidence"].startswith(f"{POOL} 0.9")
    assert "lift 0." in strong["evidence"]
    assert "coverage 0." in strong["evidence"]
    # What was rejected is said as well.
    assert missed["level"] is None
    assert "unknown 1," in missed["evidence"]
