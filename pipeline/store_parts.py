"""The lowest part of the composition root: models, database, files, Milvus, and the indexes over them."""

import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM

from knowledge_lookup.pipeline.ingestion.file_keywords import keyword_entries_of
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.keyword_index_follower import KeywordIndexFollower
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.models.embedding_models import (
    build_embed_model,
    embedding_model_name,
)
from knowledge_lookup.pipeline.models.language_models import build_llm
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.pipeline.storage import (
    Database,
    DocumentLeases,
    DocumentRepository,
    IndexChanges,
)
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.bm25_snapshot import Bm25Snapshot
from knowledge_lookup.retrievers.fork_safety import call_after_fork
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.milvus_errors import shown_uri


class StoreParts:
    """What a knowledge base is kept in, each part built once, on first use, from whatever thread comes first.

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
        call_after_fork(self._renew_lock)

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

    def _renew_lock(self) -> None:
        # A part that another thread was building when the process forked is built anew in the child.
        self._lock = threading.RLock()

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
        database = Database(url, data_dir=self.settings.data_dir, ensures_current=True)
        self._closers.append(database.close)
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
            is_needed=lambda: len(self._empty_index) > 0,
        )
        self._closers.append(store.close)
        return store

    @lazy_part
    def keyword_index(self) -> KeywordIndex:
        """The keyword index, loaded from the rows and following what other processes write."""
        self._index_follower.load()
        self._index_follower.start()
        self._closers.append(self._index_follower.close)
        return self._empty_index

    @lazy_part
    def _index_follower(self) -> KeywordIndexFollower:
        return KeywordIndexFollower(
            self._empty_index,
            self.documents,
            self._changes,
            self._unfollowed_bm25_index,
            lambda: keyword_entries_of(self._files),
        )

    @lazy_part
    def bm25_index(self) -> Bm25Index:
        """The search by words, read from its snapshot or from Milvus when the first query needs it."""
        _ = self.keyword_index  # whose follower tells it what changes
        return self._unfollowed_bm25_index

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


def milvus_uri(settings: Settings) -> str:
    """Tell where Milvus is.

    :param settings: The settings.
    :returns: The URI set, or the path of Milvus Lite in the data folder.
    """
    uri = settings.milvus.uri
    return str(Path(settings.data_dir) / "milvus.db") if uri is None else uri
