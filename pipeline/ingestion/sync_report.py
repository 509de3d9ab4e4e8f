"""What a sync or an import did, document by document, and how it tells while it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from knowledge_lookup.pipeline.ingestion.document_batch import DocumentBatch
from knowledge_lookup.pipeline.ingestion.folder_scan import SkippedFile
from knowledge_lookup.pipeline.ingestion.front_matter import FrontMatterWarning

Progress = Callable[[int, int, str], None]
"""Called with the number of documents done, their total, and the document that comes next (empty at the end)."""


def tell(progress: Progress | None, done: int, total: int, file_path: str) -> None:
    """Report progress to whoever wants to know.

    :param progress: The function to call; None for nobody.
    :param done: Number of documents done.
    :param total: Number of documents in all.
    :param file_path: The document that comes next; empty at the end.
    """
    if progress is not None:
        progress(done, total, file_path)


class ProgressCounter:
    """Counts documents for whoever wants to know.

    :param progress: The function to call; None for nobody.
    :param total: Number of documents in all.
    """

    def __init__(self, progress: Progress | None, *, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def begin(self, file_path: str) -> None:
        """Report the document that comes next; those before it are on their way or done.

        :param file_path: The document.
        """
        tell(self._progress, self._done, self._total, file_path)
        self._done = min(self._done + 1, self._total)

    def end(self) -> None:
        """Report that all are done."""
        tell(self._progress, self._total, self._total, "")


@dataclass(slots=True)
class SyncReport:
    """The outcome of one sync or import.

    :param added: Documents that are new in the index.
    :param updated: Documents whose content changed, or that an earlier sync left unfinished.
    :param removed: Documents whose file is gone.
    :param unchanged: Number of documents that needed nothing.
    :param skipped: Files that aren't indexed, with the reason.
    :param warnings: What had to be mended to read a file.
    :param chunks: Number of chunks embedded.
    """

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[FrontMatterWarning] = field(default_factory=list)
    chunks: int = 0

    def note(self, action: Literal["added", "updated", "unchanged"], file_path: str, chunks: int) -> None:
        """Add one document.

        :param action: What was done with it.
        :param file_path: The document.
        :param chunks: Number of chunks embedded for it.
        """
        self.chunks += chunks
        if action == "unchanged":
            self.unchanged += 1
        else:
            (self.added if action == "added" else self.updated).append(file_path)

    def take(self, batch: DocumentBatch) -> None:
        """Add the documents of a batch that is done.

        :param batch: The batch.
        """
        for entry in batch.documents:
            if entry.outcome == "skipped":
                self.skipped.append(SkippedFile(entry.file_path, entry.reason))
                if entry.is_outdated:
                    self.removed.append(entry.file_path)
                continue
            if entry.document is not None:
                self.warnings.extend(entry.document.warnings)
            self.note(entry.outcome, entry.file_path, len(entry.nodes))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        :returns: The fields under their own names.
        """
        return {
            "added": list(self.added),
            "updated": list(self.updated),
            "removed": list(self.removed),
            "unchanged": self.unchanged,
            "skipped": [{"file": skipped.file_path, "reason": skipped.reason} for skipped in self.skipped],
            "warnings": [warning.to_dict() for warning in self.warnings],
            "chunks": self.chunks,
        }
