"""The commands. What they print is in ``rendering``; what they do is in the pipeline."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from knowledge_lookup.pipeline.cli import explaining, rendering
from knowledge_lookup.pipeline.cli.documents import documents
from knowledge_lookup.pipeline.cli.measuring import evaluate, tune
from knowledge_lookup.pipeline.cli.options import (
    JsonOption,
    SessionOption,
    index_if_needed,
    load_settings,
    open_pipeline,
)
from knowledge_lookup.pipeline.cli.records import records, stats
from knowledge_lookup.pipeline.cli.terminal import PrintableFormatter

app = typer.Typer(
    name="knowledge-lookup",
    help="Look up a Markdown knowledge base: exact match first, then semantic search, and a memory of each session.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(documents)
app.add_typer(records)
app.command()(evaluate)
app.command()(tune)
app.command()(stats)


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file. Default: knowledge-lookup.yml, if there is one.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log the steps of each look-up.")] = False,
) -> None:
    """Take the options that come before the command."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    # Their errors reach the user as one line of ours.
    for noisy in ("milvus_lite", "grpc", "httpx", "alembic", "openai"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    # pymilvus sets the levels of its loggers when it is imported, but leaves filters alone.
    for noisy in ("decorators", "client.grpc_handler", "client.connection_manager"):
        logging.getLogger(f"pymilvus.{noisy}").addFilter(lambda _: False)
    if not verbose:
        logging.getLogger("knowledge_lookup.agents.knowledge_lookup").addFilter(_is_no_error)
    context.obj = config


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


@app.command()
def init(context: typer.Context) -> None:
    """Create a settings file, the folder of documents (with the bundled ones) and the database."""
    from knowledge_lookup.pipeline.cli.scaffold import create_knowledge_base

    rendering.lines(create_knowledge_base(context.obj))


@app.command()
def migrate(context: typer.Context) -> None:
    """Bring the database schema up to date."""
    from knowledge_lookup.pipeline.storage import Database

    settings = load_settings(context)
    database = Database(settings.database.url, data_dir=settings.data_dir)
    try:
        before = database.current_revision()
        database.upgrade()
        rendering.migrated(before, database.current_revision())
    finally:
        database.close()


@app.command()
def sync(
    context: typer.Context,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Embed all documents again, as a change of the embedding model needs.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on and index what changes in the folder.")] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, metavar="N", help="Processes that embed, for models on the CPU.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Index the documents that are new or changed, and remove those that are gone."""
    if watch and (rebuild or as_json or workers > 1):
        raise typer.BadParameter("--watch goes with neither --rebuild, --workers nor --json", param_hint="--watch")
    if watch:
        from knowledge_lookup.pipeline.cli.watching import follow_folder

        rendering.remark("watching the folder; Ctrl-C ends it")
        follow_folder(load_settings(context), on_report=rendering.sync_report, on_busy=rendering.remark)
        return
    with open_pipeline(context) as pipeline, rendering.progress_bar("indexing") as progress:
        report = pipeline.sync(rebuild=rebuild, workers=workers, progress=progress)
    if as_json:
        rendering.json_object(report.to_dict())
    else:
        rendering.sync_report(report)


@app.command()
def lookup(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="Keywords or a question.")],
    *,
    session: SessionOption = None,
    section: Annotated[
        str | None,
        typer.Option("--section", metavar="TITLE", help="One section of the document, by its title or its beginning."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show by what evidence the result was judged; for people.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look up a query as an agent would; an unindexed knowledge base is indexed first."""
    if explain and as_json:
        raise typer.BadParameter(
            "the JSON is what an agent gets, without evidence: leave out --json", param_hint="--explain"
        )
    with open_pipeline(context, session=session) as pipeline:
        index_if_needed(pipeline)
        result = pipeline.lookup(query, session_id=session, section_title=section)
        explanation = pipeline.explain(query) if explain else None
    if as_json:
        rendering.raw_json(result.to_json())
    else:
        rendering.lookup_result(result)
    if explanation is not None:
        explaining.explanation(explanation)


@app.command()
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What to look for, in natural language.")],
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=100, help="Most passages.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Search passages by meaning alone, with their similarities; for people, without memory."""
    if not query.strip():
        raise typer.BadParameter("the query is empty: say what to look for", param_hint="QUERY")
    with open_pipeline(context) as pipeline:
        index_if_needed(pipeline)
        nodes = pipeline.search(query, top_k=top_k)
    if as_json:
        rendering.json_object(rendering.passages_as_dict(nodes))
    else:
        rendering.passages(nodes)


@app.command()
def chat(
    context: typer.Context,
    question: Annotated[
        str | None, typer.Argument(help="The question; without one, an interactive session begins.")
    ] = None,
    session: SessionOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Let the planner split the question into steps first.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the bundled executor answer; an unindexed knowledge base is indexed first."""
    from knowledge_lookup.pipeline.cli.chat import Chat

    if as_json and question is None:
        raise typer.BadParameter("--json needs a question", param_hint="--json")
    with open_pipeline(context, session=session) as pipeline:
        index_if_needed(pipeline)
        with Chat(pipeline, session_id=session, plan=plan, quiet=as_json) as conversation:
            if question is None:
                conversation.run_interactive()
            else:
                answer = conversation.ask(question)
                if as_json:
                    rendering.json_object(answer.to_dict())


@app.command("map")
def knowledge_map(
    context: typer.Context,
    max_characters: Annotated[int | None, typer.Option("--max-characters", min=100, help="Budget of the map.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the map of the domains that a planner gets, as YAML."""
    with open_pipeline(context) as pipeline:
        index_if_needed(pipeline)
        text = pipeline.knowledge_map(max_characters=max_characters)
    if as_json:
        rendering.knowledge_map_as_json(text)
    else:
        rendering.raw(text.rstrip("\n"))


@app.command()
def doctor(
    context: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what differs, from the files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare files, database, Milvus and keyword index; exit code 1 if they differ."""
    with open_pipeline(context) as pipeline:
        if fix:
            pipeline.mend()
        differences = pipeline.examine()
    rendering.differences(differences, as_json=as_json)
    if differences:
        raise typer.Exit(1)
