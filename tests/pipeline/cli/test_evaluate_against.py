"""`evaluate --against`: two configurations side by side, through the command line's entry point."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.knowledge_bases import BUNDLED_DOCUMENTS, document, write_documents

from .conftest import Run

CODE = {"query": "ERR_TIMEOUT 怎么处理", "gold": ["api/payment-errors.md"], "kind": "keyword"}
QUESTION = {
    "query": "数据库连接被耗尽，应用拿不到连接",
    "gold": ["infrastructure/mysql-connection-pool.md"],
    "kind": "natural",
}


@pytest.fixture
def indexed(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A working directory with the bundled documents indexed and two queries, the second of which needs Milvus."""
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    settings(tmp_path / "a.yml")
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, (CODE, QUESTION))), encoding="utf-8")
    return tmp_path


def settings(path: Path, **others: Any) -> None:
    """Write settings for the bundled documents; JSON is YAML."""
    path.write_text(json.dumps({"knowledge": {"base-path": str(BUNDLED_DOCUMENTS)}} | others), encoding="utf-8")


def evaluate(run: Run, *options: str) -> tuple[int, str, str]:
    return run("--config", "a.yml", "evaluate", "--queries", "q.jsonl", "--against", "b.yml", *options)


STRICT = {"normalization": {"highly-relevant-threshold": 1, "reference-threshold": 1}}


def test_other_thresholds_over_the_same_index_are_compared_as_json(run: Run, indexed: Path) -> None:
    settings(indexed / "b.yml", retrieval=STRICT)
    code, out, err = evaluate(run, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert list(result) == ["first", "second", "comparison"]
    assert (result["first"]["hitRate"]["count"], result["second"]["hitRate"]["count"]) == (2, 1)
    hits = result["comparison"]["hitRate"]
    assert (hits["onlyFirst"], hits["onlySecond"], hits["pValue"]) == (1, 0, 1.0)
    assert result["comparison"]["mrr"]["difference"] == 0.0  # thresholds don't change the ranking
    (difference,) = result["comparison"]["disagreements"]
    assert difference["query"] == QUESTION["query"]
    assert (difference["first"]["right"], difference["second"]["right"]) == (True, False)
    assert difference["second"]["level"] is None
    assert "evaluating a.yml" in err
    assert "evaluating b.yml" in err


def test_both_are_printed_side_by_side_with_what_the_difference_means(run: Run, indexed: Path) -> None:
    settings(indexed / "b.yml", retrieval=STRICT)
    code, out, _ = evaluate(run)
    lines = out.splitlines()
    assert code == 0
    assert lines[:2] == ["first:  a.yml", "second: b.yml"]
    assert lines[3:5] == ["all: 2 queries", f"{'':24}{'first':29}second"]
    assert f"  {'hit rate':22}{'1.000 (0.342-1.000, n=2)':29}0.500 (0.095-0.905, n=2)" in lines
    assert (
        f"    {'hit rate':20}-0.500, only first right 1, only second 0, p=1: no difference that n=2 queries could show"
        in lines
    )
    assert "different on 1 queries" in lines
    assert lines[-1].startswith("only first right (first: ")
    assert lines[-1].endswith(
        f"; second: not found): {QUESTION['query']} (right: infrastructure/mysql-connection-pool.md)"
    )


def test_a_difference_beyond_chance_says_which_is_better_and_lists_at_most_twenty_queries(
    run: Run, indexed: Path
) -> None:
    settings(indexed / "b.yml", retrieval=STRICT)
    (indexed / "q.jsonl").write_text("\n".join([json.dumps(QUESTION)] * 23), encoding="utf-8")
    _, out, _ = evaluate(run)
    lines = out.splitlines()
    assert (
        f"    {'hit rate':20}-1.000, only first right 23, only second 0, p<0.001: "
        "the first is better, and chance alone hardly explains it"
    ) in lines
    assert sum(line.startswith("only first right (") for line in lines) == 20
    assert lines[-1] == "and 3 more; --json lists all"


def test_another_data_dir_is_compared_and_its_unindexed_knowledge_base_is_indexed_first(
    run: Run, indexed: Path
) -> None:
    write_documents(indexed / "docs", {"api/payment-errors.md": document("超时就查单。", keywords="[ERR_TIMEOUT]")})
    settings(indexed / "b.yml", knowledge={"base-path": "docs"}, **{"data-dir": "other-data"})
    (indexed / "q.jsonl").write_text(json.dumps(CODE), encoding="utf-8")
    code, out, err = evaluate(run)
    assert code == 0, err
    assert "indexing the knowledge base first" in err
    assert "both are right and wrong on the same queries" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (
            {"milvus": {"collection": "elsewhere"}},
            "b.yml: Milvus has no chunks of this knowledge base in the collection",
        ),
        ({"data-dir": "new", "knowledge": {"base-path": "nowhere"}}, "b.yml: there is no knowledge base folder"),
    ],
)
def test_an_error_names_the_configuration_that_it_is_about(
    run: Run, indexed: Path, others: dict[str, Any], message: str
) -> None:
    settings(indexed / "b.yml", **others)
    code, out, err = evaluate(run, "--json")
    last = err.strip().splitlines()[-1]
    assert (code, out) == (1, "")
    assert last.startswith(f"error: {message}")


def test_a_second_file_that_is_not_valid_is_refused_before_the_first_is_measured(run: Run, indexed: Path) -> None:
    (indexed / "b.yml").write_text("retrieval: {vektor: {}}", encoding="utf-8")
    code, out, err = evaluate(run)
    assert (code, out) == (1, "")
    assert "b.yml: retrieval.vektor" in err
    assert "evaluating" not in err
