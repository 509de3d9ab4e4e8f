"""From retrieved nodes to the texts that are delivered, within their budgets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.schema import MetadataMode, NodeWithScore

from knowledge_lookup.agents.lookup_result import Alternative, PrimaryResult, SupplementResult
from knowledge_lookup.agents.messages import Messages
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.text_cut import cut

SUPPLEMENT_CHARACTERS = 2000
SUPPLEMENT_PASSAGES = 3
MOST_ALTERNATIVES = 5
_LEAST_PASSAGE = 80
"""A passage that would have to be cut shorter than this is left out."""

SourceOf = Callable[[str], str]
"""From a file path to what is shown as source."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one look-up would deliver.

    :param primary: The best exact match, or None.
    :param supplement: The passages, or None.
    :param documents: (domain, file path) of every document whose text is in one of the two, in their order.
    """

    primary: PrimaryResult | None
    supplement: SupplementResult | None
    documents: tuple[tuple[str, str], ...]


def assemble(nodes: Sequence[NodeWithScore], *, source_of: SourceOf, messages: Messages) -> Delivery:
    """Choose and cut what is delivered of the nodes that a retrieval left.

    :param nodes: Keyword matches best first, then passages best first.
    :param source_of: Makes the source of a file path.
    :param messages: The labels' language.
    :returns: The first keyword match as primary; as supplement the passages of other documents, those of further
        keyword matches first.
    """
    exact = [scored for scored in nodes if keys.is_exact(scored)]
    documents: list[tuple[str, str]] = []
    primary = None
    if exact:
        best = exact[0]
        documents.append(_document(best))
        decisive = bool(best.node.metadata.get(keys.DECISIVE))
        primary = PrimaryResult(
            content=_text(best), source=source_of(path_of(best)), confidence="high" if decisive else "low"
        )
    matched = {path_of(scored) for scored in exact}
    passages = [
        scored for scored in nodes if not keys.is_exact(scored) and not (exact and path_of(scored) == path_of(exact[0]))
    ]
    in_line = _in_line(passages, matched)
    pieces: list[str] = []
    left = SUPPLEMENT_CHARACTERS
    for scored in in_line[:SUPPLEMENT_PASSAGES]:
        piece = _labelled(scored, left, source_of, messages)
        if piece is None:
            break
        pieces.append(piece)
        documents.append(_document(scored))
        left -= len(piece) + len(_BETWEEN)
    supplement = None
    if pieces:
        supplement = SupplementResult(content=_BETWEEN.join(pieces), source=source_of(path_of(in_line[0])))
    return Delivery(primary, supplement, tuple(dict.fromkeys(documents)))


def alternatives(
    nodes: Sequence[NodeWithScore],
    others: Sequence[tuple[str, str]],
    delivery: Delivery,
    *,
    source_of: SourceOf,
) -> tuple[Alternative, ...] | None:
    """Name further keyword matches whose text isn't delivered.

    :param nodes: What the retrieval left.
    :param others: (title, file path) of matching documents beyond the nodes.
    :param delivery: What is delivered.
    :param source_of: Makes the source of a file path.
    :returns: At most five; None for none.
    """
    delivered = {file_path for _, file_path in delivery.documents}
    exact = [
        (str(scored.node.metadata.get(keys.TITLE, "")), path_of(scored)) for scored in nodes if keys.is_exact(scored)
    ]
    named = [(title, file_path) for title, file_path in [*exact, *others] if file_path not in delivered]
    if not named:
        return None
    return tuple(
        Alternative(title=title, source=source_of(file_path)) for title, file_path in named[:MOST_ALTERNATIVES]
    )


def path_of(scored: NodeWithScore) -> str:
    """Return the document of a node.

    :param scored: A keyword match or a passage.
    :returns: The document's file path.
    """
    return str(scored.node.metadata[keys.FILE_PATH])


_BETWEEN = "\n\n"


def _in_line(passages: Sequence[NodeWithScore], matched: set[str]) -> list[NodeWithScore]:
    """Each further matched document's best passage, then their other passages, then the rest."""
    of_matched = [scored for scored in passages if path_of(scored) in matched]
    best_of_each = list({path_of(scored): scored for scored in reversed(of_matched)}.values())[::-1]
    in_line = [*best_of_each, *of_matched, *passages]
    return list({scored.node.node_id: scored for scored in in_line}.values())


def _document(scored: NodeWithScore) -> tuple[str, str]:
    return str(scored.node.metadata.get(keys.DOMAIN, "")), path_of(scored)


def _text(scored: NodeWithScore) -> str:
    return scored.node.get_content(metadata_mode=MetadataMode.NONE).strip()


def _labelled(scored: NodeWithScore, limit: int, source_of: SourceOf, messages: Messages) -> str | None:
    section = str(scored.node.metadata.get(keys.SECTION, ""))
    label = (
        messages.passage_label.format(source=source_of(path_of(scored)), section=section)
        if section
        else messages.passage_label_without_section.format(source=source_of(path_of(scored)))
    )
    text = _text(scored)
    room = limit - len(label) - 1
    if room < min(_LEAST_PASSAGE, len(text)):
        return None
    return f"{label}\n{cut(text, room)}"
