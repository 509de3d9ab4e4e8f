"""The commands below ``knowledge-lookup documents``."""

from pathlib import Path
from typing import Annotated

import typer

from knowledge_lookup.pipeline.cli import rendering
from knowledge_lookup.pipeline.cli.options import JsonOption, open_pipeline
from knowledge_lookup.pipeline.errors import KnowledgeBaseError

documents = typer.Typer(
    name="documents",
    help="Upload, delete, list, show and import documents.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PathArgument = Annotated[str, typer.Argument(help="Path relative to the base path, for example api/errors.md.")]


@documents.command()
def upload(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Markdown or plain text file.")],
    category: Annotated[
        str | None, typer.Option("--category", help="Domain; wins over the front matter's category.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="File name in the knowledge base.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Save a document in the knowledge base and index it; one at the same path is replaced whole."""
    with open_pipeline(context) as pipeline:
        result = pipeline.upload(file, name=name, category=category)
    if as_json:
        rendering.json_object(result.to_dict())
    else:
        rendering.raw(f"{result.action} {result.file_path} (domain {result.domain}, {result.chunks} chunks embedded)")
        for warning in result.warnings:
            rendering.remark(f"mended {warning}")


@documents.command()
def delete(context: typer.Context, file_path: PathArgument, as_json: JsonOption = False) -> None:
    """Delete a document: its file and everything made from it."""
    with open_pipeline(context) as pipeline:
        deleted = pipeline.delete(file_path)
    if not deleted:
        raise KnowledgeBaseError(
            f"there is no document '{file_path}': `knowledge-lookup documents list` names those there are"
        )
    if as_json:
        rendering.json_object({"file": file_path, "deleted": True})
    else:
        rendering.raw(f"deleted {file_path}")


@documents.command("list")
def list_documents(
    context: typer.Context,
    category: Annotated[str | None, typer.Option("--category", help="Only this domain.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the documents with their domain, status and number of chunks."""
    with open_pipeline(context) as pipeline:
        records = pipeline.documents.list(category)
    rendering.document_list(records, as_json=as_json)


@documents.command()
def show(context: typer.Context, file_path: PathArgument, as_json: JsonOption = False) -> None:
    """Show what is known about a document."""
    with open_pipeline(context) as pipeline:
        record = pipeline.documents.get(file_path)
    if record is None:
        raise KnowledgeBaseError(
            f"there is no document '{file_path}': `knowledge-lookup documents list` names those there are"
        )
    rendering.document_details(record, as_json=as_json)


@documents.command("import")
def import_folder(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder with Markdown or plain text files.")],
    category_from_folder: Annotated[
        bool,
        typer.Option("--category-from-folder", help="Make the first subfolder the domain, over the front matter."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a folder of documents into the knowledge base and index them; started again, it goes on where it was."""
    with open_pipeline(context) as pipeline, rendering.progress_bar("importing") as progress:
        report = pipeline.import_folder(folder, category_from_folder=category_from_folder, progress=progress)
    if as_json:
        rendering.json_object(report.to_dict())
    else:
        rendering.sync_report(report)
