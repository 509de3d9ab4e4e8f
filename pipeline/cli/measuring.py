"""The commands that measure with labelled queries, and tune by them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knowledge_lookup.pipeline.cli import evaluation_rendering, explaining, rendering
from knowledge_lookup.pipeline.cli.options import JsonOption, index_if_needed, load_settings, open_pipeline
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.evaluation import EvaluationReport, LabelledQuery
    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline

QUERIES_HELP = 'JSONL: {"query": ..., "gold": [paths], "kind": ...} a line.'


def evaluate(
    context: typer.Context,
    queries: Annotated[Path, typer.Option("--queries", help=QUERIES_HELP)],
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Another settings file: evaluate it too, and compare query by query."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the knowledge base with labelled queries; an empty "gold" says that there is no answer."""
    from knowledge_lookup.pipeline.evaluation import compare, read_queries

    labelled = read_queries(queries)
    settings = load_settings(context)
    if against is None:
        report = _evaluate(settings, labelled, title="evaluating")
        if as_json:
            rendering.json_object(report.to_dict())
        else:
            evaluation_rendering.evaluation(report)
        return
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


def _require_chunks(pipeline: "KnowledgePipeline") -> None:
    if pipeline.chunk_store.is_empty():
        # Indexed, but elsewhere: without this, semantic search would count as finding nothing.
        raise KnowledgeLookupError(
            f"Milvus has no chunks of this knowledge base in the collection '{pipeline.settings.milvus.collection}': "
            "index it there with `knowledge-lookup sync`, or correct the settings of milvus"
        )


def _evaluate_configuration(name: str, settings: Settings, queries: list["LabelledQuery"]) -> "EvaluationReport":
    try:
        return _evaluate(settings, queries, title=f"evaluating {name}")
    except KnowledgeLookupError as error:
        raise KnowledgeLookupError(f"{name}: {error}") from error


def _evaluate(settings: Settings, queries: list["LabelledQuery"], *, title: str) -> "EvaluationReport":
    from knowledge_lookup.pipeline import KnowledgePipeline

    with KnowledgePipeline.from_settings(settings) as pipeline:
        index_if_needed(pipeline)
        _require_chunks(pipeline)
        with rendering.progress_bar(title) as progress:
            return pipeline.evaluate(queries, progress=progress)
