"""The map of a knowledge base for a planner's prompt: YAML within a budget of characters.

A small knowledge base is shown whole. Where that doesn't fit, the details go in the order of what a planner misses
least: first covers are shortened, then descriptions, then the lists of documents go, and at last domains are only
named. Whatever is left out is counted in the map.
"""

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from knowledge_lookup.agents.json_text import HIDDEN
from knowledge_lookup.pipeline.document_traits import covers
from knowledge_lookup.pipeline.storage import DocumentRecord
from knowledge_lookup.pipeline.storage.domain_repository import DomainRecord
from knowledge_lookup.retrievers.text_cut import cut

_LEAST_BUDGET = 100
_SMALL_BUDGET = 999
_LARGE_BUDGET = 4_000
_SMALL_BASE_DOCUMENTS = 6
_CHARACTERS_A_DOCUMENT = 150
_TITLE_CHARACTERS = 80
_WHOLE = 500


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of each domain is shown; ``when_to_retrieve`` gets the characters that are left.

    :param documents: Most documents of a domain; None leaves out their list.
    :param covers: Most characters of a document's topics together; None leaves them out.
    :param description: Most characters of a domain's description.
    :param least_when: Characters of ``when_to_retrieve`` below which less of the rest is shown instead.
    """

    documents: int | None
    covers: int | None
    description: int
    least_when: int


_DETAILS = (
    _Detail(documents=30, covers=1_000, description=_WHOLE, least_when=_WHOLE),
    _Detail(documents=30, covers=60, description=_WHOLE, least_when=200),
    _Detail(documents=30, covers=40, description=60, least_when=150),
    _Detail(documents=30, covers=24, description=30, least_when=100),
    _Detail(documents=30, covers=24, description=20, least_when=60),
    _Detail(documents=20, covers=None, description=20, least_when=60),
    _Detail(documents=5, covers=None, description=20, least_when=50),
    _Detail(documents=None, covers=None, description=20, least_when=50),
)


def render_knowledge_map(
    domains: Sequence[DomainRecord],
    documents: Mapping[str, Sequence[DocumentRecord]],
    *,
    max_characters: int | None = None,
) -> str:
    """Write the map.

    :param domains: The domains, in the order of the map.
    :param documents: The documents of each domain.
    :param max_characters: Most characters, at least 100. None: 999, and 150 more for each document beyond six, up to
        4,000.
    :returns: YAML: a list of domains. A comment at its end says how many domains are left out.
    """
    if max_characters is None:
        beyond = sum(map(len, documents.values())) - _SMALL_BASE_DOCUMENTS
        max_characters = min(_SMALL_BUDGET + max(beyond, 0) * _CHARACTERS_A_DOCUMENT, _LARGE_BUDGET)
    elif max_characters < _LEAST_BUDGET:
        raise ValueError(f"max_characters must be at least {_LEAST_BUDGET}, got {max_characters}")
    for detail in _DETAILS:
        text = _in_detail(domains, documents, detail, max_characters)
        if text is not None:
            return text
    return _as_many_as_fit(domains, documents, max_characters)


def _in_detail(
    domains: Sequence[DomainRecord], documents: Mapping[str, Sequence[DocumentRecord]], detail: _Detail, budget: int
) -> str | None:
    """Return the map of all domains with the longest ``when_to_retrieve`` that fits; None if the least doesn't."""

    def render(when: int) -> str | None:
        text = ""
        for domain in domains:
            text += _entry(domain, documents[domain.domain_id], detail, when)
            if len(text) > budget:
                return None
        return text

    best = render(detail.least_when)
    if best is None:
        return None
    low, high = detail.least_when, _WHOLE
    while low < high:
        middle = (low + high + 1) // 2
        text = render(middle)
        if text is None:
            high = middle - 1
        else:
            best, low = text, middle
    return best


def _as_many_as_fit(
    domains: Sequence[DomainRecord], documents: Mapping[str, Sequence[DocumentRecord]], budget: int
) -> str:
    """Return a map in which some domains are described, some named and the rest counted.

    Domains with more documents come first. Names take half of the budget at most while descriptions need it.
    """
    largest_first = sorted(domains, key=lambda domain: -domain.document_count)
    budget -= len(_footer(len(domains) + 1))
    entries: dict[str, str] = {}

    def put_while_fitting(some: Sequence[DomainRecord], write: Callable[[DomainRecord], str], limit: int) -> None:
        used = sum(map(len, entries.values()))
        for domain in some:
            text = write(domain)
            used += len(text) - len(entries.get(domain.domain_id, ""))
            if used > limit:
                return
            entries[domain.domain_id] = text

    def describe(domain: DomainRecord) -> str:
        return _entry(domain, documents[domain.domain_id], _DETAILS[-1], _DETAILS[-1].least_when)

    put_while_fitting(largest_first, _name, budget // 2)
    put_while_fitting(largest_first[: len(entries)], describe, budget)
    put_while_fitting(largest_first[len(entries) :], _name, budget)
    text = "".join(entries[domain.domain_id] for domain in domains if domain.domain_id in entries)
    left_out = len(domains) - len(entries)
    return text + _footer(left_out) if left_out else text


def _entry(domain: DomainRecord, documents: Sequence[DocumentRecord], detail: _Detail, when: int) -> str:
    entry: dict[str, Any] = {
        "domain_id": domain.domain_id,
        "description": _shortened(domain.description, detail.description),
        "when_to_retrieve": _shortened(domain.when_to_retrieve, when),
    }
    shown = documents[: detail.documents or 0]
    if detail.documents is not None:
        entry["documents"] = [_document(document, detail.covers) for document in shown]
    if len(shown) < len(documents):
        entry["omitted"] = _counted(len(documents) - len(shown), "document")
    return _yaml([entry])


def _document(document: DocumentRecord, covers_characters: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"title": _shortened(document.title, _TITLE_CHARACTERS)}
    if covers_characters is not None:
        entry["covers"] = _OneLineList(_fitting(covers(document), covers_characters))
    return entry


def _fitting(topics: Sequence[str], limit: int) -> Sequence[str]:
    """Return the first topics that fit, whole where possible, and an ellipsis for the others."""
    ends = itertools.accumulate(map(len, topics))
    fitting = sum(1 for _ in itertools.takewhile(lambda end: end <= limit, ends))
    if fitting == len(topics):
        return topics
    return [*(topics[:fitting] or [_shortened(topics[0], limit)]), *(["…"] if len(topics) > max(fitting, 1) else [])]


def _name(domain: DomainRecord) -> str:
    return _yaml([{"domain_id": domain.domain_id, "omitted": _counted(domain.document_count, "document")}])


def _footer(domains: int) -> str:
    return f"# omitted: {_counted(domains, 'domain')}\n"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shortened(text: str, limit: int) -> str:
    line = " ".join(HIDDEN.sub("", text).split())
    return line if len(line) <= limit else cut(line, limit - 1).rstrip("，,、；;") + "…"


class _OneLineList(list[str]):
    """A list that is written in brackets on one line."""


class _MapDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_MapDumper.add_representer(
    _OneLineList, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def _yaml(value: list[dict[str, Any]]) -> str:
    # A line is never broken: continued lines cost characters and read badly.
    return yaml.dump(value, Dumper=_MapDumper, allow_unicode=True, sort_keys=False, width=sys.maxsize)
