"""Kills a process at each step boundary of a write, then lets another process sync and compares the outcome.

Run as a program: it imports everything once and forks for each case, since a start of Python takes longer than a case.
Standard input is a JSON object with the cases; each result is one JSON line.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, text

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.storage import REQUIRED_REVISION, Database, DocumentRepository
from knowledge_lookup.pipeline.storage.tables import metadata
from knowledge_lookup.retrievers import KeywordIndex, MilvusChunkStore

OLD = "---\ntitle: 错误码\nkeywords: [ERR_OLD]\ncategory: api\n---\n\n## 旧一\n\n旧文本一。\n\n## 旧二\n\n旧文本二。\n"
NEW = "---\ntitle: 错误码\nkeywords: [ERR_NEW]\ncategory: api\n---\n\n## 新\n\n新文本。\n"
OTHER = "---\ntitle: 缓存\nkeywords: [Redis]\n---\n\n缓存说明。\n"
QUERIES = ["ERR_OLD", "ERR_NEW", "Redis", "旧文本二", "新文本"]

_RUN = uuid4().hex[:12]

Patch = tuple[type, str]
STEPS: dict[str, Patch] = {
    "file written": (KnowledgeFiles, "write"),
    "row pending": (DocumentRepository, "ensure_all_pending"),
    "row indexing or deleting": (DocumentRepository, "set_all_status"),
    "chunks written": (MilvusChunkStore, "upsert"),
    "old chunks deleted": (MilvusChunkStore, "delete_chunks_from"),
    "row ready": (DocumentRepository, "set_all_ready"),
    "keywords added": (KeywordIndex, "add"),
    "file deleted": (Path, "unlink"),
    "keywords removed": (KeywordIndex, "remove"),
    "chunks deleted": (MilvusChunkStore, "delete_documents"),
    "row deleted": (DocumentRepository, "delete"),
    "finished": (DocumentWriter, "finish"),
}


def upload(pipeline: KnowledgePipeline, folder: Path) -> None:
    """Upload the new text."""
    pipeline.upload(NEW.encode(), name="errors.md")


def delete(pipeline: KnowledgePipeline, folder: Path) -> None:
    """Delete the document."""
    pipeline.delete("api/errors.md")


def import_folder(pipeline: KnowledgePipeline, folder: Path) -> None:
    """Import a folder with the document."""
    source = folder / "import/api"
    source.mkdir(parents=True)
    (source / "errors.md").write_text(NEW, encoding="utf-8")
    pipeline.import_folder(folder / "import")


def sync(pipeline: KnowledgePipeline, folder: Path) -> None:
    """Sync a folder in which the document was changed, and others are new."""
    (folder / "docs/api/errors.md").write_text(NEW, encoding="utf-8")
    for number in range(3):
        (folder / f"docs/api/new-{number}.md").write_text(f"# 新 {number}\n\n第 {number} 篇。\n", encoding="utf-8")
    pipeline.sync()


WRITES: dict[str, Callable[[KnowledgePipeline, Path], None]] = {
    "upload": upload,
    "replace": upload,
    "delete": delete,
    "import": import_folder,
    "sync": sync,
}


def main() -> None:
    """Run the cases that standard input names."""
    order = json.load(sys.stdin)
    clean_builds: dict[str, Any] = {}
    for case in order["cases"]:
        result = run_case(case, Path(order["folder"]) / uuid4().hex, order["settings"], clean_builds)
        print(json.dumps({"case": case, **result}), flush=True)


def run_case(
    case: dict[str, Any], folder: Path, overrides: dict[str, Any], clean_builds: dict[str, Any]
) -> dict[str, Any]:
    """Kill one write, sync, and tell what is left to complain about."""
    settings = settings_for(folder, overrides, "killed")
    folder.mkdir(parents=True)
    template = folder.parent / ("one document" if case["write"] == "upload" else "two documents")
    if not template.exists() or overrides:
        write_documents(template, with_errors=case["write"] != "upload")
        in_child(lambda: index(settings if overrides else settings_for(template, {}, "template"), template))
    shutil.copytree(template, folder, dirs_exist_ok=True)
    status = in_child(lambda: killed_write(case, folder, settings))
    mended = answer_of_child(lambda: sync_and_look(settings), folder / "mended.json")
    files = str({str(path.relative_to(folder)): path.read_text() for path in sorted((folder / "docs").rglob("*.md"))})
    if files not in clean_builds:
        clean = folder / "clean"
        shutil.copytree(folder / "docs", clean / "docs")
        clean_settings = settings_for(clean, overrides, "clean")
        clean_builds[files] = answer_of_child(lambda: sync_and_look(clean_settings), folder / "expected.json")
    expected = clean_builds[files]
    return {
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "differences": mended["differences"],
        "equal": mended["answers"] == expected["answers"],
        "answers": mended["answers"],
    }


def settings_for(folder: Path, overrides: dict[str, Any], place: str) -> Settings:
    """Give settings for an empty knowledge base; on servers the databases of one place are emptied and used again."""
    milvus = dict(overrides.get("milvus", {}))
    database = dict(overrides.get("database", {}))
    if overrides:
        name = f"crash_{_RUN}_{place}"
        milvus |= {"collection": name, "timeout_seconds": 10}
        server = create_engine(f"{database['server_url']}/mysql")
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE IF NOT EXISTS `{name}`"))
        server.dispose()
        database = {"url": f"{database['server_url']}/{name}"}
    settings = Settings(
        knowledge={"base_path": folder / "docs"}, data_dir=folder / "data", milvus=milvus, database=database
    )
    if overrides:
        in_child(lambda: empty(settings))
    return settings


def empty(settings: Settings) -> None:
    """Leave nothing of an earlier case."""
    database = Database(settings.database.url, data_dir=settings.data_dir)
    if database.current_revision() != REQUIRED_REVISION:
        database.upgrade()
    with database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
    database.close()
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.chunk_store.drop()


def write_documents(folder: Path, *, with_errors: bool) -> None:
    """Write what is there before the killed write."""
    (folder / "docs/api").mkdir(parents=True, exist_ok=True)
    (folder / "docs/redis.md").write_text(OTHER, encoding="utf-8")
    if with_errors:
        (folder / "docs/api/errors.md").write_text(OLD, encoding="utf-8")


def index(settings: Settings, folder: Path) -> None:
    """Index what is there before the killed write."""
    knowledge = settings.knowledge.model_copy(update={"base_path": folder / "docs"})
    with KnowledgePipeline.from_settings(settings.model_copy(update={"knowledge": knowledge})) as pipeline:
        pipeline.sync()


def killed_write(case: dict[str, Any], folder: Path, settings: Settings) -> None:
    """Write, and die at the step."""
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.is_indexed()
        pipeline.lookup("Redis")
        owner, name = STEPS[case["step"]]
        original = getattr(owner, name)
        calls = 0

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if case["when"] == "before" and calls == case["call"]:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if case["when"] == "after" and calls == case["call"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, dying)
        WRITES[case["write"]](pipeline, folder)


def sync_and_look(settings: Settings) -> dict[str, Any]:
    """Sync once, then examine and look everything up."""
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync()
        differences = [str(difference) for difference in pipeline.examine()]
        answers = [json.loads(pipeline.lookup(query).to_json()) for query in QUERIES]
    return {"differences": differences, "answers": answers}


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked process and return its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def answer_of_child(work: Callable[[], dict[str, Any]], path: Path) -> dict[str, Any]:
    """Run in a forked process and return what it computed."""
    status = in_child(lambda: path.write_text(json.dumps(work()), encoding="utf-8"))
    if status != 0:
        raise RuntimeError(f"the process that was to compute {path.name} failed")
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return answer


if __name__ == "__main__":
    main()
