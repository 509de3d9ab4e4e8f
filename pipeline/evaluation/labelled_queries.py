"""Queries with the documents that answer them, one JSON object a line."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge_lookup.retrievers.errors import KnowledgeLookupError

NO_KIND = "any"


class LabelledQueryError(KnowledgeLookupError):
    """A file of labelled queries can't be read."""


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query and what is right for it.

    :param query: The query as an agent would ask it.
    :param gold: Paths of the documents that answer it, relative to the base path; empty for an unanswerable query.
    :param kind: What sort of query it is, for figures by kind.
    """

    query: str
    gold: frozenset[str]
    kind: str = NO_KIND


def read_queries(path: Path) -> list[LabelledQuery]:
    """Read a JSONL file of ``{"query": ..., "gold": [...], "kind": ...}``; other keys are ignored.

    :param path: The file; empty lines are passed over.
    :returns: The queries in order, at least one.
    :raises LabelledQueryError: If the file can't be read or a line isn't such an object; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelledQueryError(f"'{path}' can't be read ({error}): give a UTF-8 file of labelled queries") from error
    queries = [_query(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not queries:
        raise LabelledQueryError(
            f'\'{path}\' has no queries: one {{"query": "...", "gold": ["path.md"]}} a line is needed'
        )
    return queries


def require_documents(queries: Sequence[LabelledQuery], file_paths: Iterable[str]) -> None:
    """Refuse labels that name documents which don't exist: they could only ever count as wrong.

    :param queries: The labelled queries.
    :param file_paths: Paths of the documents that there are, relative to the base path.
    :raises LabelledQueryError: If a gold path isn't among them; the message names the first.
    """
    known = frozenset(file_paths)
    missing = [(query, path) for query in queries for path in sorted(query.gold - known)]
    if missing:
        query, path = missing[0]
        raise LabelledQueryError(
            f"'{path}', gold of '{query.query[:60]}', is not a document of this knowledge base (of {len(missing)} such "
            "labels): give paths relative to the base path, as `knowledge-lookup documents list` shows them"
        )


def _query(line: str, where: str) -> LabelledQuery:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise LabelledQueryError(f"{where}: not JSON ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("query"), str):
        raise LabelledQueryError(f'{where}: an object with a text "query" is needed')
    gold = value.get("gold")
    if not isinstance(gold, list) or not all(isinstance(path, str) for path in gold):
        raise LabelledQueryError(f'{where}: "gold" must be a list of paths, empty for an unanswerable query')
    return LabelledQuery(query=value["query"], gold=frozenset(gold), kind=str(value.get("kind") or NO_KIND))
