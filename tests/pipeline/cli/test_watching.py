"""`sync --watch` follows the folder and lets others use Milvus Lite in between."""

from pathlib import Path
from queue import Queue
from threading import Event, Thread

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.cli.watching import follow_folder
from knowledge_lookup.pipeline.ingestion.sync_report import SyncReport
from tests.knowledge_bases import document, write_documents


def test_a_change_is_indexed_while_others_look_things_up(tmp_path: Path) -> None:
    base = write_documents(tmp_path / "docs", {"a.md": document("文本。", keywords="[KEY_A]")})
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    reports: Queue[SyncReport] = Queue()
    stop = Event()
    watcher = Thread(
        target=follow_folder,
        kwargs={"settings": settings, "on_report": reports.put, "on_busy": print, "stop": stop},
    )
    watcher.start()
    try:
        assert reports.get(timeout=30).added == ["a.md"]
        with KnowledgePipeline.from_settings(settings) as other:
            assert other.search("文本")
        write_documents(base, {"notes.py": "ignored", "b.md": document("新文本。", keywords="[KEY_B]")})
        assert reports.get(timeout=30).added == ["b.md"]
        with KnowledgePipeline.from_settings(settings) as other:
            assert other.lookup("KEY_B").found
    finally:
        stop.set()
        watcher.join(timeout=30)
    assert not watcher.is_alive()
