"""Writing rows of ``api_document``, many in a few statements: values checked first, then updated or inserted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, insert, select, update
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.pipeline.storage.errors import UnstorableValueError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.storable_text import exact_hash, is_storable, storable
from knowledge_lookup.pipeline.storage.tables import api_document

MAX_METADATA_BYTES = 60_000
"""MySQL's TEXT ends at 65,535 bytes. The limit is the same for SQLite, so that a move can't fail."""

_MAX_LENGTHS = {"file_path": 1024, "title": 512, "category": 255, "embedding_model": 255}
_CHUNKS_ARE_COUNTED = ("pending", "ready")
_KEY = "key_of_row"


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentValues:
    """What a row says about a document before its chunks are written.

    :param file_path: Path below the base path; at most 1,024 characters.
    :param title: At most 512 characters.
    :param category: At most 255 characters.
    :param content_hash: sha256 of the file in hex.
    :param embedding_model: The model its chunks will be made with; at most 255 characters.
    :param metadata: The front matter, of JSON types and dates; at most 60,000 bytes as JSON.
    """

    file_path: str
    title: str
    category: str
    content_hash: str
    embedding_model: str
    metadata: Mapping[str, Any]

    def to_row(self) -> dict[str, Any]:
        """Bring the values into the form that is stored.

        :returns: Values by the names of their columns.
        :raises UnstorableValueError: A value is too long or no text that can be stored.
        """
        texts = {name: storable(getattr(self, name)) for name in ("title", "category", "embedding_model")}
        metadata = metadata_json(self.file_path, self.metadata)
        if not is_storable(self.file_path):
            raise UnstorableValueError(
                f"{self.file_path!a}: the file's name is not valid UTF-8 (or has a NUL); rename the file"
            )
        for name, value in {"file_path": self.file_path, **texts}.items():
            if len(value) > _MAX_LENGTHS[name]:
                raise UnstorableValueError(
                    f"{self.file_path}: {name} has {len(value)} characters, at most {_MAX_LENGTHS[name]} can be "
                    "stored; shorten it"
                )
        return {"file_path": self.file_path, **texts, "content_hash": self.content_hash, "metadata": metadata}


def metadata_json(file_path: str, metadata: Mapping[str, Any]) -> str:
    """Write a front matter as JSON.

    :param file_path: Named in the error.
    :param metadata: Of JSON types and dates.
    :returns: JSON of at most 60,000 bytes.
    :raises UnstorableValueError: It has other types, or is longer.
    """
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


def upsert_pending(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with status ``pending``, whether or not they are there.

    ``chunk_count`` stays where it is known: for the same embedding model, and unless the row says ``indexing`` or
    ``deleting``. It is 0 otherwise.

    :param connection: The transaction.
    :param rows: What :meth:`DocumentValues.to_row` returned, of different documents.
    """
    now = datetime.now(UTC)
    complete = [{**row, _KEY: exact_hash(row["file_path"]), "status": "pending", "updated_at": now} for row in rows]
    key = api_document.c.file_path_hash
    keys = [row[_KEY] for row in complete]
    there = set(connection.execute(select(key).where(key.in_(keys))).scalars())
    old = [row for row in complete if row[_KEY] in there]
    new = [row for row in complete if row[_KEY] not in there]
    if old:
        _update(connection, old)
    if not new:
        return
    try:
        connection.execute(insert(api_document), [_new_row(row) for row in new])
    except IntegrityError as error:
        # Another process inserted one of them between the two statements.
        if not is_duplicate_key(error):
            raise
        for row in new:
            _upsert_one(connection, row)


def _upsert_one(connection: Connection, row: Mapping[str, Any]) -> None:
    if _update(connection, [row]):
        return
    try:
        connection.execute(insert(api_document).values(_new_row(row)))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        _update(connection, [row])


def _update(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> bool:
    table = api_document.c
    is_known = (table.embedding_model == bindparam("new_embedding_model")) & table.status.in_(_CHUNKS_ARE_COUNTED)
    # MySQL assigns from left to right, so model and status must still be the old ones when the chunks are judged.
    chunk_count = (table.chunk_count, case((is_known, table.chunk_count), else_=0))
    names = [name for name in rows[0] if name != _KEY]
    others = [(table[name], bindparam(f"new_{name}", type_=table[name].type)) for name in names]
    statement = update(api_document).where(table.file_path_hash == bindparam(_KEY)).ordered_values(chunk_count, *others)
    values = [{_KEY: row[_KEY], **{f"new_{name}": row[name] for name in names}} for row in rows]
    return connection.execute(statement, values).rowcount > 0


def _new_row(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in row.items() if name != _KEY}
    return {**values, "file_path_hash": row[_KEY], "chunk_count": 0, "created_at": row["updated_at"]}


def _as_json(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")
