"""The composition root: everything is built here, from settings, and nowhere else."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import FunctionTool

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.executor import KnowledgeExecutor, build_executor
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.lookup_tool import build_lookup_tool, build_search_doc_tool
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.sync_report import SyncReport
from knowledge_lookup.pipeline.ingestion.synchronizer import Progress, Synchronizer
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.models.embedding_models import build_embed_model, embedding_model_name, token_counter
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.normalization_profiles import resolve_profile
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.pipeline.storage import (
    BackgroundInvocationRecorder,
    Database,
    DocumentRepository,
    DocumentStatus,
    InvocationRepository,
    SqlActionMemoryStore,
)
from knowledge_lookup.postprocessors import RelevancePostprocessor
from knowledge_lookup.retrievers import KeywordRetriever, KnowledgeRetriever, MilvusVectorRetriever
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry
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
        """Write the records, close the database and release Milvus Lite. Closing twice does no harm."""
        with self._lock:
            closers, self._closers = self._closers, []
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

    def is_indexed(self) -> bool:
        """Tell whether the knowledge base has been indexed, and completely.

        :returns: False if no document is indexed yet, or a sync was cut off.
        """
        statuses = [digest.status for _, digest in self.documents.iter_digests()]
        return bool(statuses) and all(status is DocumentStatus.READY for status in statuses)

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
        """The keyword index, loaded from the rows of the documents that are ready."""
        index = KeywordIndex(fields=self.settings.retrieval.keyword.fields)
        for record in self.documents.list():
            if record.status is DocumentStatus.READY:
                keywords = tuple(str(keyword) for keyword in record.metadata.get("keywords", ()))
                index.add(KeywordEntry(record.file_path, record.title, record.category, keywords))
        return index

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
    def relevance(self) -> RelevancePostprocessor:
        """The postprocessor with the profile of the embedding model."""
        try:
            profile = resolve_profile(self.settings.retrieval.normalization, self.embedding_model_name)
        except ValueError as error:
            raise ConfigurationError(f"retrieval.normalization doesn't fit the model's profile: {error}") from error
        return RelevancePostprocessor.from_profile(profile, locale=self.settings.locale)

    @lazy_part
    def retriever(self) -> KnowledgeRetriever:
        """L0, then L1, giving similarities between 0 and 1 and relevance levels."""
        return KnowledgeRetriever(self.keyword_retriever, self.vector_retriever, node_postprocessors=[self.relevance])

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
        return KnowledgeFiles(self.settings.knowledge.base_path)

    @lazy_part
    def _synchronizer(self) -> Synchronizer:
        return Synchronizer(
            files=self._files,
            documents=self.documents,
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            embed_model=self.embed_model,
            chunker=MarkdownChunker(token_counter(self.embed_model)),
        )

    @lazy_part
    def _knowledge_lookup(self) -> KnowledgeLookup:
        return self._lookup_with(self.retriever, tool_name="lookup_knowledge")

    @lazy_part
    def _doc_search(self) -> KnowledgeLookup:
        # Without keywords a KnowledgeRetriever is semantic search with scope and levels.
        no_keywords = KeywordRetriever(KeywordIndex(), self._files)
        retriever = KnowledgeRetriever(no_keywords, self.vector_retriever, node_postprocessors=[self.relevance])
        return self._lookup_with(retriever, tool_name="search_doc")

    def _lookup_with(self, retriever: KnowledgeRetriever, *, tool_name: str) -> KnowledgeLookup:
        return KnowledgeLookup(
            retriever,
            self.relevance,
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
