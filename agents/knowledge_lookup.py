"""One look-up from the query to the delivered, claimed and recorded result."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.agents.lookup_journal import LookupCall, LookupJournal
from knowledge_lookup.agents.lookup_result import Alternative, LookupResult
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.result_assembly import Delivery, alternatives, assemble, path_of
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.agents.session_context import current_session_id
from knowledge_lookup.agents.tool_invocation import InvocationRecorder
from knowledge_lookup.postprocessors import (
    EvidencePostprocessor,
    RelevanceLevel,
    RelevancePostprocessor,
    completeness_hint,
    relevance_level_of,
)
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval, KnowledgeRetriever
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle

logger = logging.getLogger(__name__)

DOC_ALREADY_RETRIEVED = "DOC_ALREADY_RETRIEVED"
PARTIALLY_FILTERED = "PARTIALLY_FILTERED"


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
    """Looks up a query and gives each session each document at most once.

    :param retriever: Retrieves with a ``RelevancePostprocessor`` or an ``EvidencePostprocessor`` inside.
    :param relevance: The same postprocessor; judges the level again when a document is lost to another look-up
        of the same session.
    :param memory: The action memory.
    :param recorder: Gets one record a look-up; None records nothing.
    :param tool_name: The name that goes into the record.
    :param source_root: What is put before a file path to make the source, for example ``knowledge_base``; empty
        for nothing.
    :param locale: Language of messages, hints and log lines.
    """

    def __init__(
        self,
        retriever: KnowledgeRetriever,
        relevance: RelevancePostprocessor | EvidencePostprocessor,
        memory: RetrievedDocTracker,
        *,
        recorder: InvocationRecorder | None = None,
        tool_name: str = "lookup_knowledge",
        source_root: str = "",
        locale: Locale = "zh",
    ) -> None:
        self.memory = memory
        self.locale = locale
        self._retriever = retriever
        self._relevance = relevance
        self._source_root = source_root
        self._messages = MESSAGES[locale]
        self._journal = LookupJournal(
            tool_name=tool_name,
            messages=self._messages,
            max_l2_distance=relevance.max_l2_distance,
            recorder=recorder,
            logger=logger,
        )

    def lookup(self, query: str, session_id: str | None = None) -> LookupResult:
        """Look up a query.

        :param query: Keywords or a question.
        :param session_id: The session whose memory applies; None takes the one of ``session_context``, and
            without that no memory applies.
        :returns: The result; ``found`` is False when nothing valid was found or the session already has it.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        call = self._begin(query, session_id)
        try:
            if not normal_form(query):
                return self._refuse_empty(call)
            retrieval = self._retriever.retrieve_with_evidence(self._bundle(call))
            return self._deliver(call, retrieval)
        except Exception as error:
            self._journal.failed(call, error)
            raise

    async def alookup(self, query: str, session_id: str | None = None) -> LookupResult:
        """Look up a query without blocking the event loop; see :meth:`lookup`.

        :param query: Keywords or a question.
        :param session_id: See :meth:`lookup`.
        :returns: The result.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        call = self._begin(query, session_id)
        try:
            # The memory may be a database: what touches it runs in a thread.
            if not normal_form(query):
                return await asyncio.to_thread(self._refuse_empty, call)
            bundle = await asyncio.to_thread(self._bundle, call)
            retrieval = await self._retriever.aretrieve_with_evidence(bundle)
            return await asyncio.to_thread(self._deliver, call, retrieval)
        except Exception as error:
            self._journal.failed(call, error)
            raise

    def preview(self, query: str) -> "LookupPreview":
        """Find out what a look-up without a session would deliver; nothing is claimed, logged or recorded.

        :param query: Keywords or a question.
        :returns: Result, delivery and level.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        started = time.perf_counter()
        retrieval = self._retriever.retrieve_with_evidence(ScopedQueryBundle(query))
        delivery = assemble(retrieval.nodes, source_of=self.source_of, messages=self._messages)
        latency_ms = (time.perf_counter() - started) * 1000.0
        return LookupPreview(
            nodes=tuple(retrieval.nodes),
            delivered=tuple(file_path for _, file_path in delivery.documents),
            level=relevance_level_of(retrieval.nodes),
            latency_ms=latency_ms,
        )

    def source_of(self, file_path: str) -> str:
        """Make the source that is shown for a document.

        :param file_path: Path relative to the base path.
        :returns: For example ``knowledge_base/api/payment-errors.md``.
        """
        return f"{self._source_root}/{file_path}" if self._source_root else file_path

    def _begin(self, query: str, session_id: str | None) -> LookupCall:
        call = LookupCall(query, current_session_id(self.memory) if session_id is None else str(session_id))
        self._journal.received(call)
        return call

    def _bundle(self, call: LookupCall) -> ScopedQueryBundle:
        held: frozenset[str] = frozenset()
        if call.session_id is not None:
            held = self.memory.get_retrieved_documents(call.session_id)
        return ScopedQueryBundle(call.query, exclude_documents=held)

    def _refuse_empty(self, call: LookupCall) -> LookupResult:
        result = self._result(call, message=self._messages.empty_query)
        self._journal.done(call, None, result, None)
        return result

    def _deliver(self, call: LookupCall, retrieval: KnowledgeRetrieval) -> LookupResult:
        self._journal.retrieved(call, retrieval)
        nodes, delivery, lost = self._claim(call, retrieval.nodes)
        held_back = list(dict.fromkeys([*retrieval.withheld, *lost]))
        level = relevance_level_of(nodes)
        if level is None:
            dedup_reason = DOC_ALREADY_RETRIEVED if held_back else None
            message = self._messages.not_found
            if held_back:
                message = self._messages.already_retrieved.format(documents=", ".join(held_back))
            result = self._result(call, message=message)
        else:
            dedup_reason = PARTIALLY_FILTERED if held_back else None
            others = [(match.entry.title, match.entry.file_path) for match in retrieval.other_matches]
            named = alternatives(nodes, others, delivery, source_of=self.source_of)
            result = self._result(call, delivery=delivery, level=level, named=named)
        self._journal.done(call, retrieval, result, dedup_reason)
        return result

    def _claim(self, call: LookupCall, nodes: list[NodeWithScore]) -> tuple[list[NodeWithScore], Delivery, list[str]]:
        """Claim the documents about to be delivered; take out those that another look-up was faster with.

        :returns: The nodes left with their level, what is delivered of them, and the documents lost.
        """
        claimed: set[str] = set()
        lost: list[str] = []
        while True:
            delivery = assemble(nodes, source_of=self.source_of, messages=self._messages)
            if call.session_id is None:
                return nodes, delivery, lost
            lost_now = []
            for domain, file_path in delivery.documents:
                if file_path in claimed:
                    continue
                if self.memory.claim(call.session_id, domain, file_path):
                    claimed.add(file_path)
                else:
                    lost_now.append(file_path)
            if not lost_now:
                delivered = {file_path for _, file_path in delivery.documents}
                for file_path in claimed - delivered:
                    self.memory.release(call.session_id, file_path)
                return nodes, delivery, lost
            lost.extend(lost_now)
            nodes = self._relevance.postprocess_nodes([scored for scored in nodes if path_of(scored) not in lost])

    def _result(
        self,
        call: LookupCall,
        *,
        message: str | None = None,
        delivery: Delivery | None = None,
        level: RelevanceLevel | None = None,
        named: Sequence[Alternative] | None = None,
    ) -> LookupResult:
        domains: Sequence[str] = ()
        if call.session_id is not None:
            domains = self.memory.get_retrieved_domains(call.session_id)
        return LookupResult(
            found=level is not None,
            primary=delivery.primary if delivery is not None else None,
            supplement=delivery.supplement if delivery is not None else None,
            message=message,
            relevance_level=level,
            completeness_hint=completeness_hint(level, self.locale) if level is not None else None,
            retrieved_domains_this_session=tuple(domains),
            alternatives=tuple(named) if named is not None else None,
        )
