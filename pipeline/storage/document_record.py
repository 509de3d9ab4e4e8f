"""What a row of ``api_document`` says about a document."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Row


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


class ReadyDocument(NamedTuple):
    """What other indexes need of a document that is ready; see :class:`DocumentRecord`."""

    file_path: str
    title: str
    category: str
    content_hash: str
    metadata: dict[str, Any]


def record_of(row: Row[Any]) -> DocumentRecord:
    """Read a row.

    :param row: All columns of ``api_document``.
    :returns: The row.
    """
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
