"""The rows of ``api_document``: what is known about each file, and how far its indexing got."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.document_record import (
    DocumentDigest,
    DocumentRecord,
    DocumentStatus,
    ReadyDocument,
    record_of,
)
from knowledge_lookup.pipeline.storage.document_rows import DocumentValues, upsert_pending
from knowledge_lookup.pipeline.storage.index_changes import append_changes
from knowledge_lookup.pipeline.storage.storable_text import exact_hash
from knowledge_lookup.pipeline.storage.tables import api_document


class DocumentRepository:
    """Reads and writes document rows; a document is known by its exact path.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, file_path: str) -> DocumentRecord | None:
        """Return a document.

        :param file_path: Its path.
        :returns: The row, or None when there is none.
        :raises DatabaseError: The database can't be read.
        """
        query = select(api_document).where(_is_path(file_path))
        row = self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else record_of(row)

    def get_all(self, file_paths: Collection[str]) -> dict[str, DocumentRecord]:
        """Return documents.

        :param file_paths: Their paths.
        :returns: The rows by path, without those that aren't there.
        :raises DatabaseError: The database can't be read.
        """
        query = select(api_document).where(_are_paths(file_paths))
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {row.file_path: record_of(row) for row in rows}

    def iter_digests(self) -> Iterator[tuple[str, DocumentDigest]]:
        """Return what decides about indexing for all documents, without their front matter.

        :returns: Pairs of path and digest, in order of the paths.
        :raises DatabaseError: The database can't be read.
        """
        table = api_document.c
        query = select(table.file_path, table.content_hash, table.status, table.embedding_model).order_by(
            table.file_path
        )
        for path, content_hash, status, model in self._database.read(
            lambda connection: connection.execute(query).all()
        ):
            yield path, DocumentDigest(content_hash, DocumentStatus(status), model)

    def iter_ready(self) -> Iterator[ReadyDocument]:
        """Return the documents that are ready, for building an index of all of them.

        :returns: The documents, in no order.
        :raises DatabaseError: The database can't be read.
        """
        table = api_document.c
        columns = (table.file_path, table.title, table.category, table.content_hash, table.metadata)
        query = select(*columns).where(table.status == DocumentStatus.READY.value)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        for path, title, category, content_hash, metadata in rows:
            yield ReadyDocument(path, title, category, content_hash, {} if metadata is None else json.loads(metadata))

    def unfinished(self) -> Sequence[str]:
        """Return the documents whose indexing isn't finished.

        :returns: Their paths.
        :raises DatabaseError: The database can't be read.
        """
        query = select(api_document.c.file_path).where(api_document.c.status != DocumentStatus.READY.value)
        return self._database.read(lambda connection: connection.execute(query).scalars().all())

    def ensure_pending(
        self,
        *,
        file_path: str,
        title: str,
        category: str,
        content_hash: str,
        embedding_model: str,
        metadata: Mapping[str, Any],
    ) -> None:
        """Write a document's row with status ``pending``; see :meth:`ensure_all_pending`.

        :param file_path: Path below the base path.
        :param title: The document's title.
        :param category: Its domain.
        :param content_hash: sha256 of the file in hex.
        :param embedding_model: The model its chunks will be made with.
        :param metadata: The front matter.
        :raises UnstorableValueError: A value is too long or no text that can be stored; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        values = DocumentValues(
            file_path=file_path,
            title=title,
            category=category,
            content_hash=content_hash,
            embedding_model=embedding_model,
            metadata=metadata,
        )
        self.ensure_all_pending([values])

    def ensure_all_pending(self, documents: Sequence[DocumentValues]) -> None:
        """Write rows with status ``pending``, whether or not they are there, in one transaction.

        Two processes may do so at once; the later one's values stay. ``chunk_count`` stays as it was, and becomes 0
        for a new row, for another embedding model, and for a row that says ``indexing`` or ``deleting``, of which
        nobody knows how many chunks there are: delete them first.

        :param documents: The values, of different documents.
        :raises UnstorableValueError: A value is too long or no text that can be stored; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        rows = [values.to_row() for values in documents]
        if rows:
            self._database.write(lambda connection: upsert_pending(connection, rows))

    def check_storable(self, *, file_path: str, title: str, category: str, metadata: Mapping[str, Any]) -> None:
        """See whether a row could be written, before anything else is.

        :param file_path: Path below the base path.
        :param title: The document's title.
        :param category: Its domain.
        :param metadata: The front matter.
        :raises UnstorableValueError: A value is too long or no text that can be stored.
        """
        DocumentValues(
            file_path=file_path, title=title, category=category, content_hash="", embedding_model="", metadata=metadata
        ).to_row()

    def set_status(self, file_path: str, status: DocumentStatus, *, chunk_count: int | None = None) -> bool:
        """Write how far a document's indexing got; other processes learn of a document that became ready.

        :param file_path: Its path.
        :param status: The new status.
        :param chunk_count: How many chunks it has now; None leaves the number as it is.
        :returns: False when there is no such document (any more).
        :raises DatabaseError: The database can't be written.
        """
        values = _status_values(status)
        if chunk_count is not None:
            values["chunk_count"] = chunk_count
        statement = update(api_document).where(_is_path(file_path)).values(values)

        def write(connection: Connection) -> bool:
            is_there = connection.execute(statement).rowcount > 0
            if is_there and status is DocumentStatus.READY:
                append_changes(connection, [file_path])
            return is_there

        return self._database.write(write)

    def set_all_status(self, file_paths: Collection[str], status: DocumentStatus) -> None:
        """Write how far the indexing of many documents got, in one transaction.

        :param file_paths: Their paths; those without a row are no error.
        :param status: The new status, any but ``ready``.
        :raises DatabaseError: The database can't be written.
        """
        statement = update(api_document).where(_are_paths(file_paths)).values(_status_values(status))
        self._database.write(lambda connection: connection.execute(statement))

    def set_all_ready(self, chunk_counts: Mapping[str, int]) -> None:
        """Write that documents are indexed, in one transaction; other processes learn of it.

        :param chunk_counts: Their paths, and how many chunks each has now.
        :raises DatabaseError: The database can't be written.
        """
        table = api_document.c
        statement = (
            update(api_document)
            .where(table.file_path_hash == bindparam("key"))
            .values(_status_values(DocumentStatus.READY) | {"chunk_count": bindparam("count")})
        )
        values = [{"key": exact_hash(path), "count": count} for path, count in chunk_counts.items()]

        def write(connection: Connection) -> None:
            connection.execute(statement, values)
            append_changes(connection, chunk_counts)

        if values:
            self._database.write(write)

    def reset(self, status: DocumentStatus) -> None:
        """Write of all documents that they have no chunks, or that nobody knows.

        :param status: ``pending`` for the former, ``indexing`` for the latter.
        :raises DatabaseError: The database can't be written.
        """
        statement = update(api_document).values(_status_values(status) | {"chunk_count": 0})
        self._database.write(lambda connection: connection.execute(statement))

    def delete(self, file_path: str) -> bool:
        """Remove a document's row; other processes learn of it.

        :param file_path: Its path.
        :returns: Whether there was one.
        :raises DatabaseError: The database can't be written.
        """
        statement = delete(api_document).where(_is_path(file_path))

        def write(connection: Connection) -> bool:
            was_there = connection.execute(statement).rowcount > 0
            if was_there:
                append_changes(connection, [file_path])
            return was_there

        return self._database.write(write)

    def count(self) -> int:
        """Count the documents.

        :returns: The number of rows, whatever their status.
        :raises DatabaseError: The database can't be read.
        """
        query = select(func.count()).select_from(api_document)
        return self._database.read(lambda connection: connection.execute(query).scalar_one())

    def embedding_models(self) -> frozenset[str]:
        """Return the embedding models that the stored chunks are made with.

        :returns: The models of documents that have chunks; more than one means that a rebuild is due.
        :raises DatabaseError: The database can't be read.
        """
        query = select(api_document.c.embedding_model).where(api_document.c.chunk_count > 0).distinct()
        return frozenset(self._database.read(lambda connection: connection.execute(query).scalars().all()))

    def categories(self) -> dict[str, int]:
        """Count the documents of each category.

        :returns: Number of rows by category, in order of the names.
        :raises DatabaseError: The database can't be read.
        """
        category = api_document.c.category
        query = select(category, func.count()).group_by(category).order_by(category)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {row[0]: row[1] for row in rows}

    def list(self, category: str | None = None) -> Sequence[DocumentRecord]:
        """Return documents in order of their paths.

        :param category: Only this category; None is all.
        :returns: The rows.
        :raises DatabaseError: The database can't be read.
        """
        query = select(api_document).order_by(api_document.c.file_path)
        if category is not None:
            query = query.where(api_document.c.category == category)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return [record_of(row) for row in rows]


def _status_values(status: DocumentStatus) -> dict[str, Any]:
    return {"status": status.value, "updated_at": datetime.now(UTC)}


def _is_path(file_path: str) -> Any:
    return api_document.c.file_path_hash == exact_hash(file_path)


def _are_paths(file_paths: Collection[str]) -> Any:
    return api_document.c.file_path_hash.in_([exact_hash(file_path) for file_path in file_paths])
