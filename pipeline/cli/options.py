"""What several commands share: options, and opening the pipeline that they are about."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knowledge_lookup.pipeline.cli import rendering
from knowledge_lookup.retrievers.background import in_background

_PATIENCE_SECONDS = 2.0
"""A database that hangs is waited for no longer before a look-up goes on without it."""

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline
    from knowledge_lookup.pipeline.settings import Settings

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]
SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        help="Session whose memory applies; kept in the database, so that the next command goes on with it.",
    ),
]


def load_settings(context: typer.Context, *, session: str | None = None) -> "Settings":
    """Load the settings that ``--config`` names.

    :param context: The command's context.
    :param session: The session that ``--session`` names.
    :returns: The settings; with a session its memory is in the database, since each command is its own process.
    :raises SettingsError: If the settings aren't valid.
    """
    from knowledge_lookup.pipeline.settings import Settings

    config: Path | None = context.obj
    settings = Settings.load(config)
    if session is None:
        return settings
    return settings.model_copy(update={"session": settings.session.model_copy(update={"backend": "database"})})


def open_pipeline(context: typer.Context, *, session: str | None = None) -> "KnowledgePipeline":
    """Build the pipeline of the settings.

    :param context: The command's context.
    :param session: The session that ``--session`` names.
    :returns: The pipeline, to be closed by the command.
    :raises SettingsError: If the settings aren't valid.
    """
    from knowledge_lookup.pipeline import KnowledgePipeline

    return KnowledgePipeline.from_settings(load_settings(context, session=session))


def index_if_needed(pipeline: "KnowledgePipeline") -> None:
    """Index a knowledge base that has never been indexed; of one that was left unfinished say so.

    What is indexed answers at once: finishing the rest may take long, and may need what is down at the moment.

    :param pipeline: The pipeline.
    :raises KnowledgeLookupError: If it can't be indexed.
    """
    from knowledge_lookup.pipeline.storage import DatabaseUnavailableError

    try:
        if in_background(pipeline.is_indexed, name="is-indexed").result(_PATIENCE_SECONDS):
            return
        is_begun = len(pipeline.keyword_index) > 0
    except (DatabaseUnavailableError, TimeoutError):
        return  # a look-up does without the database, and says so
    if is_begun:
        rendering.remark("some documents are not indexed yet: `knowledge-lookup sync` completes them")
        return
    with rendering.progress_bar("indexing the knowledge base first") as progress:
        report = pipeline.sync(progress=progress)
    rendering.skipped_files(report)
