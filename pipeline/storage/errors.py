"""What can go wrong with the database, as errors whose message is one line for a user."""

from knowledge_lookup.retrievers.errors import KnowledgeLookupError


class DatabaseError(KnowledgeLookupError):
    """The database can't do what it was asked to: wrong settings, a missing table, a full disk."""


class DatabaseUnavailableError(DatabaseError):
    """The database doesn't answer at the moment, or is too busy; the same call may succeed later."""


class SchemaNotCurrentError(DatabaseError):
    """The tables are those of another version of this package."""


class UnstorableValueError(DatabaseError):
    """A value doesn't fit into its column; no retry will help."""


class HashKeyError(KnowledgeLookupError):
    """The key with which queries are hashed can't be had; nothing may be recorded without it."""
