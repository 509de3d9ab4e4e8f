"""The composition root: everything is built here, from settings, and nowhere else."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import FunctionTool

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.executor import KnowledgeExecutor, build_executor
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.lookup_tool import build_lookup_tool, build_search_doc_tool
from knowledge_lookup.agents.plan_and_execute import PlanAndExecute
from knowledge_lookup.agents.planner import Planner, build_planner
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.pipeline.doctor import Difference, Doctor
from knowledge_lookup.pipeline.domains import KnowledgeDomainService
from knowledge_lookup.pipeline.errors import ConfigurationError, KnowledgeBaseError
from knowledge_lookup.pipeline.evaluation import EvaluationReport, LabelledQuery, evaluate
from knowledge_lookup.pipeline.evidence_profiles import known_evidence_profile, resolve_evidence_profile
from knowledge_lookup.pipeline.explanation import Explanation, explain
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.document_service import DocumentService, UploadResult
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.sync_report import Progress, SyncReport
from knowledge_lookup.pipeline.ingestion.synchronizer import SYNC_LEASE, Synchronizer
from knowledge_lookup.pipeline.keyword_index_follower import KeywordIndexFollower
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.models.embedding_models import build_embed_model, embedding_model_name, token_counter
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.normalization_profiles import resolve_profile
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
    ProfileStore,
    SampleCollector,
    SavedProfile,
    TuningGoal,
    TuningReport,
)
from knowledge_lookup.postprocessors import EvidencePostprocessor, RelevancePostprocessor
from knowledge_lookup.postprocessors.normalization import DEFAULT_MAX_L2_DISTANCE
from knowledge_lookup.retrievers import HybridRetriever, KeywordRetriever, KnowledgeRetriever, MilvusVectorRetriever
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle


class KnowledgePipeline:
    """A knowledge base with everything that looks things up in it.

    ::

        with KnowledgePipeline.from_settings() as pipeline:
            pipeline.sync()
            print(pipeline.lookup("ERR_TIMEOUT", session_id="s1"))

    Parts are built on first use: an exact match opens neither Milvus nor the embedding model. Leaving the
    ``with`` block writes the records and releases Milvus Lite, which one process at a time may hold. A pipeline
    may be used from many threads and tasks at once.

    Use :meth:`from_settings`.

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

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, llm: LLM | None = None, embed_model: BaseEmbedding | None = None
    ) -> Self:
        """Build a pipeline.

        :param settings: None loads ``knowledge-lookup.yml`` and the environment.
        :param llm: Used instead of the one that the settings name.
        :param embed_model: Used instead of the one that the settings name.
        :returns: The pipeline; nothing is opened yet.
        :raises SettingsError: If loading finds settings that aren't valid.
        """
        return cls(Settings.load() if settings is None else settings, llm=llm, embed_model=embed_model)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the records, close the database and release Milvus Lite.

        Closing twice does no harm; a pipeline that is used again afterwards opens anew what it needs.
        """
        with self._lock:
            closers, self._closers = self._closers, []
            for name in [name for name in vars(self) if isinstance(vars(type(self)).get(name), lazy_part)]:
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

    # The knowledge base

    def sync(self, *, rebuild: bool = False, progress: Progress | None = None) -> SyncReport:
        """Index what changed in the folder of documents.

        :param rebuild: Embed all documents again, which a change of the embedding model needs.
        :param progress: Called with the number of documents done, their total, and the next document's path.
        :returns: What was added, updated, removed, left as it was and skipped.
        :raises KnowledgeLookupError: If the folder, the database, the model or Milvus can't be used.
        """
        return self._synchronizer.sync(rebuild=rebuild, progress=progress)

    def upload(
        self, source: Path | str | bytes, *, name: str | None = None, category: str | None = None
    ) -> UploadResult:
        """Save a Markdown or plain text document in the knowledge base and index it.

        It is saved as ``{base path}/{category}/{name}``; a document that is there already is replaced whole.

        :param source: Path of the file, or its bytes.
        :param name: File name in the knowledge base; None takes the source's own. Bytes need one.
        :param category: The domain; wins over the front matter. None takes the front matter's, else ``general``.
        :returns: What was done.
        :raises KnowledgeLookupError: If the name, the category or the file is refused (nothing was written), or if
            the folder, the database, the model or Milvus fails (the next sync completes what was begun).
        """
        if isinstance(source, bytes):
            if name is None:
                raise ValueError("bytes have no name: give one, for example name='redis.md'")
            return self._document_service.upload(source, name=name, category=category)
        path = Path(source)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise KnowledgeBaseError(f"'{path}' can't be read ({error.strerror}): give the path of a file") from error
        return self._document_service.upload(raw, name=path.name if name is None else name, category=category)

    def delete(self, file_path: str) -> bool:
        """Delete a document: its file, its row, its chunks and its keywords.

        :param file_path: Path relative to the base path.
        :returns: False when there was no such document.
        :raises KnowledgeLookupError: If the path is refused, or the folder, the database or Milvus fails (the next
            sync completes what was begun).
        """
        return self._document_service.delete(file_path)

    def import_folder(
        self, folder: Path | str, *, category_from_folder: bool = False, progress: Progress | None = None
    ) -> SyncReport:
        """Copy a folder of documents into the knowledge base, keeping its subfolders, and index them.

        :param folder: The folder.
        :param category_from_folder: Make the first subfolder each document's domain, over its front matter.
        :param progress: Called with the number of documents done, their total, and the next document's path.
        :returns: What was done; what was skipped is in it with the reason.
        :raises KnowledgeLookupError: If the folder can't be imported, or the database, the model or Milvus fails;
            started again, the import goes on where it was.
        """
        return self._document_service.import_folder(
            Path(folder), category_from_folder=category_from_folder, progress=progress
        )

    def examine(self) -> list[Difference]:
        """Compare files, rows, chunks, keyword index and domains.

        :returns: Every difference; none when all say the same.
        :raises KnowledgeLookupError: If something can't be read.
        """
        return self._doctor.examine()

    def mend(self) -> None:
        """Mend what :meth:`examine` finds, from the files.

        :raises KnowledgeLookupError: If something can't be read or written.
        """
        self._doctor.fix()

    def knowledge_map(self, *, max_characters: int | None = None) -> str:
        """Describe the domains and their documents as YAML, for a planner.

        :param max_characters: Budget; None takes a sensible one.
        :returns: The map; empty when nothing is indexed.
        :raises DatabaseError: If the database can't be used.
        """
        self.domains.ensure_all()
        return self.domains.build_knowledge_map(max_characters=max_characters)

    def is_indexed(self) -> bool:
        """Tell whether the knowledge base has been indexed, and nothing is left unfinished.

        :returns: False if no document is indexed yet, or a write was cut off; True also while another process writes.
        """
        digests = dict(self.documents.iter_digests())
        unfinished = [path for path, digest in digests.items() if digest.status is not DocumentStatus.READY]
        if len(unfinished) == len(digests) or self._leases.was_abandoned(SYNC_LEASE):
            return False
        return all(self._leases.is_held(path) for path in unfinished)

    # Looking things up

    def lookup(self, query: str, session_id: str | None = None) -> LookupResult:
        """Look up a query: exact match first, semantic search if that doesn't settle it.

        :param query: Keywords or a question.
        :param session_id: The session; what it has been given is not given again. None: no memory, unless
            ``session_context`` names one.
        :returns: The result; ``str(result)`` is the JSON for an LLM.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        return self._knowledge_lookup.lookup(query, session_id)

    async def alookup(self, query: str, session_id: str | None = None) -> LookupResult:
        """Look up a query without blocking the event loop; see :meth:`lookup`.

        :param query: Keywords or a question.
        :param session_id: The session.
        :returns: The result.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        return await self._knowledge_lookup.alookup(query, session_id)

    def search(self, query: str, top_k: int = 5) -> list[NodeWithScore]:
        """Search passages by meaning alone, without memory or record.

        :param query: What to look for.
        :param top_k: Most passages, at least 1.
        :returns: Passages best first, ``score`` being the similarity (0 to 1); those below the reference
            threshold are left out.
        :raises KnowledgeLookupError: If the model or Milvus can't be used.
        """
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        nodes = self.vector_retriever.retrieve(ScopedQueryBundle(query, similarity_top_k=top_k))
        return self.relevance.postprocess_nodes(nodes)

    def explain(self, query: str) -> Explanation:
        """Tell by what a query is judged, whether or not anything is found; nothing is remembered or recorded.

        :param query: Keywords or a question.
        :returns: Keyword matches, passages with their evidence, and the thresholds.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        retrieval = self._ranking.retrieve_with_evidence(QueryBundle(query))
        return explain(query, matches=retrieval.matches, nodes=retrieval.nodes, judge=self.judge)

    def evaluate(self, queries: Sequence[LabelledQuery], *, progress: Progress | None = None) -> EvaluationReport:
        """Measure the look-up with labelled queries; nothing is remembered or recorded.

        :param queries: The labelled queries, at least one.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The outcomes and their figures.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        return evaluate(self._knowledge_lookup, self._ranking, queries, progress=progress)

    def tune(
        self,
        queries: Sequence[LabelledQuery] | None = None,
        *,
        goal: TuningGoal | None = None,
        progress: Progress | None = None,
    ) -> TuningReport:
        """Fit the evidence profile to the embedding model and these documents; nothing is changed yet.

        :param queries: Labelled queries; None makes queries of the documents themselves.
        :param goal: What must hold; None takes ``TuningGoal()``.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The profile and what it comes to; :meth:`save_profile` saves it.
        :raises TooFewLabelsError: If there's too little to fit to.
        :raises KnowledgeLookupError: If the model, Milvus or the database can't be used.
        """
        goal = TuningGoal() if goal is None else goal
        if queries is not None:
            return self.tuner.tune(queries, goal, progress=progress)
        return self.tuner.tune_without_labels(self._corpus(), goal, progress=progress)

    def save_profile(self, report: TuningReport, *, apply: bool = False) -> Path:
        """Save a tuned profile in the data folder.

        :param report: What :meth:`tune` returned.
        :param apply: Use it from now on; look-ups of this pipeline use it when it is opened again.
        :returns: The file.
        :raises ProfileFileError: If it can't be written.
        """
        made_from = {key: value for key, value in report.to_dict().items() if key != "profile"}
        saved = SavedProfile(report.profile, self.embedding_model_name, self.settings.milvus.collection, made_from)
        return ProfileStore(Path(self.settings.data_dir)).save(saved, apply=apply)

    def lookup_tool(self, session_id: str | None = None) -> FunctionTool:
        """Make the ``lookup_knowledge`` tool for a LlamaIndex agent.

        :param session_id: Binds the tool to a session; None takes it from the workflow's ``Context`` or from
            ``session_context``.
        :returns: The tool.
        """
        return build_lookup_tool(self._knowledge_lookup, session_id=session_id)

    def search_doc_tool(self, session_id: str | None = None) -> FunctionTool:
        """Make the ``search_doc`` tool: semantic search only, with the same memory and records.

        :param session_id: See :meth:`lookup_tool`.
        :returns: The tool.
        """
        return build_search_doc_tool(self._doc_search, session_id=session_id)

    def executor(self, session_id: str | None = None) -> KnowledgeExecutor:
        """Build the bundled ReAct executor over this knowledge base.

        :param session_id: See :meth:`lookup_tool`.
        :returns: An agent; ``await executor.run(question)`` ends in an answer.
        """
        return build_executor([self.lookup_tool(session_id)], self.llm, locale=self.settings.locale)

    def planner(self) -> Planner:
        """Build the planner, which knows the map of the knowledge base.

        :returns: A planner; its map is that of this moment.
        :raises DatabaseError: If the database can't be used.
        """
        return build_planner(self.llm, self.knowledge_map(), locale=self.settings.locale)

    def plan_and_execute(self, session_id: str) -> PlanAndExecute:
        """Build the workflow that plans, has the executor carry out each step in one session, and composes an answer.

        :param session_id: The session of all steps.
        :returns: A workflow; ``await workflow.run(user_msg=question)`` ends in an answer.
        :raises DatabaseError: If the database can't be used.
        """
        return PlanAndExecute(self.planner(), self.executor(session_id), self.llm, locale=self.settings.locale)

    # Parts

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
        index = KeywordIndex(fields=self.settings.retrieval.keyword.fields)
        follower = KeywordIndexFollower(index, self.documents, self._changes, self.bm25_index)
        follower.load()
        follower.start()
        self._closers.append(follower.close)
        return index

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
            self.chunk_store, lambda: self.embed_model, similarity_top_k=self.settings.retrieval.vector.top_k
        )

    @lazy_part
    def bm25_index(self) -> Bm25Index:
        """The search by words, read from Milvus when the first query needs it."""
        return Bm25Index(self.chunk_store)

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
        max_l2_distance = DEFAULT_MAX_L2_DISTANCE if base is None else base.max_l2_distance
        collector = SampleCollector(self.hybrid_retriever, self.bm25_index, max_l2_distance=max_l2_distance)
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

    @lazy_part
    def recorder(self) -> BackgroundInvocationRecorder:
        """Writes one record a look-up, off the hot path."""
        recorder = BackgroundInvocationRecorder(InvocationRepository(self.database))
        self._closers.append(recorder.close)
        return recorder

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
    def _writer(self) -> DocumentWriter:
        return DocumentWriter(
            documents=self.documents,
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            bm25_index=self.bm25_index,
            embed_model=self.embed_model,
            chunker=MarkdownChunker(token_counter(self.embed_model)),
            fields=DocumentFieldGenerator(self.llm, locale=self.settings.locale),
            domains=self.domains,
        )

    @lazy_part
    def _synchronizer(self) -> Synchronizer:
        return Synchronizer(
            files=self._files,
            documents=self.documents,
            leases=self._leases,
            changes=self._changes,
            chunk_store=self.chunk_store,
            writer=self._writer,
        )

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

    def _lookup_with(self, retriever: KnowledgeRetriever, *, tool_name: str) -> KnowledgeLookup:
        return KnowledgeLookup(
            retriever,
            self.judge,
            self.memory,
            recorder=self.recorder,
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
