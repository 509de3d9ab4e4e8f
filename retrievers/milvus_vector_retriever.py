"""L1: semantic retrieval over a Milvus collection."""

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers.circuit_breaker import CircuitBreaker
from knowledge_lookup.retrievers.errors import EmbeddingUnavailableError
from knowledge_lookup.retrievers.fork_safety import call_after_fork
from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.milvus_rows import FetchedRow, Hit
from knowledge_lookup.retrievers.query_embedding_cache import QueryEmbeddingCache
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
from knowledge_lookup.retrievers.tracing import SemanticSearchEvent, report, traced
from knowledge_lookup.retrievers.unit_vector import embedding_errors, unit_vector


class MilvusVectorRetriever(BaseRetriever):
    """Retrieves the chunks nearest to a query, with Milvus's raw distance as score.

    Nodes come best first. Their ``score`` is the **squared L2 distance** between unit vectors (0 to 4, smaller
    is closer), marked as such in the metadata; put a ``RelevancePostprocessor`` behind the retriever to get
    similarities between 0 and 1, higher is better, and relevance levels::

        retriever = MilvusVectorRetriever(vector_store, embed_model)
        engine = RetrieverQueryEngine.from_args(retriever, node_postprocessors=[RelevancePostprocessor()])

    A ``ScopedQueryBundle`` restricts one query to some documents, or leaves some out. A bundle that carries an
    embedding isn't embedded again; an empty query finds nothing.

    :param vector_store: A ``MilvusChunkStore``, or a LlamaIndex ``MilvusVectorStore`` with the metric L2.
    :param embed_model: The model that the collection was built with, or a function that gives it when the first
        query needs it.
    :param similarity_top_k: Most chunks to return, at least 1.
    :param query_cache_size: So many queries' embeddings are kept, those used last, 0 or more; 0 keeps none.
    :param callback_manager: LlamaIndex's callback manager; None makes an empty one.
    :raises VectorStoreError: If the vector store has another metric than L2.
    """

    def __init__(
        self,
        vector_store: MilvusChunkStore | MilvusVectorStore,
        embed_model: BaseEmbedding | Callable[[], BaseEmbedding],
        *,
        similarity_top_k: int = 3,
        query_cache_size: int = 1024,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {similarity_top_k}")
        if isinstance(vector_store, MilvusVectorStore):
            vector_store = MilvusChunkStore.from_vector_store(vector_store)
        self._store = vector_store
        self._given_embed_model = embed_model
        self._lock = threading.Lock()
        call_after_fork(self._renew_lock)
        self._query_cache = QueryEmbeddingCache(query_cache_size)
        self.similarity_top_k = similarity_top_k
        self._breaker = CircuitBreaker()
        super().__init__(callback_manager=callback_manager)

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        with self._lock:
            # An embedding model is callable itself, as every LlamaIndex transformation is.
            if not isinstance(self._given_embed_model, BaseEmbedding):
                self._given_embed_model = self._given_embed_model()
            return self._given_embed_model

    @traced
    def embed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query, unless its bundle already carries an embedding or the same was asked lately.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingUnavailableError: If the model's endpoint doesn't answer, or didn't some seconds ago.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        known = self.known_embedding(query_bundle)
        if known is not None:
            return known
        refusal = self._breaker.refusal()
        if refusal is not None:
            raise EmbeddingUnavailableError(f"{refusal} (it failed a moment ago, and is tried again in some seconds)")
        texts = query_bundle.embedding_strs
        model = self.embed_model
        try:
            with embedding_errors(model.model_name):
                embedding = model.get_agg_embedding_from_queries(texts)
        except EmbeddingUnavailableError as error:
            # No time-out is taken for a coincidence: the client has tried several times.
            self._breaker.failed(str(error), timed_out=False)
            raise
        self._breaker.succeeded()
        vector = unit_vector(embedding, model_name=model.model_name)
        self._query_cache.put(texts, vector)
        return vector

    def known_embedding(self, query_bundle: QueryBundle) -> list[float] | None:
        """Give a query's embedding where the model needn't be asked.

        :param query_bundle: The query.
        :returns: The embedding that the bundle carries, or that of the same query lately; None otherwise.
        :raises EmbeddingError: If the bundle carries no usable vector.
        """
        if query_bundle.embedding is not None:
            return unit_vector(query_bundle.embedding, model_name="given with the query")
        return self._query_cache.get(query_bundle.embedding_strs)

    async def aembed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query without blocking the event loop.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        # The model may have to be loaded first, and an async client of an endpoint is bound to one event loop.
        return await asyncio.to_thread(self.embed, query_bundle)

    @traced
    def search(self, bundle: ScopedQueryBundle, *, known: Collection[str] = ()) -> list[NodeWithScore]:
        """Retrieve without LlamaIndex's events and callbacks, for a retriever that has this one inside.

        :param bundle: The query; gets its embedding set.
        :param known: Ids of nodes that the caller has already.
        :returns: What :meth:`retrieve` gives, without the known ones.
        :raises EmbeddingError: If the model gives no usable vector.
        :raises VectorStoreError: If Milvus can't be used.
        """
        if bundle.is_empty:
            return []
        is_known = self.known_embedding(bundle) is not None
        bundle.embedding = self.embed(bundle)
        hits = self.hits(bundle, bundle.embedding)
        report(lambda: SemanticSearchEvent.of(hits, embedding_known=is_known))
        return [hit.to_node() for hit in hits if hit.node_id not in known]

    @traced
    def hits(self, bundle: ScopedQueryBundle, embedding: Sequence[float]) -> list[Hit]:
        """Search in the scope of a bundle, without making nodes of what is found.

        :param bundle: The scope.
        :param embedding: The query's vector, as :meth:`embed` gives it.
        :returns: Rows nearest first.
        :raises VectorStoreError: If Milvus can't be used.
        """
        return self._store.hits(
            embedding,
            limit=self.similarity_top_k if bundle.similarity_top_k is None else bundle.similarity_top_k,
            exclude_documents=bundle.documents_without_passages,
            only_documents=bundle.only_documents,
        )

    def measured(self, embedding: Sequence[float], node_ids: Sequence[str]) -> list[Hit]:
        """Measure what :meth:`measure` measures, without making nodes of it.

        :param embedding: See :meth:`measure`.
        :param node_ids: See :meth:`measure`.
        :returns: Rows in the order of ``node_ids``.
        :raises VectorStoreError: If Milvus can't be used.
        """
        return self._store.measured(embedding, node_ids)

    @traced
    def fetch(self, node_ids: Sequence[str]) -> dict[str, FetchedRow]:
        """Read chunks with their vectors, before there's a query's vector to measure them by.

        :param node_ids: The chunks; one that isn't in the collection is left out.
        :returns: Rows by node id.
        :raises VectorStoreError: If Milvus can't be used.
        """
        return self._store.fetch(node_ids)

    def measure(self, embedding: Sequence[float], node_ids: Sequence[str]) -> list[NodeWithScore]:
        """Measure how far some chunks are from a query, wherever they would rank.

        :param embedding: The query's vector, as :meth:`embed` gives it.
        :param node_ids: The chunks; one that isn't in the collection is left out.
        :returns: Nodes in the order of ``node_ids``, scored as this retriever scores what it finds.
        :raises VectorStoreError: If Milvus can't be used.
        """
        return self._store.measure(embedding, node_ids)

    def _renew_lock(self) -> None:
        # A model that another thread was building when the process forked is built anew in the child.
        self._lock = threading.Lock()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # A copy: the caller's bundle stays as it is.
        return self.search(replace(ScopedQueryBundle.of(query_bundle)))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # pymilvus's async client is bound to one event loop; the sync one in a thread works in all of them.
        return await asyncio.to_thread(self._retrieve, query_bundle)
