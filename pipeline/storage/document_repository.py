"""The rows of ``api_document``: what is known about each file, and how far its indexing got."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.errors import UnstorableValueError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.index_changes import append_change
from knowledge_lookup.pipeline.storage.storable_text import exact_hash, is_storable, storable
from knowledge_lookup.pipeline.storage.tables import api_document

MAX_METADATA_BYTES = 60_000
"""MySQL's TEXT ends at 65,535 bytes. The limit is the same for SQLite, so that a move can't fail."""

_MAX_LENGTHS = {"file_path": 1024, "title": 512, "category": 255, "embedding_model": 255}


class DocumentStatus(StrEnum):
    """How far the indexing of a document got; anything but ``READY`` is unfinished."""

    PENDING = "pending"
    INDEXING = "indexing"
    READY = "ready"
    DELETING = "deleting"


@dataclass(frozen=True, kw_only=True)
class DocumentRecord:
    """One row.

    :param file_path: Path below the base path, ``/`` as separator.
    :param title: The document's title.
    :param category: Its domain.
    :param content_hash: sha256 of the file in hex.
    :param status: How far its indexing got.
    :param chunk_count: How many chunks of ``embedding_model`` were written when it was last ready.
    :param embedding_model: The model its chunks are made with.
    :param metadata: The front matter.
    :param created_at: When the row was first written, in UTC.
    :param updated_at: When the row was last written, in UTC.
    """

    file_path: str
    title: str
    category: str
    content_hash: str
    status: DocumentStatus
    chunk_count: int
    embedding_model: str
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class DocumentDigest(NamedTuple):
    """What decides whether a document must be indexed again."""

    content_hash: str
    status: DocumentStatus
    embedding_model: str


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
        return None if row is None else _record(row)

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
        """Write a document's row with status ``pending``, whether or not there is one.

        Two processes may do so at once; the later one's values stay. ``chunk_count`` stays as it was, and
        becomes 0 for a new row or another embedding model.

        :param file_path: Path below the base path; at most 1,024 characters.
        :param title: At most 512 characters.
        :param category: At most 255 characters.
        :param content_hash: sha256 of the file in hex.
        :param embedding_model: The model its chunks will be made with; at most 255 characters.
        :param metadata: The front matter, of JSON types and dates; at most 60,000 bytes as JSON.
        :raises UnstorableValueError: A value is too long or no text that can be stored; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        self.check_storable(file_path=file_path, title=title, category=category, metadata=metadata)
        values: dict[str, Any] = {
            "file_path": file_path,
            "title": storable(title),
            "category": storable(category),
            "content_hash": content_hash,
            "embedding_model": storable(embedding_model),
        }
        _check_length(file_path, "embedding_model", values["embedding_model"])
        now = datetime.now(UTC)
        values |= {"metadata": _metadata_json(file_path, metadata), "status": DocumentStatus.PENDING.value}
        self._database.write(lambda connection: _upsert(connection, values | {"updated_at": now}))

    def check_storable(self, *, file_path: str, title: str, category: str, metadata: Mapping[str, Any]) -> None:
        """See whether a row could be written, before anything else is.

        :param file_path: Path below the base path.
        :param title: The document's title.
        :param category: Its domain.
        :param metadata: The front matter.
        :raises UnstorableValueError: A value is too long or no text that can be stored.
        """
        _metadata_json(file_path, metadata)
        if not is_storable(file_path):
            raise UnstorableValueError(
                f"{file_path!a}: the file's name is not valid UTF-8 (or has a NUL); rename the file"
            )
        for name, value in (("file_path", file_path), ("title", storable(title)), ("category", storable(category))):
            _check_length(file_path, name, value)

    def set_status(self, file_path: str, status: DocumentStatus, *, chunk_count: int | None = None) -> bool:
        """Write how far a document's indexing got; other processes learn of a document that became ready.

        :param file_path: Its path.
        :param status: The new status.
        :param chunk_count: How many chunks it has now; None leaves the number as it is.
        :returns: False when there is no such document (any more).
        :raises DatabaseError: The database can't be written.
        """
        values: dict[str, Any] = {"status": status.value, "updated_at": datetime.now(UTC)}
        if chunk_count is not None:
            values["chunk_count"] = chunk_count
        statement = update(api_document).where(_is_path(file_path)).values(values)

        def write(connection: Connection) -> bool:
            is_there = connection.execute(statement).rowcount > 0
            if is_there and status is DocumentStatus.READY:
                append_change(connection, file_path)
            return is_there

        return self._database.write(write)

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
                append_change(connection, file_path)
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
        return [_record(row) for row in rows]


def _check_length(file_path: str, name: str, value: str) -> None:
    if len(value) > _MAX_LENGTHS[name]:
        raise UnstorableValueError(
            f"{file_path}: {name} has {len(value)} characters, at most {_MAX_LENGTHS[name]} can be stored; shorten it"
        )


def _is_path(file_path: str) -> Any:
    return api_document.c.file_path_hash == exact_hash(file_path)


def _upsert(connection: Connection, values: Mapping[str, Any]) -> None:
    if _update(connection, values):
        return
    new = {"file_path_hash": exact_hash(values["file_path"]), "chunk_count": 0, "created_at": values["updated_at"]}
    try:
        connection.execute(insert(api_document).values(new | dict(values)))
    except IntegrityError as error:
        # Another process inserted it between the two statements.
        if not is_duplicate_key(error):
            raise
        _update(connection, values)


def _update(connection: Connection, values: Mapping[str, Any]) -> bool:
    table = api_document.c
    same_model = table.embedding_model == values["embedding_model"]
    # MySQL assigns from left to right, so the model must still be the old one when the chunks are judged.
    chunk_count = (table.chunk_count, case((same_model, table.chunk_count), else_=0))
    others = [(table[name], value) for name, value in values.items()]
    statement = update(api_document).where(_is_path(values["file_path"])).ordered_values(chunk_count, *others)
    return connection.execute(statement).rowcount > 0


def _metadata_json(file_path: str, metadata: Mapping[str, Any]) -> str:
    try:
        text = storable(json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"), default=_as_json))
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(f"{file_path}: the front matter can't be written as JSON: {error}") from error
    size = len(text.encode())
    if size > MAX_METADATA_BYTES:
        raise UnstorableValueError(
            f"{file_path}: the front matter takes {size} bytes as JSON, at most {MAX_METADATA_BYTES} can be stored; "
            "move long text into the document's body"
        )
    return text


def _as_json(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def _record(row: Row[Any]) -> DocumentRecord:
    columns = row._mapping
    return DocumentRecord(
        file_path=columns["file_path"],
        title=columns["title"],
        category=columns["category"],
        content_hash=columns["content_hash"],
        status=DocumentStatus(columns["status"]),
        chunk_count=columns["chunk_count"],
        embedding_model=columns["embedding_model"],
        metadata={} if columns["metadata"] is None else json.loads(columns["metadata"]),
        created_at=columns["created_at"],
        updated_at=columns["updated_at"],
    )
