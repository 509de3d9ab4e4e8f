"""The rows of ``knowledge_domain``: what each domain is about and how many documents it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.document_record import DocumentStatus
from knowledge_lookup.pipeline.storage.errors import UnstorableValueError
from knowledge_lookup.pipeline.storage.failures import is_duplicate_key
from knowledge_lookup.pipeline.storage.storable_text import storable
from knowledge_lookup.pipeline.storage.tables import api_document, knowledge_domain

MAX_DOMAIN_ID_LENGTH = 255
MAX_TEXT_LENGTH = 16_000
"""Characters of a description. MySQL's TEXT ends at 65,535 bytes, and a character may take 4."""


@dataclass(frozen=True, kw_only=True)
class DomainRecord:
    """One row.

    :param domain_id: The domain: the category of its documents.
    :param description: What it holds; empty if that was never written.
    :param when_to_retrieve: The situations in which to search it; empty if that was never written.
    :param document_count: How many documents of it are ready.
    :param updated_at: When the row was last written, in UTC.
    """

    domain_id: str
    description: str
    when_to_retrieve: str
    document_count: int
    updated_at: datetime


class DomainRepository:
    """Reads and writes domain rows.

    Count and texts are written apart: the count is taken from the documents in the transaction that writes it, so
    that it is right however processes overlap, while the texts may take a language model's time.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, domain_id: str) -> DomainRecord | None:
        """Return a domain.

        :param domain_id: The domain.
        :returns: The row, or None when there is none.
        :raises DatabaseError: The database can't be read.
        """
        query = select(knowledge_domain).where(_is_domain(domain_id))
        row = self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _record(row)

    def list(self) -> Sequence[DomainRecord]:
        """Return all domains.

        :returns: The rows in order of their ids.
        :raises DatabaseError: The database can't be read.
        """
        query = select(knowledge_domain).order_by(knowledge_domain.c.domain_id)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return [_record(row) for row in rows]

    def outdated(self) -> Sequence[str]:
        """Find the domains that have no row or whose count isn't that of their documents.

        :returns: Their ids in order; also those of rows whose documents are all gone.
        :raises DatabaseError: The database can't be read.
        """
        category = api_document.c.category
        ready = select(category, func.count()).where(_is_ready()).group_by(category)
        recorded = select(knowledge_domain.c.domain_id, knowledge_domain.c.document_count)

        def compare(connection: Connection) -> Sequence[str]:
            actual = {row[0]: row[1] for row in connection.execute(ready)}
            known = {row[0]: row[1] for row in connection.execute(recorded)}
            return sorted(id_ for id_ in actual.keys() | known.keys() if actual.get(id_) != known.get(id_))

        return self._database.read(compare)

    def recount(self, domain_id: str) -> int:
        """Write how many documents of a domain are ready; a domain without any has no row.

        A new row has empty texts, an old one keeps them.

        :param domain_id: The domain; at most 255 characters.
        :returns: The number of its documents.
        :raises UnstorableValueError: The id is too long; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        if len(domain_id) > MAX_DOMAIN_ID_LENGTH:
            raise UnstorableValueError(
                f"domain {domain_id[:40]}...: the id has {len(domain_id)} characters, at most {MAX_DOMAIN_ID_LENGTH} "
                "can be stored; shorten the category"
            )
        return self._database.write(lambda connection: _recount(connection, storable(domain_id)))

    def describe(self, domain_id: str, *, description: str, when_to_retrieve: str) -> bool:
        """Write the texts of a domain that is there.

        :param domain_id: The domain.
        :param description: What it holds; at most 16,000 characters.
        :param when_to_retrieve: When to search it; at most 16,000 characters.
        :returns: False when there is no such domain (any more): a text that comes late doesn't bring it back.
        :raises UnstorableValueError: A text is too long; nothing was written.
        :raises DatabaseError: The database can't be written.
        """
        texts = {"description": description, "when_to_retrieve": when_to_retrieve}
        for name, text in texts.items():
            if len(text) > MAX_TEXT_LENGTH:
                raise UnstorableValueError(
                    f"domain {domain_id}: {name} has {len(text)} characters, at most {MAX_TEXT_LENGTH} can be stored; "
                    "shorten it"
                )
        values = {name: storable(text) for name, text in texts.items()}
        return self._database.write(lambda connection: _update(connection, domain_id, values))


def _recount(connection: Connection, domain_id: str) -> int:
    # The row is locked first and the documents are counted then: whoever writes the row last has seen all of them.
    if not _update(connection, domain_id, {}):
        _insert(connection, domain_id)
    query = select(func.count()).select_from(api_document).where(api_document.c.category == domain_id, _is_ready())
    count = connection.execute(query).scalar_one()
    if count == 0:
        connection.execute(delete(knowledge_domain).where(_is_domain(domain_id)))
    else:
        _update(connection, domain_id, {"document_count": count})
    return count


def _insert(connection: Connection, domain_id: str) -> None:
    values = {
        "domain_id": domain_id,
        "description": "",
        "when_to_retrieve": "",
        "document_count": 0,
        "updated_at": datetime.now(UTC),
    }
    try:
        connection.execute(insert(knowledge_domain).values(values))
    except IntegrityError as error:
        # Another process inserted it between the two statements.
        if not is_duplicate_key(error):
            raise
        _update(connection, domain_id, {})


def _update(connection: Connection, domain_id: str, values: dict[str, Any]) -> bool:
    statement = update(knowledge_domain).where(_is_domain(domain_id)).values(values | {"updated_at": datetime.now(UTC)})
    return connection.execute(statement).rowcount > 0


def _is_domain(domain_id: str) -> Any:
    return knowledge_domain.c.domain_id == storable(domain_id)


def _is_ready() -> Any:
    return api_document.c.status == DocumentStatus.READY.value


def _record(row: Row[Any]) -> DomainRecord:
    columns = row._mapping
    return DomainRecord(
        domain_id=columns["domain_id"],
        description=columns["description"],
        when_to_retrieve=columns["when_to_retrieve"],
        document_count=columns["document_count"],
        updated_at=columns["updated_at"],
    )
