"""What a look-up comes to: the result for the model, and what the session's memory keeps of it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from knowledge_lookup.agents.document_texts import DocumentTexts
from knowledge_lookup.agents.lookup_journal import LookupCall
from knowledge_lookup.agents.lookup_result import Alternative, LookupResult
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.result_assembly import Delivery
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup, SessionMemory, question_key
from knowledge_lookup.postprocessors import RelevanceLevel, completeness_hint
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.keyword_match import KeywordMatches
from knowledge_lookup.retrievers.normal_form import normal_form

DOC_ALREADY_RETRIEVED = "DOC_ALREADY_RETRIEVED"
PARTIALLY_FILTERED = "PARTIALLY_FILTERED"
REPEATED_QUESTION = "REPEATED_QUESTION"

BLOCKED_CHARACTERS = 300
"""A result that delivers no text is shorter than this, as long as the session's domains leave room for it."""
_MESSAGE_CHARACTERS = 180
_LISTED_DOCUMENTS = 100
_LISTED_SECTIONS = 200
"""So many characters are spent on a message, on naming documents in it, and on naming the sections that are left."""
_LONGEST_NAME = 80
MATCHES_CONSIDERED = 100
"""Of a keyword that more documents share, the first so many by rank are looked at."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a look-up is decided on.

    :param call: The call.
    :param memory: What its session has asked and been given.
    :param corpus: Identifies the documents that there are.
    """

    call: LookupCall
    memory: SessionMemory
    corpus: str


@dataclass(frozen=True, slots=True)
class Basis:
    """What a retrieval is remembered by.

    :param matched: Identifies the outcome of the keyword match.
    :param embedding: The query's vector, packed; None where semantic search didn't run.
    :param withheld: Documents that were held back because the session has them.
    """

    matched: str = ""
    embedding: bytes | None = None
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookupDecision:
    """What a look-up comes to.

    :param result: What is delivered.
    :param dedup_reason: Why something was held back; None if nothing was.
    :param remembered: What the session's memory keeps of it.
    """

    result: LookupResult
    dedup_reason: str | None
    remembered: RememberedLookup


class DecisionMaker:
    """Makes decisions out of what is to be said and delivered.

    :param texts: Reads the documents.
    :param tool_name: The tool; the same query to another tool is another question.
    :param locale: Language of messages and hints.
    """

    def __init__(self, texts: DocumentTexts, *, tool_name: str, locale: Locale) -> None:
        self._texts = texts
        self._tool_name = tool_name
        self._locale = locale
        self._messages = MESSAGES[locale]

    def question(self, call: LookupCall) -> str:
        """Identify the question of a call.

        :param call: The call.
        :returns: Its key; the same for every query with the same normal form to the same tool.
        """
        section = "" if call.section_title is None else normal_form(call.section_title)
        return question_key(self._tool_name, call.normal_query, section)

    def delivered(
        self,
        situation: Situation,
        delivery: Delivery,
        level: RelevanceLevel,
        *,
        basis: Basis,
        message: str | None = None,
        dedup_reason: str | None = None,
        named: Sequence[Alternative] | None = None,
    ) -> LookupDecision:
        """Deliver text.

        :param situation: What is decided on.
        :param delivery: The texts.
        :param level: How good they are.
        :param basis: What the retrieval is remembered by.
        :param message: What else the model must know.
        :param dedup_reason: Why something was held back.
        :param named: Other matching documents.
        :returns: The decision.
        """
        documents = {path: self._texts.of(path) for path in delivery.documents}
        domains = dict.fromkeys([*situation.memory.domains, *(text.domain for text in delivery.texts)])
        has_session = situation.call.session_id is not None
        result = LookupResult(
            found=True,
            primary=delivery.primary,
            supplement=delivery.supplement,
            message=message,
            relevance_level=level,
            completeness_hint=completeness_hint(level, self._locale),
            retrieved_domains_this_session=tuple(domains) if has_session else (),
            available_sections=self._sections_left(situation, delivery, documents) or None,
            alternatives=tuple(named) if named else None,
            passages=delivery.passages,
        )
        remembered = RememberedLookup(
            number=situation.memory.next_number,
            question=self.question(situation.call),
            corpus=situation.corpus,
            outcome="delivered",
            delivered=tuple(_claimed(text, situation.memory, documents[text.file_path]) for text in delivery.texts),
            withheld=basis.withheld,
            characters=delivery.characters,
            level=level,
            matched=basis.matched,
            embedding=basis.embedding,
        )
        return LookupDecision(result, dedup_reason, remembered)

    def already_retrieved(self, situation: Situation, documents: Sequence[str], basis: Basis) -> LookupDecision:
        """Say that the session has all that was found: what of it came when, and what is left to ask for.

        :param situation: What is decided on.
        :param documents: The documents, at least one.
        :param basis: What the retrieval is remembered by.
        :returns: The decision.
        """
        memory = situation.memory
        message = self._messages.already_retrieved.format(documents=listed(documents, _LISTED_DOCUMENTS))
        message += self._given_at(memory, documents, _MESSAGE_CHARACTERS - len(message))
        available = self._left_of(documents[0], memory)
        basis = Basis(basis.matched, basis.embedding, tuple(documents))
        return self.blocked(
            situation, message, outcome="withheld", reason=DOC_ALREADY_RETRIEVED, available=available, basis=basis
        )

    def nothing_found(self, situation: Situation, basis: Basis, *, reason: str | None = None) -> LookupDecision:
        """Say that nothing was found; the second time in a row, that the knowledge base doesn't hold it.

        :param situation: What is decided on.
        :param basis: What the retrieval is remembered by.
        :param reason: Why there was no retrieval.
        :returns: The decision.
        """
        said = (self._messages.not_found, self._messages.not_found_again, self._messages.not_found_still)
        message = said[min(situation.memory.found_nothing_in_a_row(), 2)]
        return self.blocked(situation, message, outcome="nothing", reason=reason, basis=basis)

    def blocked(
        self,
        situation: Situation,
        message: str,
        *,
        outcome: Literal["withheld", "nothing", "refused"],
        reason: str | None = None,
        available: Sequence[str] = (),
        most_characters: int = BLOCKED_CHARACTERS,
        basis: Basis | None = None,
    ) -> LookupDecision:
        """Deliver no text.

        :param situation: What is decided on.
        :param message: Why not, and what to do.
        :param outcome: What came of the look-up.
        :param reason: Why something was held back.
        :param available: Titles of sections to ask for; as many of them are named as there is room for.
        :param most_characters: Most characters of the result.
        :param basis: What the retrieval is remembered by.
        :returns: The decision.
        """
        basis = Basis() if basis is None else basis
        domains = situation.memory.domains if situation.call.session_id is not None else ()
        result = LookupResult(found=False, message=message, retrieved_domains_this_session=domains)
        # Each title takes two characters at least; a document may have ten thousand of them.
        for count in range(min(len(available), most_characters // 2), 0, -1):
            longer = result.model_copy(update={"available_sections": _with_ellipsis(available, count)})
            if len(longer.to_json()) < most_characters:
                result = longer
                break
        remembered = RememberedLookup(
            number=situation.memory.next_number,
            question=self.question(situation.call),
            corpus=situation.corpus,
            outcome=outcome,
            withheld=basis.withheld,
            matched=basis.matched,
            embedding=basis.embedding,
        )
        return LookupDecision(result, reason, remembered)

    @staticmethod
    def _sections_left(
        situation: Situation, delivery: Delivery, documents: Mapping[str, DocumentText | None]
    ) -> tuple[str, ...]:
        first = delivery.texts[0]
        document = documents[first.file_path]
        if document is None:
            return ()
        given = situation.memory.given(first.file_path, document)
        titles = document.titles_left([*given, *first.spans])
        return _with_ellipsis(titles, _how_many_fit(titles, _LISTED_SECTIONS))

    def _left_of(self, file_path: str, memory: SessionMemory) -> tuple[str, ...]:
        document = self._texts.of(file_path)
        if document is None or file_path in memory.whole:
            return ()
        return document.titles_left(memory.given(file_path, document))

    def _given_at(self, memory: SessionMemory, documents: Sequence[str], most_characters: int) -> str:
        """Name the sections that each look-up gave of the documents, as far as there is room."""
        given: dict[int, list[str]] = {}
        for file_path in documents:
            for number, sections in memory.sections_given(file_path).items():
                name = file_path.rpartition("/")[2]
                what = self._messages.given_sections.format(document=name, sections=listed(sections, 40))
                given.setdefault(number, []).append(what if any(sections) else name)
        text = ""
        for number, names in sorted(given.items()):
            more = self._messages.given_at.format(number=number, what=listed(names, 80))
            if len(text) + len(more) > most_characters:
                break
            text += more
        return text


def _claimed(text: DeliveredText, memory: SessionMemory, document: DocumentText | None) -> DeliveredText:
    """Add what a text is remembered by: its lines, and the part of the document that is claimed with it."""
    lines = () if document is None else document.lines_of(text.spans)
    is_document = text.way == "exact" and not memory.is_matched_exactly(text.file_path)
    part = "" if is_document else f"{', '.join(text.sections)} #{memory.next_number}"
    return text.model_copy(update={"lines": lines, "part": part})


def matched_key(matches: KeywordMatches) -> str:
    """Identify the outcome of a keyword match.

    :param matches: The matches; of very many the first hundred and their number count.
    :returns: 32 hexadecimal digits.
    """
    first = sorted(match.entry.file_path for match in matches.matches[:MATCHES_CONSIDERED])
    rest = [] if len(first) == matches.match_count else [str(matches.match_count)]
    return question_key(*first, *rest)


def listed(names: Sequence[str], most_characters: int) -> str:
    """Write names in one line, an ellipsis in place of those for which there is no room.

    :param names: The names, at least one.
    :param most_characters: Most characters; the first name is written even if it is longer.
    :returns: The names with commas between them, of a very long one the end.
    """
    shown = [name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME:]}" for name in names]
    return ", ".join(_with_ellipsis(shown, max(_how_many_fit(shown, most_characters), 1)))


def _with_ellipsis(names: Sequence[str], count: int) -> tuple[str, ...]:
    return (*names[:count], *(["…"] if count < len(names) else []))


def _how_many_fit(names: Sequence[str], most_characters: int) -> int:
    lengths = itertools.accumulate(len(name) + len(", ") for name in names)
    return sum(length <= most_characters for length in lengths)
