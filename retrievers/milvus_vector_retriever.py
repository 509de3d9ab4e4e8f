"""L1: semantic retrieval over a Milvus collection."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
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
    :param callback_manager: LlamaIndex's callback manager; None makes an empty one.
    :raises VectorStoreError: If the vector store has another metric than L2.
    """

    def __init__(
        self,
        vector_store: MilvusChunkStore | MilvusVectorStore,
        embed_model: BaseEmbedding | Callable[[], BaseEmbedding],
        *,
        similarity_top_k: int = 3,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {similarity_top_k}")
        if isinstance(vector_store, MilvusVectorStore):
            vector_store = MilvusChunkStore.from_vector_store(vector_store)
        self._store = vector_store
        self._given_embed_model = embed_model
        self._lock = threading.Lock()
        self.similarity_top_k = similarity_top_k
        super().__init__(callback_manager=callback_manager)

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model."""
        with self._lock:
            # An embedding model is callable itself, as every LlamaIndex transformation is.
            if not isinstance(self._given_embed_model, BaseEmbedding):
                self._given_embed_model = self._given_embed_model()
            return self._given_embed_model

    def embed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query, unless its bundle already carries an embedding.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        if query_bundle.embedding is not None:
            return unit_vector(query_bundle.embedding, model_name="given with the query")
        model = self.embed_model
        with embedding_errors(model.model_name):
            embedding = model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        return unit_vector(embedding, model_name=model.model_name)

    async def aembed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query without blocking the event loop.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        # The model may have to be loaded first, and an async client of an endpoint is bound to one event loop.
        return await asyncio.to_thread(self.embed, query_bundle)

    def measure(self, embedding: Sequence[float], node_ids: Sequence[str]) -> list[NodeWithScore]:
        """Measure how far some chunks are from a query, wherever they would rank.

        :param embedding: The query's vector, as :meth:`embed` gives it.
        :param node_ids: The chunks; one that isn't in the collection is left out.
        :returns: Nodes in the order of ``node_ids``, scored as this retriever scores what it finds.
        :raises VectorStoreError: If Milvus can't be used.
        """
        return self._store.measure(embedding, node_ids)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        bundle = ScopedQueryBundle.of(query_bundle)
        return [] if bundle.is_empty else self._search(bundle, self.embed(bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # pymilvus's async client is bound to one event loop; the sync one in a thread works in all of them.
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _search(self, bundle: ScopedQueryBundle, embedding: list[float]) -> list[NodeWithScore]:
        return self._store.search(
            embedding,
            limit=self.similarity_top_k if bundle.similarity_top_k is None else bundle.similarity_top_k,
            exclude_documents=bundle.documents_without_passages,
            only_documents=bundle.only_documents,
        )
