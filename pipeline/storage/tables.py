"""The tables as SQLAlchemy knows them: the schema that the newest migration leaves behind.

The migrations are what makes a database; this module only describes the result for queries, and a test
compares the two.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    CHAR,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: any time zone goes in, UTC is stored (to the microsecond), and UTC comes out."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        """Return the column type of a database.

        :param dialect: The database's dialect.
        :returns: DATETIME, with fractions of a second where that must be asked for.
        """
        return dialect.type_descriptor(mysql.DATETIME(fsp=6) if dialect.name == "mysql" else DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn an aware moment into what is stored.

        :param value: The moment, with a time zone.
        :param dialect: The database's dialect.
        :returns: The same moment in UTC, without the zone.
        """
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn what was stored into an aware moment.

        :param value: A moment in UTC, without the zone.
        :param dialect: The database's dialect.
        :returns: The same moment, aware.
        """
        return None if value is None else value.replace(tzinfo=UTC)


def _ascii_char(length: int) -> TypeEngine[str]:
    return CHAR(length).with_variant(mysql.CHAR(length, charset="ascii", collation="ascii_bin"), "mysql")


def _ascending_id() -> TypeEngine[int]:
    return BigInteger().with_variant(Integer(), "sqlite")


metadata = MetaData()

api_document = Table(
    "api_document",
    metadata,
    Column("id", _ascending_id(), primary_key=True, autoincrement=True),
    Column("file_path", String(1024), nullable=False),
    Column("file_path_hash", _ascii_char(64), nullable=False),
    Column("title", String(512), nullable=False),
    Column("category", String(255), nullable=False),
    Column("content_hash", _ascii_char(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("chunk_count", Integer, nullable=False),
    Column("embedding_model", String(255), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("metadata", Text, nullable=True),
    Index("ux_api_document_file_path_hash", "file_path_hash", unique=True),
    Index("ix_api_document_category", "category"),
    Index("ix_api_document_status", "status"),
)

knowledge_domain = Table(
    "knowledge_domain",
    metadata,
    Column("domain_id", String(255), primary_key=True),
    Column("description", Text, nullable=False),
    Column("when_to_retrieve", Text, nullable=False),
    Column("document_count", Integer, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

tool_invocation = Table(
    "tool_invocation",
    metadata,
    Column("id", _ascii_char(36), primary_key=True),
    Column("request_id", String(64), nullable=False),
    Column("session_id", String(255), nullable=True),
    Column("tool_name", String(128), nullable=False),
    Column("query", Text, nullable=False),
    Column("found", Boolean, nullable=False),
    Column("confidence", String(16), nullable=True),
    Column("latency_ms", Double, nullable=False),
    Column("retrieval_details", Text().with_variant(mysql.MEDIUMTEXT(), "mysql"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("relevance_level", String(20), nullable=True),
    Column("dedup_reason", String(32), nullable=True),
    Index("ix_tool_invocation_created_at", "created_at"),
    Index("ix_tool_invocation_session_id", "session_id"),
)

retrieved_document = Table(
    "retrieved_document",
    metadata,
    Column("id", _ascending_id(), primary_key=True, autoincrement=True),
    Column("session_id", String(255), nullable=False),
    Column("domain", String(255), nullable=False),
    Column("file_path", String(1024), nullable=False),
    Column("section", String(512), nullable=False),
    Column("retrieved_at", UtcDateTime, nullable=False),
    Column("claim_key", _ascii_char(64), nullable=False),
    Index("ux_retrieved_document_claim_key", "claim_key", unique=True),
    Index("ix_retrieved_document_session_use", "session_id", "retrieved_at"),
    sqlite_autoincrement=True,
)

session_lookup = Table(
    "session_lookup",
    metadata,
    Column("id", _ascending_id(), primary_key=True, autoincrement=True),
    Column("session_id", String(255), nullable=False),
    Column("number", Integer, nullable=False),
    Column("lookup", Text().with_variant(mysql.MEDIUMTEXT(), "mysql"), nullable=False),
    Column("looked_up_at", UtcDateTime, nullable=False),
    Column("lookup_key", _ascii_char(64), nullable=False),
    Index("ux_session_lookup_lookup_key", "lookup_key", unique=True),
    Index("ix_session_lookup_session_use", "session_id", "looked_up_at"),
    sqlite_autoincrement=True,
)

document_lease = Table(
    "document_lease",
    metadata,
    Column("lease_key", _ascii_char(64), primary_key=True),
    Column("holder", _ascii_char(36), nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

index_change = Table(
    "index_change",
    metadata,
    Column("id", _ascending_id(), primary_key=True, autoincrement=True),
    Column("file_path", String(1024), nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Index("ix_index_change_changed_at", "changed_at"),
    sqlite_autoincrement=True,
)
