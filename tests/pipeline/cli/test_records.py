"""``stats`` and ``records``, through the command line's entry point."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.storage import Database, InvocationRepository, hash_key_in, hashed_query
from tests.knowledge_bases import document, write_documents

from .conftest import Run

HOSTILE = [
    "[bold red]x[/bold red] [link=http://evil.example]y[/link]",
    "\x1b]0;title\x07\x1b[31mred",
    "a\n\nb\u202eright",
]


def call(query: str = "q", *, age: timedelta = timedelta(minutes=5), **changes: Any) -> ToolInvocation:
    values: dict[str, Any] = {
        "request_id": "0a1b2c3d",
        "session_id": "s1",
        "tool_name": "lookup_knowledge",
        "found": True,
        "confidence": "high",
        "latency_ms": 12.0,
        "relevance_level": "PRECISE",
        "dedup_reason": None,
        "retrieval_details": {"l0_ms": 0.1, "l1_ms": None, "sources": ["kb/api/a.md"]},
    }
    return ToolInvocation(query=query, created_at=datetime.now(UTC) - age, **values | changes)


def nothing(query: str, **changes: Any) -> ToolInvocation:
    return call(query, found=False, confidence=None, relevance_level=None, **changes)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Give the embedded database of the working directory."""
    database = Database(None, data_dir=tmp_path / ".knowledge-lookup")
    database.ensure_current()
    return database


def write(database: Database, *calls: ToolInvocation) -> None:
    InvocationRepository(database).insert_many(calls)


def test_stats_of_nothing_say_so_and_check_is_silent(run: Run) -> None:
    code, out, err = run("stats")
    assert (code, err) == (0, "")
    assert out.startswith("0 calls from ")
    assert run("stats", "--check") == (0, "", "")


def test_stats_for_people_show_the_figures(run: Run, database: Database) -> None:
    write(database, *[call() for _ in range(1200)], nothing("如何扩容"), nothing("如何扩容？"))
    code, out, _ = run("stats")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert out.startswith("1,202 calls from ")
    assert "found 1,200, held back 0, nothing found 2, undecided 0, failed 0" in out
    assert ["total", "1,202", "12", "12", "12", "12"] in lines
    assert ["PRECISE", "1,200"] in lines
    assert ["api", "1,200"] in lines
    assert [line[:2] for line in lines if line and line[0] == "如何扩容？"] == [["如何扩容？", "2"]]
    assert [line[:4] for line in lines if line and line[0] == "s1"] == [["s1", "1,202", "1,200", "0"]]


def test_stats_as_json_are_one_object_of_the_window_that_was_asked_for(run: Run, database: Database) -> None:
    write(database, call(), call(age=timedelta(hours=2)), call(age=timedelta(days=2)))
    counts = {}
    for since in ("60m", "3h", "7d"):
        code, out, err = run("stats", "--since", since, "--json")
        assert (code, err) == (0, "")
        counts[since] = json.loads(out)["calls"]
    assert counts == {"60m": 1, "3h": 2, "7d": 3}
    _, out, _ = run("stats", "--json")
    found = json.loads(out)
    assert (found["calls"], found["alerts"]) == (2, [])
    assert datetime.fromisoformat(found["until"]) - datetime.fromisoformat(found["since"]) == timedelta(hours=24)


@pytest.mark.parametrize("since", ["", "24", "h", "0h", "-1h", "1y", "1.5h", "999999999w", "１h", "1 h", "\x1b[31m"])
def test_a_time_that_is_none_is_wrong_usage(run: Run, since: str) -> None:
    code, out, err = run("stats", f"--since={since}")
    assert (code, out) == (2, "")
    assert "as 30m, 24h or 7d" in " ".join(err.split())
    assert "\x1b" not in err


def test_hostile_queries_stay_text_on_the_terminal_and_in_the_page(
    run: Run, database: Database, tmp_path: Path
) -> None:
    write(database, *(nothing(query, session_id=query, dedup_reason=None) for query in HOSTILE))
    _, out, _ = run("stats")
    assert HOSTILE[0] in out
    assert r"\x1b]0;title\x07\x1b[31mred" in out
    assert r"a b\u202eright" in out
    assert "\x1b" not in out
    assert "\u202e" not in out
    code, out, _ = run("stats", "--html", "page.html")
    assert (code, out) == (0, "wrote page.html\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert r"\x1b]0;title\x07\x1b[31mred" in page
    assert "\x1b" not in page
    _, out, _ = run("stats", "--json")
    assert {gap["query"] for gap in json.loads(out)["nothingFound"]["mostAsked"]} == set(HOSTILE)
    assert "\x1b" not in out


def test_check_prints_a_line_for_each_alert_and_exits_with_3(run: Run, database: Database, tmp_path: Path) -> None:
    slow = nothing("q", latency_ms=2500.0, retrieval_details={"l0_ms": 0.1, "l1_ms": 2000.0, "l0_error": "E: away"})
    write(database, *[slow, *(nothing("q", latency_ms=2500.0) for _ in range(59))])
    expected = [
        "alert: total latency: P95 of 60 calls is 2,500 ms, above the limit of 2,000 ms",
        "alert: keyword index: 1 of 60 calls could not load it from the database",
        "alert: high confidence: 0.0% of 60 look-ups had a decisive exact match, below the limit of 20.0%",
    ]
    code, out, err = run("stats", "--check")
    assert (code, out.splitlines(), err) == (3, expected, "")
    code, out, _ = run("stats", "--check", "--json", "--html", "page.html")
    assert code == 3
    assert [f"alert: {alert['message']}" for alert in json.loads(out)["alerts"]] == expected
    assert "总耗时过高" in (tmp_path / "page.html").read_text(encoding="utf-8")
    # Without --check the figures are shown, and nothing is wrong with the command.
    code, out, _ = run("stats")
    assert code == 0
    assert out.splitlines()[:3] == expected


def test_rules_are_those_of_the_settings(run: Run, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    write(database, *(nothing("q", latency_ms=2500.0) for _ in range(60)))
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_ALERTS__TOTAL_LATENCY_MS", "null")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_ALERTS__HIGH_CONFIDENCE_CALLS", "61")
    assert run("stats", "--check") == (0, "", "")


def test_check_tries_whether_the_keyword_index_loads_now(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"a.md": document("文本。", keywords="[ERR_A]")})
    run("sync")
    assert run("stats", "--check")[0] == 0
    database = Database(None, data_dir=tmp_path / ".knowledge-lookup")
    database.write(lambda connection: connection.execute(text("UPDATE api_document SET metadata = '{damaged'")))
    database.close()
    code, out, _ = run("stats", "--check")
    assert code == 3
    assert out.startswith("alert: keyword index: it can't be loaded now: ")
    assert out.count("\n") == 1


@pytest.mark.parametrize("arguments", [["stats"], ["stats", "--check"], ["records", "prune", "--older-than", "1d"]])
def test_a_database_that_cannot_be_read_is_an_error_of_one_line(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / ".knowledge-lookup").mkdir()
    (tmp_path / ".knowledge-lookup" / "knowledge-lookup.db").write_bytes(b"no database at all" * 100)
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: database ")
    assert err.count("\n") == 1


def test_a_page_that_cannot_be_written_is_an_error_of_one_line(run: Run, tmp_path: Path) -> None:
    code, out, err = run("stats", "--html", "missing/page.html")
    assert (code, out) == (1, "")
    assert err.startswith("error: 'missing/page.html' can't be written")
    assert err.count("\n") == 1


def test_a_page_follows_links_and_goes_through_pipes_without_replacing_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "target.html").write_text("old")
    (tmp_path / "link.html").symlink_to("target.html")
    assert run("stats", "--html", "link.html")[0] == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "target.html").read_text(encoding="utf-8")

    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text, encoding="utf-8")
        assert run("stats", "--html", "pipe")[0] == 0
        assert "<html" in read.result(10)
    assert (tmp_path / "pipe").is_fifo()


def test_a_section_that_is_not_there_is_no_gap_of_the_knowledge_base(run: Run, database: Database) -> None:
    details = {"l0_ms": 0.1, "by_section": True, "sources": []}
    write(database, nothing("Redis", dedup_reason=None, retrieval_details=details), nothing("Kafka", dedup_reason=None))
    figures = json.loads(run("stats", "--json")[1])
    assert [gap["query"] for gap in figures["nothingFound"]["mostAsked"]] == ["Kafka"]


def test_prune_removes_what_is_older_than_said(run: Run, database: Database) -> None:
    write(database, call(age=timedelta(days=31)), call(age=timedelta(days=29)), call())
    code, out, err = run("records", "prune", "--older-than", "30d", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith("would remove 1 records from before ")
    assert out.endswith("; 2 are kept\n")
    assert json.loads(run("stats", "--since", "60d", "--json")[1])["calls"] == 3
    code, out, err = run("records", "prune", "--older-than", "30d")
    assert (code, err) == (0, "the database file keeps its size; new records use the room\n")
    assert out.startswith("removed 1 records from before ")
    code, out, _ = run("records", "prune", "--older-than", "30d", "--json")
    report = json.loads(out)
    assert (report["removed"], report["kept"], report["dryRun"]) == (0, 2, False)


def test_prune_takes_the_age_of_the_settings_and_asks_for_one_without(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, call(age=timedelta(days=8)), call(age=timedelta(days=6)))
    code, out, err = run("records", "prune")
    assert (code, out) == (1, "")
    assert "set records.keep-days, or say it with --older-than" in err
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_RECORDS__KEEP_DAYS", "7")
    code, out, _ = run("records", "prune", "--json")
    assert (code, json.loads(out)["removed"], json.loads(out)["kept"]) == (0, 1, 1)


def test_queries_are_recorded_as_hashes_where_the_settings_say_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_RECORDS__HASH_QUERIES", "true")
    write_documents(tmp_path / "knowledge_base", {"a.md": document("文本。", keywords="[ERR_A]")})
    run("sync")
    for query in ("今天中午吃什么", "今天中午吃什么？"):
        assert json.loads(run("lookup", query, "--json")[1])["found"] is False
    hashed = hashed_query("今天中午吃什么", hash_key_in(tmp_path / ".knowledge-lookup"))
    _, out, _ = run("stats", "--json")
    gaps = json.loads(out)["nothingFound"]["mostAsked"]
    assert [(gap["query"], gap["isHashed"], gap["calls"]) for gap in gaps] == [(hashed, True, 2)]
    _, out, _ = run("stats")
    assert hashed in out
    assert "its text was not recorded" in out
    written = b"".join(path.read_bytes() for path in (tmp_path / ".knowledge-lookup").glob("*.db*") if path.is_file())
    assert hashed.encode() in written
    assert "吃什么".encode() not in written


def test_no_text_of_a_hashed_query_waits_on_disk_while_the_database_is_away(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"a.md": document("文本。", keywords="[ERR_A]")})
    (tmp_path / "knowledge-lookup.yml").write_text(
        "database: {url: 'mysql+pymysql://u:p@127.0.0.1:1/x'}\nrecords: {hash-queries: true}\n", encoding="utf-8"
    )
    with KnowledgePipeline.from_settings() as pipeline:
        assert pipeline.lookup("ERR_A 是什么").found
    hashed = hashed_query("ERR_A 是什么", hash_key_in(tmp_path / ".knowledge-lookup"))
    waiting = b"".join(path.read_bytes() for path in (tmp_path / ".knowledge-lookup").iterdir() if path.is_file())
    assert hashed.encode() in waiting
    assert "是什么".encode() not in waiting
    code, out, err = run("stats", "--check")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_pipeline_sees_the_calls_that_it_has_just_recorded(tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"a.md": document("文本。", keywords="[ERR_A]")})
    with KnowledgePipeline.from_settings(
        Settings(records={"hash_queries": True, "hash_key": "0123456789abcdef"})
    ) as pipeline:
        pipeline.sync()
        pipeline.lookup("ERR_A", session_id="s")
        figures = pipeline.stats()
        assert (figures.calls, figures.high_confidence.count, figures.sessions.count) == (1, 1, 1)
        assert pipeline.alerts(figures) == []
        assert pipeline.prune_records(timedelta(days=1), dry_run=True).kept == 1
        with pytest.raises(ValueError, match="must be above 0"):
            pipeline.prune_records(timedelta(0))
    # The key of the settings leaves no key file.
    assert not list((tmp_path / ".knowledge-lookup").glob("*.key"))
