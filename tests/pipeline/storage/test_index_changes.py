"""The sequence of changes, on both databases."""

from knowledge_lookup.pipeline.storage import Database, DocumentRepository, DocumentStatus, IndexChanges


def test_a_document_that_becomes_ready_or_goes_away_is_a_change_and_nothing_else_is(database: Database) -> None:
    documents, changes = DocumentRepository(database), IndexChanges(database)
    assert changes.latest_id() == 0
    documents.ensure_pending(
        file_path="a.md", title="A", category="c", content_hash="0" * 64, embedding_model="m", metadata={}
    )
    documents.set_status("a.md", DocumentStatus.INDEXING)
    assert changes.since(0) == []
    documents.set_status("a.md", DocumentStatus.READY, chunk_count=1)
    documents.set_status("a.md", DocumentStatus.DELETING)
    documents.delete("a.md")
    documents.delete("a.md")
    documents.set_status("a.md", DocumentStatus.READY)
    first, second = changes.since(0)
    assert (first.file_path, second.file_path) == ("a.md", "a.md")
    assert first.id < second.id == changes.latest_id()
    assert changes.since(first.id) == [second]


def test_fresh_changes_are_not_pruned(database: Database) -> None:
    documents, changes = DocumentRepository(database), IndexChanges(database)
    documents.ensure_pending(
        file_path="a.md", title="A", category="c", content_hash="0" * 64, embedding_model="m", metadata={}
    )
    documents.set_status("a.md", DocumentStatus.READY)
    assert changes.prune() == 0
    assert len(changes.since(0)) == 1
