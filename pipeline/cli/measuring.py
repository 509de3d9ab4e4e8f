"""The commands that measure with labelled queries, and tune by them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knowledge_lookup.pipeline.cli import evaluation_rendering, explaining, rendering
from knowledge_lookup.pipeline.cli.options import JsonOption, index_if_needed, load_settings, open_pipeline
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.evaluation import EvaluationReport, LabelledQuery
    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline
    from knowledge_lookup.pipeline.settings import Settings

QUERIES_HELP = 'JSONL: {"query": ..., "gold": [paths], "kind": ...} a line.'
SESSIONS_HELP = (
    'JSONL: {"topic": ..., "gold": [paths], "queries": [variants]} a line: instead of queries, measure what three '
    "scripted agents are sent that ask all of a line in one session."
)


def evaluate(
    context: typer.Context,
    queries: Annotated[Path | None, typer.Option("--queries", help=QUERIES_HELP)] = None,
    sessions: Annotated[Path | None, typer.Option("--sessions", help=SESSIONS_HELP)] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Another settings file: evaluate it too, and compare query by query."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the knowledge base with labelled queries or sessions; an empty "gold" says that there is no answer."""
    from knowledge_lookup.pipeline.evaluation import read_queries

    if (queries is None) == (sessions is None):
        raise typer.BadParameter("give one of the two", param_hint="--queries / --sessions")
    if sessions is not None:
        if against is not None:
            raise typer.BadParameter("compares labelled queries, not sessions", param_hint="--against")
        _evaluate_sessions(context, sessions, as_json=as_json)
        return
    assert queries is not None
    labelled = read_queries(queries)
    if against is not None:
        _compare(context, labelled, against, as_json=as_json)
        return
    report = _evaluate(load_settings(context), labelled, title="evaluating")
    if as_json:
        rendering.json_object(report.to_dict())
    else:
        evaluation_rendering.evaluation(report)


def tune(
    context: typer.Context,
    *,
    queries: Annotated[Path | None, typer.Option("--queries", help=QUERIES_HELP)] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Without labels: by queries made of the documents.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Use the profile from now on.")] = False,
    most_answered: Annotated[
        float, typer.Option("--most-answered", min=0, max=1, help="Unanswerable queries that may get a result.")
    ] = 0.05,
    least_right: Annotated[
        float, typer.Option("--least-right", min=0, max=1, help="Highly relevant results that must be right.")
    ] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Fit what evidence means to the embedding model and these documents, and save it as a profile."""
    from knowledge_lookup.pipeline.evaluation import read_queries
    from knowledge_lookup.pipeline.tuning import TuningGoal

    if (queries is None) != auto:
        raise typer.BadParameter("give labelled queries, or --auto to tune without", param_hint="--queries / --auto")
    labelled = None if queries is None else read_queries(queries)
    with open_pipeline(context) as pipeline:
        index_if_needed(pipeline)
        _require_chunks(pipeline)
        with rendering.progress_bar("tuning") as progress:
            report = pipeline.tune(labelled, goal=TuningGoal(most_answered, least_right), progress=progress)
        path = pipeline.save_profile(report, apply=apply)
        has_explicit_thresholds = pipeline.evidence is None
    if as_json:
        rendering.json_object({**report.to_dict(), "file": str(path), "applied": apply})
    else:
        explaining.tuning(report, path, applied=apply)
    if has_explicit_thresholds:
        rendering.remark("thresholds are set in retrieval.normalization: as long as they are, no profile is used")


def _evaluate_sessions(context: typer.Context, path: Path, *, as_json: bool) -> None:
    from knowledge_lookup.pipeline.evaluation import (
        SessionReport,
        read_sessions,
        require_gold_documents,
        run_sessions,
        sessions_of,
    )

    sessions = read_sessions(path)
    with open_pipeline(context) as pipeline:
        index_if_needed(pipeline)
        _require_chunks(pipeline)
        require_gold_documents(sessions, (digest[0] for digest in pipeline.documents.iter_digests()))
        with rendering.progress_bar("asking") as progress:
            runs = run_sessions(sessions_of(pipeline.unrecorded_lookup()), sessions, progress=progress)
    report = SessionReport.of(runs)
    if as_json:
        rendering.json_object(report.to_dict())
    else:
        evaluation_rendering.sessions(report)


def _compare(context: typer.Context, labelled: list["LabelledQuery"], against: Path, *, as_json: bool) -> None:
    from knowledge_lookup.pipeline.evaluation import compare
    from knowledge_lookup.pipeline.settings import Settings

    settings = load_settings(context)
    # Both are read before the first is measured, which may take minutes.
    second_settings = Settings.load(against)
    names = "this configuration" if context.obj is None else str(context.obj), str(against)
    # One after the other: both may need the same Milvus Lite folder.
    first = _evaluate_configuration(names[0], settings, labelled)
    second = _evaluate_configuration(names[1], second_settings, labelled)
    comparison = compare(first, second)
    if as_json:
        rendering.json_object(
            {"first": first.to_dict(), "second": second.to_dict(), "comparison": comparison.to_dict()}
        )
    else:
        evaluation_rendering.comparison(comparison, first=names[0], second=names[1])


def _require_chunks(pipeline: "KnowledgePipeline") -> None:
    if pipeline.chunk_store.is_empty():
        # Indexed, but elsewhere: without this, semantic search would count as finding nothing.
        raise KnowledgeLookupError(
            f"Milvus has no chunks of this knowledge base in the collection '{pipeline.settings.milvus.collection}': "
            "index it there with `knowledge-lookup sync`, or correct the settings of milvus"
        )


def _evaluate_configuration(name: str, settings: "Settings", queries: list["LabelledQuery"]) -> "EvaluationReport":
    try:
        return _evaluate(settings, queries, title=f"evaluating {name}")
    except KnowledgeLookupError as error:
        raise KnowledgeLookupError(f"{name}: {error}") from error


def _evaluate(settings: "Settings", queries: list["LabelledQuery"], *, title: str) -> "EvaluationReport":
    from knowledge_lookup.pipeline import KnowledgePipeline

    with KnowledgePipeline.from_settings(settings) as pipeline:
        index_if_needed(pipeline)
        _require_chunks(pipeline)
        with rendering.progress_bar(title) as progress:
            return pipeline.evaluate(queries, progress=progress)
