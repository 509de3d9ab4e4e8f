"""What the commands print: results on standard output, progress and remarks on standard error."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from knowledge_lookup.pipeline.cli.terminal import write, write_json
from knowledge_lookup.pipeline.visible_text import printable

if TYPE_CHECKING:
    from llama_index.core.schema import NodeWithScore

    from knowledge_lookup.agents.lookup_result import LookupResult
    from knowledge_lookup.pipeline.doctor import Difference
    from knowledge_lookup.pipeline.ingestion.sync_report import Progress, SyncReport
    from knowledge_lookup.pipeline.storage import DocumentRecord


def raw(text: str) -> None:
    """Print a text for people: nothing in it acts on the terminal.

    :param text: What to print.
    """
    write(text, sys.stdout)


def raw_json(text: str) -> None:
    """Print a JSON text as it is.

    :param text: What to print.
    """
    write_json(text, sys.stdout)


def lines(texts: Sequence[str]) -> None:
    """Print lines.

    :param texts: The lines.
    """
    for text in texts:
        raw(text)


def json_object(value: Mapping[str, Any]) -> None:
    """Print one JSON object, and nothing else.

    :param value: The object.
    """
    from knowledge_lookup.agents.json_text import escaped

    raw_json(escaped(json.dumps(value, ensure_ascii=False, indent=2)))


def remark(text: str) -> None:
    """Print a line on standard error.

    :param text: The line.
    """
    write(text, sys.stderr)


@contextmanager
def progress_bar(title: str) -> Iterator["Progress"]:
    """Show a progress bar on standard error while documents are indexed.

    :param title: Shown before the bar.
    :returns: A context manager that yields the function to report progress to.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # A file may be named like rich's own markup, or like an emoji's code.
    name = TextColumn("{task.fields[document]}", markup=False)
    with Progress(*columns, name, console=Console(stderr=True, emoji=False)) as bar:
        task = bar.add_task(title, total=None, document="")

        def report(done: int, total: int, document: str) -> None:
            bar.update(task, completed=done, total=total, document=printable(document))

        yield report


def migrated(before: str | None, after: str | None) -> None:
    """Print what a migration did.

    :param before: Revision before, None for an empty database.
    :param after: Revision after.
    """
    if before == after:
        raw(f"the database is at {after} already")
    else:
        raw(f"the database went from {before if before is not None else 'empty'} to {after}")


def sync_report(report: "SyncReport") -> None:
    """Print the outcome of a sync.

    :param report: The outcome.
    """
    for verb, paths in (("added", report.added), ("updated", report.updated), ("removed", report.removed)):
        for path in paths:
            raw(f"{verb:8} {path}")
    raw(
        f"added {len(report.added)}, updated {len(report.updated)}, removed {len(report.removed)}, "
        f"unchanged {report.unchanged}, skipped {len(report.skipped)}; {report.chunks} chunks embedded"
    )
    skipped_files(report)


def skipped_files(report: "SyncReport") -> None:
    """Name on standard error what was skipped or mended.

    :param report: The outcome of a sync.
    """
    for skipped in report.skipped:
        remark(f"skipped {skipped.file_path}: {skipped.reason}")
    for warning in report.warnings:
        remark(f"mended {warning}")


def lookup_result(result: "LookupResult") -> None:
    """Print a look-up for people.

    :param result: The result.
    """
    raw(headline(result))
    if result.completeness_hint is not None:
        raw(result.completeness_hint)
    if result.found and result.message is not None:
        raw(result.message)
    for part in (result.primary, result.supplement):
        if part is not None:
            raw(f"\n--- {part.source} ({part.match_type})\n{part.content}")
    if result.alternatives:
        raw("\n--- also matching")
        lines([f"{other.title} ({other.source})" for other in result.alternatives])
    if result.available_sections:
        raw(f"\nsections not given yet: {', '.join(result.available_sections)}")
    if result.retrieved_domains_this_session:
        raw(f"\ndomains of this session: {', '.join(result.retrieved_domains_this_session)}")


def headline(result: "LookupResult") -> str:
    """Say in one line what a look-up brought.

    :param result: The result.
    :returns: Level and sources, or why there is nothing.
    """
    if result.relevance_level is None:
        return f"nothing found: {result.message}" if result.message else "nothing found"
    return f"{result.relevance_level.value}: {', '.join(result.sources)}"


def passages(nodes: Sequence["NodeWithScore"]) -> None:
    """Print passages with their similarities.

    :param nodes: The passages, best first.
    """
    if not nodes:
        raw("nothing found")
    for passage in passages_as_dict(nodes)["passages"]:
        section = f" > {passage['section']}" if passage["section"] else ""
        raw(f"--- {passage['similarity']:.3f} {passage['file']}{section}\n{passage['text']}\n")


def passages_as_dict(nodes: Sequence["NodeWithScore"]) -> dict[str, Any]:
    """Return passages as JSON values.

    :param nodes: The passages, best first.
    :returns: The level of the result (null for none) and the passages with ``similarity`` from 0 to 1.
    """
    from llama_index.core.schema import MetadataMode

    from knowledge_lookup.postprocessors import relevance_level_of
    from knowledge_lookup.retrievers import metadata as keys

    level = relevance_level_of(nodes)
    return {
        "relevanceLevel": level.value if level is not None else None,
        "passages": [
            {
                "file": scored.node.metadata.get(keys.FILE_PATH),
                "section": scored.node.metadata.get(keys.SECTION),
                "similarity": scored.score,
                "text": scored.node.get_content(metadata_mode=MetadataMode.NONE),
            }
            for scored in nodes
        ],
    }


def knowledge_map_as_json(text: str) -> None:
    """Print a knowledge map as JSON.

    :param text: The map's YAML, a list of domains; may be empty.
    """
    import yaml

    json_object({"domains": yaml.safe_load(text) or []})


def document_list(records: Sequence["DocumentRecord"], *, as_json: bool) -> None:
    """Print rows of documents, one a line.

    :param records: The rows.
    :param as_json: Print JSON.
    """
    if as_json:
        json_object({"documents": [_document(record) for record in records]})
        return
    for record in records:
        raw(f"{record.file_path}\t{record.category}\t{record.status.value}\t{record.chunk_count}\t{record.title}")


def document_details(record: "DocumentRecord", *, as_json: bool) -> None:
    """Print all that a row says.

    :param record: The row.
    :param as_json: Print JSON.
    """
    details = _document(record) | {
        "contentHash": record.content_hash,
        "embeddingModel": record.embedding_model,
        "createdAt": record.created_at.isoformat(),
        "updatedAt": record.updated_at.isoformat(),
        "metadata": record.metadata,
    }
    if as_json:
        json_object(details)
        return
    for name, value in details.items():
        raw(f"{name}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}")


def differences(found: Sequence["Difference"], *, as_json: bool) -> None:
    """Print what the doctor found.

    :param found: The differences.
    :param as_json: Print JSON.
    """
    if as_json:
        json_object({"differences": [difference.to_dict() for difference in found]})
    elif found:
        lines([str(difference) for difference in found])
        remark(f"{len(found)} differences; `knowledge-lookup doctor --fix` mends them")
    else:
        raw("files, database, Milvus and keyword index agree")


def _document(record: "DocumentRecord") -> dict[str, Any]:
    return {
        "file": record.file_path,
        "title": record.title,
        "domain": record.category,
        "status": record.status.value,
        "chunks": record.chunk_count,
    }
