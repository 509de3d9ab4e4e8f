"""`tune`, through the command line's entry point."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from knowledge_lookup.pipeline.cli import main
from tests.knowledge_bases import BUNDLED_DOCUMENTS

from .conftest import Run

QUERIES = Path(__file__).parents[2] / "labelled_queries" / "bundled.jsonl"
UNANSWERABLE = "今天中午吃什么"


def write_settings(folder: Path, **others: Any) -> None:
    """Write settings for the bundled documents; JSON is YAML."""
    settings = {"knowledge": {"base-path": str(BUNDLED_DOCUMENTS)}} | others
    (folder / "knowledge-lookup.yml").write_text(json.dumps(settings), encoding="utf-8")


def write_queries(folder: Path, *, count: int) -> None:
    """Write some natural questions, which no keyword settles."""
    lines = [line for line in QUERIES.read_text(encoding="utf-8").splitlines() if '"natural"' in line]
    (folder / "q.jsonl").write_text("\n".join(lines[:count]), encoding="utf-8")


@pytest.fixture
def indexed(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A working directory with the bundled documents indexed."""
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    write_settings(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, indexed_bundle: Path) -> tuple[Path, str]:
    """A working directory in which all labelled queries were used for tuning, and what that printed."""
    folder = tmp_path_factory.mktemp("tuned")
    copytree(indexed_bundle, folder / ".knowledge-lookup")
    write_settings(folder)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["knowledge-lookup", "tune", "--queries", str(QUERIES), "--json"])
        with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
            main()
    return folder, out.getvalue()


def test_all_labelled_queries_give_json_alone_with_cross_validated_figures(tuned: tuple[Path, str]) -> None:
    result = json.loads(tuned[1])
    assert list(result) == [
        "method",
        "answerable",
        "unanswerable",
        "leftAside",
        "before",
        "after",
        "shortcomings",
        "profile",
        "file",
        "applied",
    ]
    # 182 answerable queries and 52 unanswerable ones; the former are asked a second time without their documents.
    assert (result["method"], result["applied"]) == ("labels", False)
    assert result["answerable"] + result["leftAside"] == 182
    assert result["unanswerable"] == result["answerable"] + 52
    for figures in (result["before"], result["after"]):
        assert figures["hitRate"]["n"] == result["answerable"]
        assert figures["notFoundRate"]["n"] == result["unanswerable"]
        low, high = figures["notFoundRate"]["interval95"]
        assert low <= figures["notFoundRate"]["share"] <= high
    assert result["after"]["recallAt1"]["share"] > 0.9
    assert result["after"]["notFoundRate"]["share"] > 0.9


def test_the_profile_is_saved_for_people_to_read_and_not_applied(tuned: tuple[Path, str]) -> None:
    result = json.loads(tuned[1])
    [path] = (tuned[0] / ".knowledge-lookup" / "profiles").iterdir()
    assert tuned[0] / result["file"] == path
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["profile"] == result["profile"]
    assert content["made_from"] == {
        key: value for key, value in result.items() if key not in {"profile", "file", "applied"}
    }


def test_without_apply_the_next_command_finds_what_it_found_before(
    run: Run, tuned: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tuned[0])
    _, out, _ = run("lookup", UNANSWERABLE, "--explain")
    assert out.startswith("nothing found")
    assert "thresholds: HIGHLY_RELEVANT from 0.900, REFERENCE from 0.300" in out


def test_apply_changes_what_the_next_command_finds_unless_thresholds_are_set(run: Run, indexed: Path) -> None:
    write_queries(indexed, count=40)
    write_settings(indexed, retrieval={"normalization": {"highly-relevant-threshold": 0.904}})
    code, out, err = run("tune", "--queries", "q.jsonl", "--most-answered", "1", "--apply")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "40 answerable and 40 unanswerable samples from labelled queries"
    assert "profile in use:" in lines
    assert "new profile, cross-validated:" in lines
    assert lines[-2].endswith("REFERENCE 0.000")
    assert lines[-1].endswith(".applied.json, and used from now on")
    assert err.strip().splitlines()[-1] == (
        "thresholds are set in retrieval.normalization: as long as they are, no profile is used"
    )
    _, out, _ = run("lookup", UNANSWERABLE, "--json")
    assert json.loads(out)["found"] is False

    # Whatever is asked may get a result, once the profile is used.
    write_settings(indexed)
    _, out, _ = run("lookup", UNANSWERABLE, "--json")
    assert json.loads(out)["found"] is True


@pytest.mark.usefixtures("indexed")
def test_six_documents_give_too_few_queries_to_tune_without_labels(run: Run) -> None:
    code, out, err = run("tune", "--auto", "--json")
    assert (code, out) == (1, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: the documents give ")
    assert " queries, at least 100 are needed to tune without labels" in last
    assert last.endswith("label queries and tune with --queries")


@pytest.mark.usefixtures("indexed")
def test_too_few_labels_are_one_line_that_says_how_many_are_needed(run: Run, indexed: Path) -> None:
    write_queries(indexed, count=39)
    code, out, err = run("tune", "--queries", "q.jsonl")
    assert (code, out) == (1, "")
    assert err.strip().splitlines()[-1].startswith("error: 39 answerable queries")
    assert not (indexed / ".knowledge-lookup" / "profiles").exists()


@pytest.mark.parametrize("options", [(), ("--queries", "q.jsonl", "--auto"), ("--apply",)], ids=str)
def test_labelled_queries_or_auto_is_needed_and_not_both(run: Run, options: tuple[str, ...]) -> None:
    code, out, err = run("tune", *options)
    assert (code, out) == (2, "")
    assert "--queries / --auto" in err
    assert "give labelled queries, or --auto to tune without" in err


@pytest.mark.parametrize(("option", "value"), [("--most-answered", "1.5"), ("--least-right", "-0.1")])
def test_a_goal_that_is_no_share_is_a_usage_error(run: Run, option: str, value: str) -> None:
    code, _, err = run("tune", "--auto", option, value)
    assert code == 2
    assert option in err


def test_a_file_of_queries_that_is_not_there_is_refused_before_anything_is_indexed(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path)
    code, out, err = run("tune", "--queries", "nowhere.jsonl")
    assert (code, out) == (1, "")
    assert err.startswith("error: 'nowhere.jsonl' can't be read")
    assert not (tmp_path / ".knowledge-lookup").exists()


def test_a_damaged_profile_is_one_line_and_exit_code_1(run: Run, tuned: tuple[Path, str], tmp_path: Path) -> None:
    copytree(tuned[0], tmp_path, dirs_exist_ok=True)
    [fitted] = (tmp_path / ".knowledge-lookup" / "profiles").iterdir()
    applied = fitted.with_name(fitted.name.replace(".fitted.", ".applied."))
    applied.write_text(fitted.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    for command in (("lookup", UNANSWERABLE, "--json"), ("tune", "--auto")):
        code, out, err = run(*command)
        last = err.strip().splitlines()[-1]
        assert (code, out) == (1, "")
        assert last.startswith("error: '")
        assert "is not a profile" in last
        assert "Traceback" not in err
