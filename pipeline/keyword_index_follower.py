"""Keeping this process's indexes up to date with what other processes write."""

import logging
import threading
from datetime import UTC, datetime, timedelta

from knowledge_lookup.pipeline.ingestion.source_document import has_own_title
from knowledge_lookup.pipeline.storage import (
    DatabaseError,
    DocumentRecord,
    DocumentRepository,
    DocumentStatus,
    IndexChanges,
    ReadyDocument,
)
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry

_LOGGER = logging.getLogger(__name__)

_OVERLAP = timedelta(seconds=10)
"""A transaction that took up to this long may make a change visible with a lower id than one already read."""


class KeywordIndexFollower:
    """Loads the keyword index from the rows, then follows the sequence of changes in a thread of its own.

    A change says which document changed, and the row says how it is now: reading a change twice does no harm.

    :param index: The keyword index to fill.
    :param documents: The rows.
    :param changes: The sequence of changes.
    :param bm25_index: The search by words, told which documents changed.
    :param interval_seconds: Pause between two looks at the sequence.
    """

    def __init__(
        self,
        index: KeywordIndex,
        documents: DocumentRepository,
        changes: IndexChanges,
        bm25_index: Bm25Index,
        *,
        interval_seconds: float = 1.0,
    ) -> None:
        self._index = index
        self._documents = documents
        self._changes = changes
        self._bm25_index = bm25_index
        self._interval = interval_seconds
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._read_up_to = 0
        self._applied: set[int] = set()
        """Changes after ``_read_up_to`` that were applied; others may yet become visible among them."""
        self._is_failing = False

    def load(self) -> None:
        """Fill the index from the documents that are ready.

        :raises DatabaseError: If the database can't be read.
        """
        # The position first: what changes while the rows are read is read again.
        self._read_up_to = self._changes.latest_id()
        self._index.update(map(keyword_entry, self._documents.iter_ready()))

    def start(self) -> None:
        """Follow the changes from now on."""
        self._thread = threading.Thread(target=self._follow, name="keyword-index-follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

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

    def _follow(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self.catch_up()
            except DatabaseError as error:
                if not self._is_failing:
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
