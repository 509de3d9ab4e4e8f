"""From retrieved nodes to the texts that are delivered, within their budgets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.schema import MetadataMode, NodeWithScore

from knowledge_lookup.agents.document_texts import DocumentTexts
from knowledge_lookup.agents.lookup_result import Alternative, PassageSpan, PrimaryResult, SupplementResult
from knowledge_lookup.agents.messages import Messages
from knowledge_lookup.agents.passage_labels import label, without_labels
from knowledge_lookup.agents.session_memory import DeliveredText, SessionMemory
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.excerpt import EXCERPT_CHARACTERS
from knowledge_lookup.retrievers.text_cut import cut_apart
from knowledge_lookup.retrievers.text_span import TextSpan
from knowledge_lookup.retrievers.tracing import traced

SUPPLEMENT_CHARACTERS = 2000
SUPPLEMENT_PASSAGES = 3
MOST_ALTERNATIVES = 5
LEAST_PASSAGE = 80
"""A passage that would have to be cut shorter than this is left out."""
_BETWEEN = "\n\n"

SourceOf = Callable[[str], str]
"""From a file path to what is shown as source."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one look-up would deliver.

    :param primary: The best exact match, or None.
    :param supplement: The passages, or None.
    :param texts: What the two are made of, in their order.
    """

    primary: PrimaryResult | None = None
    supplement: SupplementResult | None = None
    texts: tuple[DeliveredText, ...] = ()

    @property
    def documents(self) -> tuple[str, ...]:
        """The documents that the texts belong to, each once."""
        return tuple(dict.fromkeys(text.file_path for text in self.texts))

    @property
    def characters(self) -> int:
        """Characters of both contents."""
        return sum(len(part.content) for part in (self.primary, self.supplement) if part is not None)

    @property
    def passages(self) -> tuple[PassageSpan, ...]:
        """Where the texts come from."""
        return tuple(PassageSpan(text.file_path, *span) for text in self.texts for span in text.spans)


class ResultAssembly:
    """Chooses and cuts what is delivered.

    :param texts: Reads the documents.
    :param source_of: Makes the source of a file path.
    :param messages: The labels' language.
    """

    def __init__(self, texts: DocumentTexts, source_of: SourceOf, messages: Messages) -> None:
        self._texts = texts
        self._source_of = source_of
        self._messages = messages

    @traced
    def assemble(
        self, nodes: Sequence[NodeWithScore], memory: SessionMemory, *, characters_left: int | None = None
    ) -> Delivery:
        """Choose and cut what is delivered of the nodes that a retrieval left.

        :param nodes: Keyword matches best first, then passages best first.
        :param memory: What the session was given.
        :param characters_left: Most characters of all; None for no such limit.
        :returns: The first keyword match as primary, without what the session was given of it; as supplement the
            passages of other documents, those of further keyword matches first.
        """
        left = EXCERPT_CHARACTERS + SUPPLEMENT_CHARACTERS if characters_left is None else characters_left
        exact = [scored for scored in nodes if keys.is_exact(scored)]
        primary, texts = None, list[DeliveredText]()
        if exact:
            primary, text = self._primary(exact[0], memory, left)
            texts.append(text)
            left -= len(primary.content)
        supplement = self._supplement(nodes, exact, min(left, SUPPLEMENT_CHARACTERS), texts)
        return Delivery(primary, supplement, _by_document(texts))

    def alternatives(
        self, nodes: Sequence[NodeWithScore], others: Sequence[tuple[str, str]], delivery: Delivery
    ) -> tuple[Alternative, ...] | None:
        """Name further keyword matches whose text isn't delivered.

        :param nodes: What the retrieval left.
        :param others: (title, file path) of matching documents beyond the nodes.
        :param delivery: What is delivered.
        :returns: At most five; None for none.
        """
        exact = [(_title(scored), path_of(scored)) for scored in nodes if keys.is_exact(scored)]
        named = [(title, path) for title, path in [*exact, *others] if path not in delivery.documents]
        if not named:
            return None
        return tuple(
            Alternative(title=title, source=self._source_of(file_path))
            for title, file_path in named[:MOST_ALTERNATIVES]
        )

    def is_new(self, scored: NodeWithScore, memory: SessionMemory) -> bool:
        """Tell whether a node has what the session wasn't given.

        :param scored: A keyword match or a passage.
        :param memory: What the session was given.
        :returns: False for a keyword match if the session has all of the document, and for a passage if it has anything
            of it.
        """
        if path_of(scored) not in memory.documents:
            return True
        document = self._texts.of(path_of(scored))
        given = [] if document is None else memory.given(path_of(scored), document)
        if document is None or not given:
            return True
        if keys.is_exact(scored):
            return bool(document.rest((), given).text)
        span = document.locate(_text(scored), str(scored.node.metadata.get(keys.SECTION, "")))
        return span is None or not any(start < span.end and span.start < end for start, end in given)

    def _primary(self, best: NodeWithScore, memory: SessionMemory, left: int) -> tuple[PrimaryResult, DeliveredText]:
        file_path, metadata = path_of(best), best.node.metadata
        content = _text(best)
        spans = tuple(TextSpan(*span) for span in metadata.get(keys.TEXT_SPANS, ()))
        document = self._texts.of(file_path)
        given = memory.given(file_path, document) if document is not None else []
        if document is not None and (given or len(content) > left):
            part = document.rest(metadata.get(keys.MATCHED_TERMS, ()), given, limit=min(EXCERPT_CHARACTERS, left))
            content, spans = part.text, part.spans
        confidence = "high" if metadata.get(keys.DECISIVE) else "low"
        primary = PrimaryResult(content=content, source=self._source_of(file_path), confidence=confidence)
        return primary, DeliveredText(
            domain=_domain(best),
            file_path=file_path,
            version="" if document is None else document.version,
            way="exact",
            sections=() if document is None or document.is_whole(spans) else document.titles_of(spans),
            spans=spans,
        )

    def _supplement(
        self, nodes: Sequence[NodeWithScore], exact: Sequence[NodeWithScore], left: int, texts: list[DeliveredText]
    ) -> SupplementResult | None:
        matched = {path_of(scored) for scored in exact}
        passages = [
            scored
            for scored in nodes
            if not keys.is_exact(scored) and not (exact and path_of(scored) == path_of(exact[0]))
        ]
        in_line = _in_line(passages, matched)
        pieces: list[str] = []
        for scored in in_line[:SUPPLEMENT_PASSAGES]:
            piece = self._labelled(scored, left)
            if piece is None:
                break
            above, beginning, closing = piece
            pieces.append(f"{above}\n{without_labels(beginning)}{closing}")
            texts.append(self._passage(scored, beginning))
            left -= len(pieces[-1]) + len(_BETWEEN)
        if not pieces:
            return None
        return SupplementResult(content=_BETWEEN.join(pieces), source=self._source_of(path_of(in_line[0])))

    def _labelled(self, scored: NodeWithScore, limit: int) -> tuple[str, str, str] | None:
        source, section = self._source_of(path_of(scored)), str(scored.node.metadata.get(keys.SECTION, ""))
        above = label(source, section, self._messages)
        text = _text(scored)
        room = limit - len(above) - 1
        if room < min(LEAST_PASSAGE, len(text)):
            return None
        return above, *cut_apart(text, room)

    def _passage(self, scored: NodeWithScore, text: str) -> DeliveredText:
        file_path, section = path_of(scored), str(scored.node.metadata.get(keys.SECTION, ""))
        document = self._texts.of(file_path)
        span = None if document is None else document.locate(text, section)
        spans = () if span is None else (span,)
        return DeliveredText(
            domain=_domain(scored),
            file_path=file_path,
            version="" if document is None else document.version,
            way="semantic",
            sections=document.titles_of(spans) if document is not None and spans else (section,),
            spans=spans,
        )


def path_of(scored: NodeWithScore) -> str:
    """Return the document of a node.

    :param scored: A keyword match or a passage.
    :returns: The document's file path.
    """
    return str(scored.node.metadata[keys.FILE_PATH])


def _by_document(texts: Sequence[DeliveredText]) -> tuple[DeliveredText, ...]:
    """Put the passages of one document together: what it claims is one part."""
    together: dict[str, DeliveredText] = {}
    for text in texts:
        known = together.setdefault(text.file_path, text)
        if known is not text:
            sections = tuple(dict.fromkeys([*known.sections, *text.sections]))
            spans = (*known.spans, *text.spans)
            together[text.file_path] = known.model_copy(update={"sections": sections, "spans": spans})
    return tuple(together.values())


def _in_line(passages: Sequence[NodeWithScore], matched: set[str]) -> list[NodeWithScore]:
    """Each further matched document's best passage, then their other passages, then the rest."""
    of_matched = [scored for scored in passages if path_of(scored) in matched]
    best_of_each = list({path_of(scored): scored for scored in reversed(of_matched)}.values())[::-1]
    in_line = [*best_of_each, *of_matched, *passages]
    return list({scored.node.node_id: scored for scored in in_line}.values())


def _domain(scored: NodeWithScore) -> str:
    return str(scored.node.metadata.get(keys.DOMAIN, ""))


def _title(scored: NodeWithScore) -> str:
    return str(scored.node.metadata.get(keys.TITLE, ""))


def _text(scored: NodeWithScore) -> str:
    return scored.node.get_content(metadata_mode=MetadataMode.NONE).strip()
