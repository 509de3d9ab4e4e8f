"""The composition root: every part is built here and in what this builds on, from settings, and nowhere else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.agents.session_rules import SessionRules
from knowledge_lookup.agents.tool_invocation import InvocationRecorder
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.evidence_profiles import known_evidence_profile, resolve_evidence_profile
from knowledge_lookup.pipeline.ingestion_parts import IngestionParts
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.normalization_profiles import resolve_profile
from knowledge_lookup.pipeline.question_similarity import same_question_similarity
from knowledge_lookup.pipeline.storage import (
    BackgroundInvocationRecorder,
    DocumentStatus,
    FallbackActionMemoryStore,
    QueryHashingRecorder,
    RecordSpool,
    SpoolingInvocationRepository,
    SqlActionMemoryStore,
    hash_key_in,
)
from knowledge_lookup.pipeline.tuning import (
    CorpusDocument,
    EvidenceTuner,
    SampleCollector,
)
from knowledge_lookup.postprocessors import EvidencePostprocessor, RelevancePostprocessor
from knowledge_lookup.postprocessors.normalization import DEFAULT_MAX_L2_DISTANCE
from knowledge_lookup.retrievers import HybridRetriever, KeywordRetriever, KnowledgeRetriever, MilvusVectorRetriever
from knowledge_lookup.retrievers.keyword_index import KeywordIndex


class PipelineParts(IngestionParts):
    """What looks things up, judges, remembers and records; see :class:`StoreParts`."""

    @lazy_part
    def keyword_retriever(self) -> KeywordRetriever:
        """L0."""
        return KeywordRetriever(self.keyword_index, self._files)

    @lazy_part
    def vector_retriever(self) -> MilvusVectorRetriever:
        """L1, giving raw squared L2 distances."""
        return MilvusVectorRetriever(
            self.chunk_store,
            lambda: self.embed_model,
            similarity_top_k=self.settings.retrieval.vector.top_k,
            query_cache_size=self.settings.embedding.query_cache_size,
        )

    @lazy_part
    def hybrid_retriever(self) -> HybridRetriever:
        """L1 by meaning and by words, giving raw squared L2 distances."""
        return HybridRetriever(self.vector_retriever, self.bm25_index)

    @lazy_part
    def relevance(self) -> RelevancePostprocessor:
        """The judge by similarity alone, with the normalization profile of the embedding model."""
        try:
            profile = resolve_profile(self.settings.retrieval.normalization, self.embedding_model_name)
        except ValueError as error:
            raise ConfigurationError(f"retrieval.normalization doesn't fit the model's profile: {error}") from error
        return RelevancePostprocessor.from_profile(profile, locale=self.settings.locale)

    @lazy_part
    def evidence(self) -> EvidencePostprocessor | None:
        """The judge by all evidence; None where thresholds are set explicitly or no evidence profile is known."""
        profile = resolve_evidence_profile(self.settings, self.embedding_model_name)
        if profile is None:
            return None
        return EvidencePostprocessor(statistics=self.bm25_index, profile=profile, locale=self.settings.locale)

    @property
    def judge(self) -> RelevancePostprocessor | EvidencePostprocessor:
        """What judges the results of look-ups: all evidence, or similarity alone where :attr:`evidence` is None."""
        return self.relevance if self.evidence is None else self.evidence

    @lazy_part
    def tuner(self) -> EvidenceTuner:
        """Fits the evidence profile to the embedding model and these documents."""
        base = known_evidence_profile(self.settings, self.embedding_model_name)
        collector = SampleCollector(
            self.hybrid_retriever,
            self.bm25_index,
            max_l2_distance=DEFAULT_MAX_L2_DISTANCE if base is None else base.max_l2_distance,
            unrelated_similarity=None if base is None else base.unrelated_similarity,
        )
        return EvidenceTuner(
            collector, is_settled=lambda query: self.keyword_retriever.match(query).decisive, base=base
        )

    @lazy_part
    def retriever(self) -> KnowledgeRetriever:
        """L0, then L1, giving scores between 0 and 1 and relevance levels."""
        return self._retriever_with(self.keyword_retriever)

    @lazy_part
    def memory(self) -> RetrievedDocTracker:
        """The action memory."""
        session = self.settings.session
        in_process = InMemoryActionMemoryStore(ttl_seconds=session.ttl_seconds, max_sessions=session.max_sessions)
        store: ActionMemoryStore = in_process
        if session.backend == "database":
            in_database = SqlActionMemoryStore(
                self.database, ttl_seconds=session.ttl_seconds, max_sessions=session.max_sessions
            )
            store = FallbackActionMemoryStore(in_database, in_process, timeout_seconds=session.timeout_seconds)
        tracker = RetrievedDocTracker(store)
        self._closers.append(tracker.close)
        return tracker

    @property
    def session_rules(self) -> SessionRules:
        """The limits for sessions, and when two questions are nearly the same."""
        session = self.settings.session
        similarity = session.same_question_similarity
        return SessionRules(
            max_lookups=session.max_lookups,
            max_lookups_per_domain=session.max_lookups_per_domain,
            max_characters=session.max_characters,
            same_question_similarity=same_question_similarity(self.embedding_model_name)
            if similarity is None
            else similarity,
        )

    @lazy_part
    def recorder(self) -> BackgroundInvocationRecorder:
        """Writes one record a look-up, off the hot path."""
        spool = RecordSpool(Path(self.settings.data_dir) / "spool.db")
        repository = SpoolingInvocationRepository(self.database, spool)
        recorder = BackgroundInvocationRecorder(repository)
        self._closers.extend([repository.close, recorder.close])
        return recorder

    @property
    def _private_recorder(self) -> InvocationRecorder:
        """The recorder, behind what hashes queries if the settings ask for that: no text reaches queue or disk."""
        records = self.settings.records
        if not records.hash_queries:
            return self.recorder
        given = records.hash_key
        key = hash_key_in(self.settings.data_dir) if given is None else given.get_secret_value().encode()
        return QueryHashingRecorder(self.recorder, key)

    @lazy_part
    def _knowledge_lookup(self) -> KnowledgeLookup:
        return self._lookup_with(self.retriever, tool_name="lookup_knowledge")

    @lazy_part
    def _doc_search(self) -> KnowledgeLookup:
        # Without keywords a KnowledgeRetriever is semantic search with scope and levels.
        no_keywords = KeywordRetriever(KeywordIndex(), self._files)
        return self._lookup_with(self._retriever_with(no_keywords), tool_name="search_doc")

    def _corpus(self) -> Iterator[CorpusDocument]:
        for record in self.documents.list():
            if record.status is DocumentStatus.READY:
                body = self._files.read_body(record.file_path)
                yield CorpusDocument(record.file_path, record.category, record.metadata, body)

    @lazy_part
    def _ranking(self) -> KnowledgeRetriever:
        judge: RelevancePostprocessor | EvidencePostprocessor
        if self.evidence is None:
            judge = self.relevance.model_copy(update={"reference_threshold": 0.0})
        else:
            profile = replace(self.evidence.profile, reference_threshold=0.0)
            judge = self.evidence.model_copy(update={"profile": profile})
        return self._retriever_with(self.keyword_retriever, judge)

    def _retriever_with(
        self, keyword_retriever: KeywordRetriever, judge: RelevancePostprocessor | EvidencePostprocessor | None = None
    ) -> KnowledgeRetriever:
        return KnowledgeRetriever(
            keyword_retriever,
            self.vector_retriever if self.evidence is None else self.hybrid_retriever,
            node_postprocessors=[self.judge if judge is None else judge],
        )

    def unrecorded_lookup(self) -> KnowledgeLookup:
        """Build a look-up with a memory of its own in this process and without records, for measuring.

        :returns: The look-up; otherwise as the settings say.
        """
        return self._lookup_with(
            self.retriever, tool_name="lookup_knowledge", memory=RetrievedDocTracker(), is_recorded=False
        )

    def _lookup_with(
        self,
        retriever: KnowledgeRetriever,
        *,
        tool_name: str,
        memory: RetrievedDocTracker | None = None,
        is_recorded: bool = True,
    ) -> KnowledgeLookup:
        follower = self._index_follower
        lookup = KnowledgeLookup(
            retriever,
            self.judge,
            self.memory if memory is None else memory,
            self.keyword_index,
            self._files,
            rules=self.session_rules,
            recorder=self._private_recorder if is_recorded else None,
            tool_name=tool_name,
            source_root=self._files.root_name,
            locale=self.settings.locale,
            l0_error=lambda: follower.error,
        )
        self._closers.append(lookup.close)
        return lookup
