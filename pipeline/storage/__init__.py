"""Everything that is kept in the SQL database, SQLite or MySQL / MariaDB."""

from knowledge_lookup.pipeline.storage.database import Database
from knowledge_lookup.pipeline.storage.document_leases import DocumentLeases
from knowledge_lookup.pipeline.storage.document_record import (
    DocumentDigest,
    DocumentRecord,
    DocumentStatus,
    ReadyDocument,
)
from knowledge_lookup.pipeline.storage.document_repository import DocumentRepository
from knowledge_lookup.pipeline.storage.document_rows import DocumentValues
from knowledge_lookup.pipeline.storage.domain_repository import DomainRepository
from knowledge_lookup.pipeline.storage.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    HashKeyError,
    SchemaNotCurrentError,
    UnstorableValueError,
)
from knowledge_lookup.pipeline.storage.fallback_action_memory_store import FallbackActionMemoryStore
from knowledge_lookup.pipeline.storage.index_changes import IndexChange, IndexChanges
from knowledge_lookup.pipeline.storage.invocation_recorder import BackgroundInvocationRecorder
from knowledge_lookup.pipeline.storage.invocation_repository import InvocationRepository
from knowledge_lookup.pipeline.storage.query_hashing import (
    HASHED_QUERY_PREFIX,
    QueryHashingRecorder,
    hash_key_in,
    hashed_query,
)
from knowledge_lookup.pipeline.storage.record_retention import PruneReport, RecordRetention
from knowledge_lookup.pipeline.storage.record_spool import RecordSpool
from knowledge_lookup.pipeline.storage.revision import REQUIRED_REVISION
from knowledge_lookup.pipeline.storage.spooling_invocation_repository import SpoolingInvocationRepository
from knowledge_lookup.pipeline.storage.sql_action_memory_store import SqlActionMemoryStore

__all__ = [
    "HASHED_QUERY_PREFIX",
    "REQUIRED_REVISION",
    "BackgroundInvocationRecorder",
    "Database",
    "DatabaseError",
    "DatabaseUnavailableError",
    "DocumentDigest",
    "DocumentLeases",
    "DocumentRecord",
    "DocumentRepository",
    "DocumentStatus",
    "DocumentValues",
    "DomainRepository",
    "FallbackActionMemoryStore",
    "HashKeyError",
    "IndexChange",
    "IndexChanges",
    "InvocationRepository",
    "PruneReport",
    "QueryHashingRecorder",
    "ReadyDocument",
    "RecordRetention",
    "RecordSpool",
    "SchemaNotCurrentError",
    "SpoolingInvocationRepository",
    "SqlActionMemoryStore",
    "UnstorableValueError",
    "hash_key_in",
    "hashed_query",
]
