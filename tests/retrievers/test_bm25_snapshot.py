"""The search by words from one process to the next: what it need not read again, and what it must."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers import Bm25Index
from knowledge_lookup.retrievers.bm25_snapshot import Bm25Snapshot
from knowledge_lookup.retrievers.search_terms import query_terms
from tests.retrievers.passages import Documents


def version_of(texts: list[str]) -> str:
    return repr(texts)


def open_index(documents: Documents, path: Path, *, identity: str = "chunks of a model") -> Bm25Index:
    """Open the index as a process does that finds the documents as they are."""
    ready = {name: version_of(texts) for name, texts in documents.texts.items()}
    return Bm25Index(documents, snapshot=Bm25Snapshot(path, identity=identity, versions=lambda: ready))


def found(index: Bm25Index, query: str) -> list[str]:
    return sorted(node_id for node_id, _ in index.search(query_terms(query), limit=10))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Documents, Path]:
    """Documents, and the snapshot that a process left of them."""
    documents = Documents(a=["redis one", "redis two"], b=["kafka"], c=["flink redis"])
    index = open_index(documents, tmp_path / "bm25.zip")
    assert found(index, "redis") == ["a.md#0", "a.md#1", "c.md#0"]
    index.close()
    documents.asked.clear()
    return documents, tmp_path / "bm25.zip"


def test_the_next_process_reads_nothing(saved: tuple[Documents, Path]) -> None:
    documents, path = saved
    index = open_index(documents, path)
    assert found(index, "redis") == ["a.md#0", "a.md#1", "c.md#0"]
    assert index.passage_count() == 4
    assert index.passage_frequency("redis") == 3
    assert documents.asked == []
    index.close()


def test_the_next_process_reads_only_what_changed_between(saved: tuple[Documents, Path]) -> None:
    documents, path = saved
    documents.texts["b.md"] = ["redis at last"]
    documents.texts["new.md"] = ["redis as well"]
    del documents.texts["c.md"]
    for expected in [[{"b.md", "new.md", "c.md"}], []]:
        documents.asked.clear()
        index = open_index(documents, path)
        assert found(index, "redis") == ["a.md#0", "a.md#1", "b.md#0", "new.md#0"]
        assert documents.asked == expected
        index.close()


def test_a_change_that_was_told_but_not_read_by_the_end_is_read_by_the_next_process(
    saved: tuple[Documents, Path],
) -> None:
    documents, path = saved
    ready = {name: version_of(texts) for name, texts in documents.texts.items()}
    index = Bm25Index(documents, snapshot=Bm25Snapshot(path, identity="chunks of a model", versions=lambda: ready))
    documents.texts["a.md"] = ["kafka"]
    index.mark_changed("a.md")
    assert found(index, "kafka") == ["a.md#0", "b.md#0"]
    documents.texts["b.md"] = ["redis"]
    index.mark_changed("b.md")
    ready |= {name: version_of(texts) for name, texts in documents.texts.items()}
    index.close()
    assert found(open_index(documents, path), "redis") == ["b.md#0", "c.md#0"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:200] + bytes(byte ^ 0xFF for byte in raw[200:260]) + raw[260:],
        lambda raw: b"",
        lambda raw: b"something else",
    ],
)
def test_a_damaged_snapshot_is_made_anew(saved: tuple[Documents, Path], damage: Callable[[bytes], bytes]) -> None:
    documents, path = saved
    path.write_bytes(damage(path.read_bytes()))
    for expected in [[None], []]:
        documents.asked.clear()
        index = open_index(documents, path)
        assert found(index, "redis") == ["a.md#0", "a.md#1", "c.md#0"]
        assert documents.asked == expected
        index.close()


def test_the_snapshot_of_another_collection_or_model_is_not_used(saved: tuple[Documents, Path]) -> None:
    documents, path = saved
    index = open_index(documents, path, identity="chunks of another model")
    assert found(index, "kafka") == ["b.md#0"]
    assert documents.asked == [None]
    index.close()


def test_a_folder_that_cannot_be_written_costs_only_the_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    index = open_index(Documents(a=["redis"]), tmp_path / "file" / "bm25.zip")
    assert found(index, "redis") == ["a.md#0"]
    index.close()
    assert "the next start reads all passages" in caplog.text


def test_no_folder_is_left_when_the_index_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    index = open_index(Documents(a=["redis"]), tmp_path / "kept" / "bm25.zip")
    assert found(index, "redis") == ["a.md#0"]
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["bm25.zip"]


WORDS = ["redis", "连接池", "8005"]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["a.md", "c/丙.md"]),
        st.none() | st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join), max_size=2),
        st.booleans(),
    ),
    max_size=3,
)


@given(lives=st.lists(CHANGES, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_every_process_finds_what_a_fresh_index_finds(lives: list[list[tuple[str, list[str] | None, bool]]]) -> None:
    documents = Documents()
    with tempfile.TemporaryDirectory() as folder:
        for life in lives:
            index = open_index(documents, Path(folder) / "bm25.zip")
            for name, texts, asks in [*life, ("", None, True)]:
                documents.texts.pop(name, None)
                if texts is not None:
                    documents.texts[name] = texts
                index.mark_changed(name)
                if asks:
                    fresh = Bm25Index(documents)
                    assert [found(index, word) for word in WORDS] == [found(fresh, word) for word in WORDS]
            index.close()
