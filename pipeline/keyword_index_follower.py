"""Keeping this process's indexes up to date with what other processes write."""

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from knowledge_lookup.pipeline.ingestion.source_document import has_own_title
from knowledge_lookup.pipeline.storage import (
    DatabaseError,
    DatabaseUnavailableError,
    DocumentRecord,
    DocumentRepository,
    DocumentStatus,
    IndexChanges,
    ReadyDocument,
)
from knowledge_lookup.retrievers.background import in_background
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.fork_safety import call_after_fork
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry

_LOGGER = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0
"""Nobody waits longer for a database that hangs; the driver's own limits are longer."""
_OVERLAP = timedelta(seconds=10)
"""A transaction that took up to this long may make a change visible with a lower id than one already read."""


class KeywordIndexFollower:
    """Loads the keyword index from the rows, then follows the sequence of changes in a thread of its own.

    A change says which document changed, and the row says how it is now: reading a change twice does no harm.

    :param index: The keyword index to fill.
    :param documents: The rows.
    :param changes: The sequence of changes.
    :param bm25_index: The search by words, told which documents changed.
    :param entries_of_files: Reads the entries from the files, for a start while the database is away.
    :param interval_seconds: Pause between two looks at the sequence.
    """

    def __init__(
        self,
        index: KeywordIndex,
        documents: DocumentRepository,
        changes: IndexChanges,
        bm25_index: Bm25Index,
        entries_of_files: Callable[[], Iterable[KeywordEntry]],
        *,
        interval_seconds: float = 1.0,
    ) -> None:
        self._index = index
        self._documents = documents
        self._changes = changes
        self._bm25_index = bm25_index
        self._entries_of_files = entries_of_files
        self._interval = interval_seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._read_up_to = 0
        self._applied: set[int] = set()
        """Changes after ``_read_up_to`` that were applied; others may yet become visible among them."""
        self._is_failing = False
        self.error: DatabaseUnavailableError | None = None
        """Why the index is that of the files and not that of the rows; None while it follows the rows."""

    def load(self) -> None:
        """Fill the index from the documents that are ready; while the database is away, from the files.

        :raises DatabaseError: If the database refuses to be read.
        :raises KnowledgeBaseError: If the database is away and the files can't be read either.
        """
        try:
            self._load_rows()
        except DatabaseUnavailableError as error:
            _LOGGER.warning("the keyword index is made from the files until the database is back: %s", error)
            self.error = error
            self._index.update(self._entries_of_files())

    def _load_rows(self) -> None:
        # The position first: what changes while the rows are read is read again.
        position = in_background(self._changes.latest_id, name="keyword-index-load")
        try:
            self._read_up_to = position.result(_PATIENCE_SECONDS)
        except TimeoutError as error:
            raise DatabaseUnavailableError(
                f"the database didn't answer within {_PATIENCE_SECONDS:g} seconds; check that the server runs"
            ) from error
        if self.error is None:
            self._index.update(map(keyword_entry, self._documents.iter_ready()))
            return
        entries = {entry.file_path: entry for entry in map(keyword_entry, self._documents.iter_ready())}
        self._index.update(entries.values())
        for file_path in [entry.file_path for entry in self._index if entry.file_path not in entries]:
            self._index.remove(file_path)
        self.error = None

    def start(self) -> None:
        """Follow the changes from now on; in forked children, too."""
        call_after_fork(self._follow_in_child)
        self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._follow, name="keyword-index-follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)

    def catch_up(self) -> None:
        """Apply what changed since the last look.

        :raises DatabaseError: If the database can't be read.
        """
        changes = self._changes.since(self._read_up_to)
        new = [change for change in changes if change.id not in self._applied]
        for file_path in dict.fromkeys(change.file_path for change in new):
            self._bm25_index.mark_changed(file_path)
            record = self._documents.get(file_path)
            if record is None:
                self._index.remove(file_path)
            elif record.status is DocumentStatus.READY and self._index.get(file_path) != keyword_entry(record):
                self._index.add(keyword_entry(record))
        settled = [change.id for change in changes if change.changed_at < datetime.now(UTC) - _OVERLAP]
        self._read_up_to = max([self._read_up_to, *settled])
        self._applied = {change.id for change in changes if change.id > self._read_up_to}

    def _follow_in_child(self) -> None:
        is_over = self._stopped.is_set()
        self._stopped = threading.Event()  # the parent's has a lock inside, which its thread may have held
        if is_over:
            self._stopped.set()
        else:
            self._start_thread()

    def _follow(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                if self.error is None:
                    self.catch_up()
                else:
                    self._load_rows()
            except DatabaseError as error:
                if not self._is_failing and self.error is None:
                    _LOGGER.warning("changes by other processes can't be read at the moment, will try again: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False


def keyword_entry(record: DocumentRecord | ReadyDocument) -> KeywordEntry:
    """Make the keyword index's entry of a row.

    :param record: The row.
    :returns: The entry.
    """
    keywords = tuple(str(keyword) for keyword in record.metadata.get("keywords") or ())
    has_title = has_own_title(record.file_path, record.title, record.metadata)
    return KeywordEntry(record.file_path, record.title, record.category, keywords, has_title, record.content_hash)
