"""One look-up from the query to the delivered, remembered and recorded result."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.agents.document_texts import DocumentTexts
from knowledge_lookup.agents.lookup_decider import LookupDecider
from knowledge_lookup.agents.lookup_decision import DecisionMaker, LookupDecision, Situation
from knowledge_lookup.agents.lookup_journal import LookupCall, LookupJournal
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.ongoing_calls import OngoingCalls
from knowledge_lookup.agents.outage import without_semantic_search
from knowledge_lookup.agents.result_assembly import ResultAssembly
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.agents.section_decider import SectionDecider
from knowledge_lookup.agents.session_context import current_session_id
from knowledge_lookup.agents.session_memory import SessionMemory
from knowledge_lookup.agents.session_rules import SessionRules
from knowledge_lookup.agents.tool_invocation import InvocationRecorder
from knowledge_lookup.postprocessors import (
    EvidencePostprocessor,
    RelevanceLevel,
    RelevancePostprocessor,
    relevance_level_of,
)
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.document_reader import DocumentReader
from knowledge_lookup.retrievers.errors import KnowledgeLookupError
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval, KnowledgeRetriever
from knowledge_lookup.retrievers.query_text import readable_query
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
from knowledge_lookup.retrievers.tracing import traced

logger = logging.getLogger(__name__)

_MOST_TITLE_CHARACTERS = 1_000
"""So much of a section's title is read; a beginning names a section as well."""
_MOST_DECISIONS = 1000
"""A look-up is overtaken once by each other that is going on in its session."""
_CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LookupPreview:
    """What a look-up would deliver.

    :param nodes: The result, with scores and evidence, before the text budgets.
    :param delivered: Documents whose text would be delivered.
    :param level: The level; None when nothing would be found.
    :param latency_ms: Milliseconds that it took.
    """

    nodes: tuple[NodeWithScore, ...]
    delivered: tuple[str, ...]
    level: RelevanceLevel | None
    latency_ms: float


class KnowledgeLookup:
    """Looks up a query and gives each session each text at most once.

    A document is returned once for an exact match and once for a semantic one; what else of it the session wants it
    asks for by section.

    :param retriever: Retrieves with a ``RelevancePostprocessor`` or an ``EvidencePostprocessor`` inside.
    :param relevance: The same postprocessor; judges the level again when something is taken out.
    :param memory: The action memory.
    :param documents: The documents that there are, with titles and domains.
    :param reader: Gives the text of a document.
    :param rules: Limits for each session, and when two questions are nearly the same; None for no such rules.
    :param recorder: Gets one record a look-up; None records nothing.
    :param tool_name: The name that goes into the record.
    :param source_root: What is put before a file path to make the source, for example ``knowledge_base``; empty
        for nothing.
    :param locale: Language of messages, hints and log lines.
    :param l0_error: Gives the error for which the keyword index isn't what the database says, for the record; None
        while it is.
    """

    def __init__(
        self,
        retriever: KnowledgeRetriever,
        relevance: RelevancePostprocessor | EvidencePostprocessor,
        memory: RetrievedDocTracker,
        documents: KeywordIndex,
        reader: DocumentReader,
        *,
        rules: SessionRules | None = None,
        recorder: InvocationRecorder | None = None,
        tool_name: str = "lookup_knowledge",
        source_root: str = "",
        locale: Locale = "zh",
        l0_error: Callable[[], Exception | None] = lambda: None,
    ) -> None:
        self.memory = memory
        self._ongoing = OngoingCalls()
        self.locale = locale
        self._retriever = retriever
        self._documents = documents
        self._source_root = source_root
        self._messages = MESSAGES[locale]
        self._texts = texts = DocumentTexts(reader, self._title_of)
        self._assembly = ResultAssembly(texts, self.source_of, self._messages)
        self._maker = DecisionMaker(texts, tool_name=tool_name, locale=locale)
        self._decider = LookupDecider(
            relevance,
            texts,
            self._assembly,
            self._maker,
            rules=SessionRules() if rules is None else rules,
            messages=self._messages,
        )
        self._sections = SectionDecider(
            texts,
            self._domain_of,
            self.source_of,
            limits=self._decider,
            maker=self._maker,
            messages=self._messages,
        )
        self._journal = LookupJournal(
            tool_name=tool_name,
            messages=self._messages,
            max_l2_distance=relevance.max_l2_distance,
            recorder=recorder,
            logger=logger,
            l0_error=l0_error,
        )

    @traced
    def lookup(self, query: str, session_id: str | None = None, section_title: str | None = None) -> LookupResult:
        """Look up a query, or a section of the document that a query finds.

        :param query: Keywords or a question; of more than 8,000 characters the beginning alone is read and recorded.
        :param session_id: The session whose memory applies; None takes the one of ``session_context``, and
            without that no memory applies.
        :param section_title: Title of the section that is wanted, or its beginning; None for what answers the query.
        :returns: The result; ``found`` is False when nothing valid was found or the session already has it. While
            semantic search is unavailable it is what the exact match finds, and its ``message`` says so.
        :raises KnowledgeLookupError: If semantic search is needed, can't be used for a reason that doesn't pass by
            itself, such as a collection of another embedding model, and nothing matches exactly.
        """
        call = self._begin(query, session_id, section_title)
        try:
            with self._ongoing:
                return self._conclude(call, self._retrieved(call))
        except Exception as error:
            self._journal.failed(call, error)
            raise

    @traced
    async def alookup(
        self, query: str, session_id: str | None = None, section_title: str | None = None
    ) -> LookupResult:
        """Look up a query without blocking the event loop; see :meth:`lookup`.

        :param query: Keywords or a question.
        :param session_id: See :meth:`lookup`.
        :param section_title: See :meth:`lookup`.
        :returns: The result.
        :raises KnowledgeLookupError: See :meth:`lookup`.
        """
        call = self._begin(query, session_id, section_title)
        try:
            # Memory, files, model and Milvus all make a thread wait. What is cancelled while they are searched isn't
            # remembered as given, so the conclusion is a hop of its own.
            retrieval = await asyncio.to_thread(self._retrieved, call)
            return await asyncio.to_thread(self._conclude, call, retrieval)
        except Exception as error:
            self._journal.failed(call, error)
            raise

    def preview(self, query: str) -> LookupPreview:
        """Find out what a look-up without a session would deliver; nothing is remembered, logged or recorded.

        :param query: Keywords or a question.
        :returns: Result, delivery and level.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        started = time.perf_counter()
        retrieval = self._retriever.retrieve_with_evidence(ScopedQueryBundle(query))
        retrieval.require_semantic_search()
        delivery = self._assembly.assemble(retrieval.nodes, SessionMemory())
        latency_ms = (time.perf_counter() - started) * 1000.0
        return LookupPreview(
            nodes=tuple(retrieval.nodes),
            delivered=delivery.documents,
            level=relevance_level_of(retrieval.nodes),
            latency_ms=latency_ms,
        )

    def close(self) -> None:
        """Wait some seconds for the look-ups that threads are at, before what they use is closed."""
        self._ongoing.wait(_CLOSING_SECONDS)

    def source_of(self, file_path: str) -> str:
        """Make the source that is shown for a document.

        :param file_path: Path relative to the base path.
        :returns: For example ``knowledge_base/api/payment-errors.md``.
        """
        return f"{self._source_root}/{file_path}" if self._source_root else file_path

    def _begin(self, query: str, session_id: str | None, section_title: str | None) -> LookupCall:
        session = current_session_id(self.memory) if session_id is None else str(session_id)
        section = "" if section_title is None else section_title.strip()[:_MOST_TITLE_CHARACTERS]
        call = LookupCall(readable_query(query), session, section or None)
        self._journal.received(call)
        return call

    def _situation(self, call: LookupCall) -> Situation:
        memory = SessionMemory() if call.session_id is None else self.memory.recall(call.session_id)
        return Situation(call, memory, self._documents.fingerprint)

    def _scope(self, call: LookupCall) -> ScopedQueryBundle | None:
        """Tell where to search; None where no retrieval is needed."""
        if not call.normal_query:
            return None
        situation = self._situation(call)
        if self._without_retrieval(situation) is not None:
            return None
        if call.section_title is not None:
            return ScopedQueryBundle(call.query) if self._needs_retrieval(situation) else None
        held = self._texts.held(situation.memory)
        return ScopedQueryBundle(call.query, exclude_documents=held.documents, exclude_passages_of=held.passages)

    def _retrieved(self, call: LookupCall) -> KnowledgeRetrieval | None:
        with self._ongoing:
            return self._retrieved_in_scope(call)

    def _retrieved_in_scope(self, call: LookupCall) -> KnowledgeRetrieval | None:
        bundle = self._scope(call)
        if bundle is None:
            return None
        retrieval = self._retriever.retrieve_with_evidence(bundle)
        if not retrieval.is_outage and not retrieval.nodes and not retrieval.withheld:
            retrieval.require_semantic_search()
        return retrieval

    def _without_retrieval(self, situation: Situation) -> LookupDecision | None:
        refusal = self._decider.over_limit(situation)
        if refusal is not None or situation.call.section_title is not None:
            return refusal
        return self._decider.repeated(situation)

    def _conclude(self, call: LookupCall, retrieval: KnowledgeRetrieval | None) -> LookupResult:
        with self._ongoing:
            return self._concluded(call, retrieval)

    def _concluded(self, call: LookupCall, retrieval: KnowledgeRetrieval | None) -> LookupResult:
        if retrieval is not None:
            self._journal.retrieved(call, retrieval)
        if not call.normal_query:
            result = LookupResult(found=False, message=self._messages.empty_query)
            self._journal.done(call, None, result, None)
            return result
        for _ in range(_MOST_DECISIONS):
            decision = self._decide(self._situation(call), retrieval)
            # Who was overtaken by another look-up of the session decides again, on what the session has now.
            if call.session_id is None or self.memory.remember(call.session_id, decision.remembered):
                self._journal.done(call, retrieval, decision.result, decision.dedup_reason)
                return decision.result
        raise KnowledgeLookupError(
            f"session {call.session_id!r} changes faster than a look-up can be decided: make fewer at once in it"
        )

    def _decide(self, situation: Situation, retrieval: KnowledgeRetrieval | None) -> LookupDecision:
        early = self._without_retrieval(situation)
        if early is not None:
            return early
        if retrieval is None and self._needs_retrieval(situation):
            # The session was cleared since its memory said that no retrieval is needed.
            retrieval = self._retriever.retrieve_with_evidence(ScopedQueryBundle(situation.call.query))
        if retrieval is None or situation.call.section_title is not None:
            decision = self._sections.decide(situation, self._documents.match(situation.call.query), retrieval)
        else:
            decision = self._decider.retrieved(situation, retrieval)
        if retrieval is None or retrieval.l1_error is None:
            return decision
        return without_semantic_search(decision, self._messages)

    def _needs_retrieval(self, situation: Situation) -> bool:
        call = situation.call
        if call.section_title is None:
            return True
        return self._sections.needs_retrieval(call, self._documents.match(call.query), situation.memory)

    def _title_of(self, file_path: str) -> str:
        entry = self._documents.get(file_path)
        return file_path if entry is None else entry.title

    def _domain_of(self, file_path: str) -> str:
        entry = self._documents.get(file_path)
        return "" if entry is None else entry.domain
