"""Reads the records of a time window from the database and computes their figures."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, and_, case, func, null, select

from knowledge_lookup.pipeline.ingestion.source_document import GENERAL_DOMAIN
from knowledge_lookup.pipeline.statistics.call_statistics import CallStatistics, SessionCalls
from knowledge_lookup.pipeline.statistics.call_tally import CallRow, CallTally
from knowledge_lookup.pipeline.storage import Database
from knowledge_lookup.pipeline.storage.tables import api_document, tool_invocation

_ROWS_AT_ONCE = 1_000


class StatisticsReader:
    """Computes the figures of the records in a database.

    The rows are read one after the other, with the columns that are needed, so that a million of them can be read on a
    small machine; nothing is locked meanwhile.

    :param database: The database, its schema current.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, window: timedelta, *, now: datetime | None = None) -> CallStatistics:
        """Compute the figures of the calls of a window that ends now.

        :param window: Its length, above 0.
        :param now: The window's end, with a time zone; None for the present moment.
        :returns: The figures.
        :raises ValueError: The window isn't above 0, or begins before the year 1.
        :raises DatabaseError: The database can't be read.
        """
        if window <= timedelta(0):
            raise ValueError(f"the window is {window}; it must be above 0")
        until = datetime.now(UTC) if now is None else now.astimezone(UTC)
        try:
            since = until - window
        except OverflowError as error:
            raise ValueError(f"a window of {window} begins before the year 1") from error
        return self._database.read(lambda connection: _read(connection, since, until))


def _read(connection: Connection, since: datetime, until: datetime) -> CallStatistics:
    tally = CallTally(since, until, _domain_of(connection))
    table = tool_invocation.c
    may_be_gap = and_(table.found.is_(False), table.dedup_reason.is_(None))
    columns = [
        table[name] if name != "query" else case((may_be_gap, table.query), else_=null()) for name in CallRow._fields
    ]
    query = select(*columns).where(table.created_at >= since).execution_options(yield_per=_ROWS_AT_ONCE)
    for row in connection.execute(query):
        tally.add(CallRow(*row))
    return tally.statistics(_sessions(connection, tally.worst_sessions(), since))


def _sessions(connection: Connection, sessions: Sequence[str], since: datetime) -> list[SessionCalls]:
    table = tool_invocation.c
    found = func.sum(case((table.found.is_(True), 1), else_=0))
    held_back = func.sum(case((and_(table.found.is_(False), table.dedup_reason.is_not(None)), 1), else_=0))
    query = (
        select(table.session_id, func.count(), found, held_back, func.min(table.created_at), func.max(table.created_at))
        .where(table.session_id.in_(sessions), table.created_at >= since)
        .group_by(table.session_id)
    )
    rows = {
        row[0]: SessionCalls(row[0], row[1], int(row[2]), int(row[3]), row[4], row[5])
        for row in connection.execute(query)
    }
    return [rows[session] for session in sessions if session in rows]


def _domain_of(connection: Connection) -> Callable[[str], str]:
    """Make the function that tells the domain of a source such as ``knowledge_base/api/errors.md``."""
    query = select(api_document.c.file_path, api_document.c.category)
    domains: dict[str, str] = {row[0]: row[1] for row in connection.execute(query)}

    def domain_of(source: str) -> str:
        # The base path's own name comes first, of records from before it was renamed another one.
        path = source.partition("/")[2]
        if path in domains:
            return domains[path]
        folder, has_folder, _ = path.partition("/")
        return folder if has_folder else GENERAL_DOMAIN

    return domain_of
