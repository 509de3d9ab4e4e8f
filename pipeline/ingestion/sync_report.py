"""What a sync did, document by document."""

from dataclasses import dataclass, field
from typing import Any

from knowledge_lookup.pipeline.ingestion.front_matter import FrontMatterWarning
from knowledge_lookup.pipeline.ingestion.knowledge_files import SkippedFile


@dataclass(slots=True)
class SyncReport:
    """The outcome of one sync.

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

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        :returns: The fields under their own names; warnings as ``file``, ``line`` and ``message``.
        """
        return {
            "added": list(self.added),
            "updated": list(self.updated),
            "removed": list(self.removed),
            "unchanged": self.unchanged,
            "skipped": [{"file": skipped.file_path, "reason": skipped.reason} for skipped in self.skipped],
            "warnings": [
                {"file": warning.file_path, "line": warning.line, "message": warning.message}
                for warning in self.warnings
            ],
            "chunks": self.chunks,
        }
