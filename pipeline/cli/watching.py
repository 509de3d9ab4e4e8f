"""``sync --watch``: index what changes in the folder, as it changes."""

from collections.abc import Callable
from threading import Event

from watchfiles import Change, watch

from knowledge_lookup.pipeline.ingestion.folder_scan import DOCUMENT_SUFFIXES
from knowledge_lookup.pipeline.ingestion.sync_report import SyncReport
from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.retrievers.errors import VectorStoreUnavailableError

_RETRY_MS = 2000


def follow_folder(
    settings: Settings,
    *,
    on_report: Callable[[SyncReport], None],
    on_busy: Callable[[str], None],
    stop: Event | None = None,
) -> None:
    """Sync now and after each change of the folder, until stopped or interrupted.

    A pipeline is open only while it writes, so that other commands can use Milvus Lite in between. While another
    process holds it, the sync is tried again every two seconds.

    :param settings: The settings.
    :param on_report: Called with the outcome of each sync.
    :param on_busy: Called with the reason when a sync has to wait.
    :param stop: Ends the watch when set; None goes on until the process is interrupted.
    :raises KnowledgeLookupError: If the folder isn't there, or a sync fails for another reason than waiting.
    """
    is_pending = not _sync(settings, on_report, on_busy)
    changes = watch(
        settings.knowledge.base_path,
        watch_filter=_is_document,
        stop_event=stop,
        rust_timeout=_RETRY_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )
    for changed in changes:
        if changed or is_pending:
            is_pending = not _sync(settings, on_report, on_busy)


def _sync(settings: Settings, on_report: Callable[[SyncReport], None], on_busy: Callable[[str], None]) -> bool:
    with KnowledgePipeline.from_settings(settings) as pipeline:
        try:
            report = pipeline.sync()
        except VectorStoreUnavailableError as error:
            on_busy(str(error))
            return False
    on_report(report)
    return True


def _is_document(_change: Change, path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and any(name.lower().endswith(suffix) for suffix in DOCUMENT_SUFFIXES)
