"""Decides what a look-up of a section comes to: which document is meant, and what is left of the section."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from knowledge_lookup.agents.document_texts import DocumentTexts
from knowledge_lookup.agents.lookup_decider import LookupDecider
from knowledge_lookup.agents.lookup_decision import (
    DOC_ALREADY_RETRIEVED,
    MATCHES_CONSIDERED,
    Basis,
    DecisionMaker,
    LookupDecision,
    Situation,
    listed,
    matched_key,
)
from knowledge_lookup.agents.lookup_journal import LookupCall
from knowledge_lookup.agents.lookup_result import PrimaryResult
from knowledge_lookup.agents.messages import Messages
from knowledge_lookup.agents.result_assembly import Delivery, SourceOf
from knowledge_lookup.agents.session_memory import DeliveredText, SessionMemory
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.excerpt import EXCERPT_CHARACTERS
from knowledge_lookup.retrievers.keyword_match import KeywordMatches
from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval
from knowledge_lookup.retrievers.tracing import traced

_LIST_CHARACTERS = 800
"""Most characters of a result that lists the sections which there are."""
_SHOWN_TITLE = 80
_DOCUMENTS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The section that is asked for: its document, its position there (or several that share a heading), its level."""

    file_path: str
    document: DocumentText
    positions: Sequence[int]
    level: RelevanceLevel


class SectionDecider:
    """Decides on look-ups with a section title.

    The document is the best keyword match that has such a section; where nothing matches by keyword, one with such a
    section that an earlier look-up of the same query delivered, or that semantic search finds; at last, as
    ``REFERENCE``, the one with a section of exactly this title that the session was given text of last.

    :param texts: Reads the documents.
    :param domain_of: Gives the domain of a document.
    :param source_of: Makes the source of a file path.
    :param limits: Knows the limits for sessions.
    :param maker: Makes the decisions.
    :param messages: The language of what is said.
    """

    def __init__(
        self,
        texts: DocumentTexts,
        domain_of: Callable[[str], str],
        source_of: SourceOf,
        *,
        limits: LookupDecider,
        maker: DecisionMaker,
        messages: Messages,
    ) -> None:
        self._texts = texts
        self._domain_of = domain_of
        self._source_of = source_of
        self._limits = limits
        self._maker = maker
        self._messages = messages

    def needs_retrieval(self, call: LookupCall, matches: KeywordMatches, memory: SessionMemory) -> bool:
        """Tell whether semantic search is needed to know which document is meant.

        :param call: The call, with a section title.
        :param matches: The outcome of the keyword match.
        :param memory: What the session was given.
        :returns: False if a keyword match tells, or an earlier look-up of the same query.
        """
        had = self._had(call, memory)
        return not matches.matches and self._with_section(call.section_title or "", had, memory) is None

    @traced
    def decide(
        self, situation: Situation, matches: KeywordMatches, retrieval: KnowledgeRetrieval | None
    ) -> LookupDecision:
        """Decide on a section.

        :param situation: What is decided on; its call has a section title.
        :param matches: The outcome of the keyword match.
        :param retrieval: What semantic search found without regard to the session; None if it wasn't needed.
        :returns: The decision.
        """
        call, memory = situation.call, situation.memory
        title = call.section_title or ""
        matched = [match.entry.file_path for match in matches.matches[:MATCHES_CONSIDERED]]
        found = [] if retrieval is None else list(dict.fromkeys(map(keys.document_of, retrieval.nodes)))
        level = RelevanceLevel.PRECISE if matches.decisive else RelevanceLevel.HIGHLY_RELEVANT
        file_path = self._with_section(title, matched or [*self._had(call, memory), *found], memory)
        if file_path is None and not matched:
            # Nobody knows whether the query is about this document.
            level, file_path = RelevanceLevel.REFERENCE, self._named(title, memory.latest_documents())
        file_path = file_path or next(iter(matched or found), None)
        basis = Basis(matched_key(matches))
        document = None if file_path is None else self._texts.of(file_path)
        if file_path is None or document is None:
            return self._maker.nothing_found(situation, basis)
        refusal = self._limits.over_domain_limit(situation, [self._domain_of(file_path)], basis)
        if refusal is not None:
            return refusal
        left = document.titles_left(memory.given(file_path, document))
        named = document.sections_named(title)
        beginning = document.sections_beginning(title)
        titles = list(dict.fromkeys(document.title_at(at) for at in beginning))
        if named or len(titles) == 1:
            return self._section(situation, _Wanted(file_path, document, named or beginning, level), basis)
        message = self._messages.section_ambiguous if titles else self._messages.section_unknown
        return self._maker.blocked(
            situation,
            message.format(document=listed([file_path], 0), title=title[:_SHOWN_TITLE]),
            outcome="withheld",
            available=[at for at in left if at in titles] or titles or left,
            most_characters=_LIST_CHARACTERS,
            basis=basis,
        )

    def _section(self, situation: Situation, wanted: "_Wanted", basis: Basis) -> LookupDecision:
        memory, document, file_path = situation.memory, wanted.document, wanted.file_path
        given = memory.given(file_path, document)
        left = self._limits.characters_left(situation)
        limit = EXCERPT_CHARACTERS if left is None else min(left, EXCERPT_CHARACTERS)
        # Of several sections with the same heading the first that isn't given yet.
        parts = ((at, document.section(at, given, limit=limit)) for at in wanted.positions)
        position, part = next(((at, part) for at, part in parts if part.text), (wanted.positions[0], None))
        title = document.title_at(position)
        if part is None or file_path in memory.whole:
            return self._already_given(situation, wanted, title, basis)
        confidence: Literal["high", "low"] = "high" if wanted.level is RelevanceLevel.PRECISE else "low"
        primary = PrimaryResult(content=part.text, source=self._source_of(file_path), confidence=confidence)
        text = DeliveredText(
            domain=self._domain_of(file_path),
            file_path=file_path,
            version=document.version,
            way="section",
            sections=document.titles_of(part.spans),
            spans=part.spans,
        )
        is_unfinished = bool(document.section(position, [*given, *part.spans]).text)
        message = self._messages.section_unfinished.format(title=title[:_SHOWN_TITLE]) if is_unfinished else None
        return self._maker.delivered(
            situation, Delivery(primary, None, (text,)), wanted.level, basis=basis, message=message
        )

    def _already_given(self, situation: Situation, wanted: "_Wanted", title: str, basis: Basis) -> LookupDecision:
        memory, file_path = situation.memory, wanted.file_path
        given = memory.sections_given(file_path).items()
        numbers = [number for number, sections in given if title in sections or not sections]
        message = self._messages.already_retrieved.format(documents=listed([file_path], 0))
        if numbers:
            message = self._messages.section_given.format(
                document=listed([file_path], 0), title=title[:_SHOWN_TITLE], number=numbers[0]
            )
        left: tuple[str, ...] = ()
        if file_path not in memory.whole:
            left = wanted.document.titles_left(memory.given(file_path, wanted.document))
        return self._maker.blocked(
            situation,
            message,
            outcome="withheld",
            reason=DOC_ALREADY_RETRIEVED,
            available=left,
            basis=Basis(basis.matched, withheld=(file_path,)),
        )

    def _had(self, call: LookupCall, memory: SessionMemory) -> list[str]:
        """The documents that earlier look-ups of the same query delivered."""
        question = self._maker.question(replace(call, section_title=None))
        same = [lookup for lookup in memory.lookups if lookup.question == question]
        return [text.file_path for lookup in same for text in lookup.delivered]

    def _with_section(self, title: str, file_paths: Sequence[str], memory: SessionMemory) -> str | None:
        """Find the first document that has a section of this title, or else one whose title begins so.

        Of documents that share the title the first comes of which the section isn't given yet.
        """
        named = [(path, text) for path, text in self._read(file_paths) if text.sections_named(title)]
        new = (
            path
            for path, text in named
            if any(text.section(at, memory.given(path, text)).text for at in text.sections_named(title))
        )
        beginning = (path for path, text in self._read(file_paths) if text.sections_beginning(title))
        return next(new, None) or next((path for path, _ in named), None) or next(beginning, None)

    def _named(self, title: str, file_paths: Sequence[str]) -> str | None:
        return next((path for path, text in self._read(file_paths) if text.sections_named(title)), None)

    def _read(self, file_paths: Sequence[str]) -> list[tuple[str, DocumentText]]:
        texts = [(path, self._texts.of(path)) for path in file_paths[:_DOCUMENTS_LOOKED_AT]]
        return [(path, text) for path, text in texts if text is not None]
