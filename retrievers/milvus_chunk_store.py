"""The Milvus collection that holds the chunks: opened on first use, checked, searched by squared L2 distance.

Writing goes through LlamaIndex's ``MilvusVectorStore``, so that other LlamaIndex code can read the
collection. Searching goes straight to its client: that keeps the distance a distance, allows a time limit
and returns no vectors.
"""

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.milvus import MilvusVectorStore
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.errors import (
    EmbeddingModelMismatchError,
    VectorStoreError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers.milvus_expression import all_of, is_in, is_not_in, string_literal
from knowledge_lookup.retrievers.milvus_lite import is_milvus_lite, reason_not_opened, release_milvus_lite

METRIC = "L2"
_DOCUMENT_FIELD = "doc_id"
_ID_FIELD = "id"
_WRITE_TIMEOUT_FACTOR = 15

logger = logging.getLogger(__name__)


class MilvusChunkStore:
    """One Milvus collection of chunks, on Milvus Lite or on a server.

    Nothing is opened before the first call that needs it. The store is safe to use from many threads.

    :param uri: ``http://host:port`` of a server, or a path that ends in ``.db`` for Milvus Lite.
    :param token: ``user:password`` or an API key; empty for none.
    :param collection_name: The collection.
    :param embedding_model: Name of the model whose vectors are in the collection; compared with what the
        collection says when it is opened. None switches the comparison off.
    :param consistency_level: ``Strong``, ``Session``, ``Bounded`` or ``Eventually``; with ``Session`` a client
        sees its own writes.
    :param timeout: Seconds that a search or a connection attempt may take.
    """

    def __init__(
        self,
        *,
        uri: str,
        token: str = "",
        collection_name: str = "knowledge_chunks",
        embedding_model: str | None = None,
        consistency_level: str = "Session",
        timeout: float = 2.0,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout must be more than 0 seconds, got {timeout}")
        self.uri = uri
        self.collection_name = collection_name
        self.embedding_model = embedding_model
        self.consistency_level = consistency_level
        self.timeout = timeout
        self._token = token
        self._lock = threading.RLock()
        self._vector_store: MilvusVectorStore | None = None
        self._owns_client = True
        self._connected = False

    @classmethod
    def from_vector_store(cls, vector_store: MilvusVectorStore, *, timeout: float = 2.0) -> "MilvusChunkStore":
        """Take a ``MilvusVectorStore`` that an application already has.

        :param vector_store: A store with the metric L2.
        :param timeout: Seconds that a search may take.
        :returns: A chunk store on the same client and collection.
        :raises VectorStoreError: If the store's metric isn't L2.
        """
        if vector_store.similarity_metric != METRIC:
            raise VectorStoreError(
                f"the vector store of collection '{vector_store.collection_name}' has the metric "
                f"'{vector_store.similarity_metric}', build it with similarity_metric='{METRIC}'"
            )
        # The store's own `uri` field keeps its default whatever it was built with: it names nothing.
        store = cls(uri="the given vector store", collection_name=vector_store.collection_name, timeout=timeout)
        store._vector_store = vector_store
        store._owns_client = False
        return store

    # Reading

    def search(
        self,
        embedding: Sequence[float],
        *,
        limit: int,
        exclude_documents: Collection[str] = (),
        only_documents: Collection[str] | None = None,
    ) -> list[NodeWithScore]:
        """Find the chunks nearest to a query vector.

        :param embedding: Unit vector of the collection's dimension.
        :param limit: Most chunks to return, at least 1.
        :param exclude_documents: File paths whose chunks are left out by Milvus itself.
        :param only_documents: File paths whose chunks alone are searched; None for all.
        :returns: Nodes nearest first, ``score`` being the raw squared L2 distance (0 to 4, smaller is closer);
            empty when the collection doesn't exist yet.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer within the time limit.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`).
        """
        if only_documents is not None and not only_documents:
            return []
        vector_store = self.open(dimension=len(embedding), create=False)
        if vector_store is None:
            return []
        expression = all_of(
            is_in(_DOCUMENT_FIELD, only_documents) if only_documents is not None else "",
            is_not_in(_DOCUMENT_FIELD, exclude_documents) if exclude_documents else "",
        )
        with self._translated_errors("searched"):
            answer = vector_store.client.search(
                collection_name=self.collection_name,
                data=[list(embedding)],
                anns_field=vector_store.embedding_field,
                filter=expression,
                limit=limit,
                output_fields=[vector_store.text_key, "_node_content", "_node_type"],
                search_params={"metric_type": METRIC},
                consistency_level=self.consistency_level,
                timeout=self.timeout,
            )
        return [_scored_node(hit, text_key=vector_store.text_key) for hit in answer[0]]

    def documents(self) -> dict[str, int]:
        """List the documents that have chunks in the collection.

        :returns: File path to number of chunks; empty when the collection doesn't exist.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        vector_store = self.open(create=False)
        counts: dict[str, int] = {}
        if vector_store is None:
            return counts
        with self._translated_errors("read"):
            rows = vector_store.client.query_iterator(
                self.collection_name, batch_size=1000, output_fields=[_DOCUMENT_FIELD], timeout=self._write_timeout
            )
            while batch := rows.next():
                for row in batch:
                    counts[row[_DOCUMENT_FIELD]] = counts.get(row[_DOCUMENT_FIELD], 0) + 1
            rows.close()
        return counts

    # Writing

    def upsert(self, nodes: Sequence[BaseNode]) -> None:
        """Write chunks; a chunk with the same node id is replaced.

        :param nodes: Chunks with unit embeddings, all of one dimension; none is allowed.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`).
        """
        if not nodes:
            return
        embedding = nodes[0].get_embedding()
        vector_store = self.open(dimension=len(embedding), create=True)
        assert vector_store is not None
        with self._translated_errors("written"):
            vector_store.add(list(nodes))

    def delete_documents(self, file_paths: Collection[str]) -> None:
        """Delete all chunks of some documents.

        :param file_paths: The documents; those without chunks are no error.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        if file_paths:
            self._delete(is_in(_DOCUMENT_FIELD, file_paths))

    def delete_chunks_from(self, file_path: str, first_index: int) -> None:
        """Delete the chunks that a shorter version of a document no longer has.

        :param file_path: The document.
        :param first_index: Chunks with this index and higher ones go.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        self._delete(f"{_DOCUMENT_FIELD} == {string_literal(file_path)} and {keys.CHUNK_INDEX} >= {first_index}")

    def flush(self) -> None:
        """Make what was written searchable by index; without it Milvus Lite searches by brute force.

        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        vector_store = self.open(create=False)
        if vector_store is not None:
            with self._translated_errors("flushed"):
                vector_store.client.flush(self.collection_name, timeout=self._write_timeout)

    def drop(self) -> None:
        """Delete the whole collection, whatever model or metric it was built with.

        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        with self._lock, self._translated_errors("dropped"):
            client = self._vector_store.client if self._vector_store is not None else self._connect()
            client.drop_collection(self.collection_name, timeout=self._write_timeout)
            self._vector_store = None

    # Opening and closing

    def open(self, *, dimension: int | None = None, create: bool = False) -> MilvusVectorStore | None:
        """Connect and check the collection, once; later calls return what is open.

        :param dimension: Length of the vectors to be searched or written, compared with the collection's;
            needed to create.
        :param create: Create the collection if it doesn't exist.
        :returns: LlamaIndex's store on the collection; None if there's none and it may not be created.
        :raises VectorStoreUnavailableError: If Milvus can't be reached or another process holds Milvus Lite.
        :raises EmbeddingModelMismatchError: If the collection was built with another embedding model.
        :raises VectorStoreError: If the collection has another metric, or vectors of another length.
        """
        vector_store = self._vector_store
        if vector_store is not None:
            return vector_store
        with self._lock, self._translated_errors("opened"):
            if self._vector_store is None:
                client = self._connect()
                exists = client.has_collection(self.collection_name, timeout=self.timeout)
                if not exists and not create:
                    return None
                if exists:
                    self._check_collection(client, dimension)
                self._vector_store = MilvusVectorStore(
                    uri=self.uri,
                    token=self._token,
                    collection_name=self.collection_name,
                    dim=dimension,
                    similarity_metric=METRIC,
                    consistency_level=self.consistency_level,
                    upsert_mode=True,
                    use_async_client=False,
                    timeout=self.timeout,
                )
                # A collection that another process wrote is not loaded until somebody says so.
                client.load_collection(self.collection_name, timeout=self._write_timeout)
            return self._vector_store

    def close(self) -> None:
        """Disconnect, and release Milvus Lite's lock so that other processes may open the folder.

        A vector store that the application handed over stays open.
        """
        with self._lock:
            if not self._owns_client:
                return
            if self._vector_store is not None:
                self._vector_store.client.close()
                self._vector_store = None
            if self._connected and is_milvus_lite(self.uri):
                release_milvus_lite(self.uri)
            self._connected = False

    @property
    def _write_timeout(self) -> float:
        return self.timeout * _WRITE_TIMEOUT_FACTOR

    def _connect(self) -> MilvusClient:
        if is_milvus_lite(self.uri):
            Path(self.uri).expanduser().resolve().parent.mkdir(parents=True, exist_ok=True)
        self._connected = True
        return MilvusClient(uri=self.uri, token=self._token, timeout=self.timeout)

    def _delete(self, expression: str) -> None:
        vector_store = self.open(create=False)
        if vector_store is not None:
            with self._translated_errors("changed"):
                vector_store.client.delete(self.collection_name, filter=expression, timeout=self._write_timeout)

    def _check_collection(self, client: MilvusClient, dimension: int | None) -> None:
        where = f"collection '{self.collection_name}' at {self.uri}"
        rebuild = "rebuild it with `knowledge-lookup sync --rebuild`, or choose another milvus.collection"
        description = client.describe_collection(self.collection_name, timeout=self.timeout)
        vector_fields = [field for field in description["fields"] if "dim" in field.get("params", {})]
        if not vector_fields:
            raise VectorStoreError(f"{where} has no vector field; {rebuild}")
        built_with = self._built_with(client)
        if self.embedding_model is not None and built_with not in {None, self.embedding_model}:
            raise EmbeddingModelMismatchError(
                f"{where} was built with the embedding model '{built_with}', the settings say "
                f"'{self.embedding_model}': {rebuild}"
            )
        has_dimension = int(vector_fields[0]["params"]["dim"])
        if dimension is not None and has_dimension != dimension:
            raise VectorStoreError(
                f"{where} holds vectors of length {has_dimension}, the embedding model gives {dimension}: {rebuild}"
            )
        field_name = vector_fields[0]["name"]
        indexes = client.list_indexes(self.collection_name, field_name=field_name)
        if not indexes:
            # MilvusVectorStore would index it by inner product.
            params = client.prepare_index_params()
            params.add_index(field_name=field_name, index_type="AUTOINDEX", metric_type=METRIC)
            client.create_index(self.collection_name, params, timeout=self._write_timeout)
            return
        metric = client.describe_index(self.collection_name, index_name=indexes[0], timeout=self.timeout)["metric_type"]
        if metric != METRIC:
            raise VectorStoreError(f"{where} is indexed by the metric '{metric}', '{METRIC}' is needed: {rebuild}")

    def _built_with(self, client: MilvusClient) -> str | None:
        client.load_collection(self.collection_name, timeout=self._write_timeout)
        rows = client.query(
            self.collection_name, filter="", limit=1, output_fields=[keys.EMBEDDING_MODEL], timeout=self.timeout
        )
        return rows[0].get(keys.EMBEDDING_MODEL) if rows else None

    @contextmanager
    def _translated_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except MilvusException as error:
            if is_milvus_lite(self.uri) and "local milvus" in str(error):
                raise reason_not_opened(self.uri) from error
            raise VectorStoreUnavailableError(
                f"Milvus at {self.uri} could not be {verb}: {_one_line(error)}; "
                "check that it runs and that milvus.uri and milvus.token are right"
            ) from error


def _scored_node(hit: dict[str, Any], *, text_key: str) -> NodeWithScore:
    entity = hit["entity"]
    node = metadata_dict_to_node(entity, text=entity.get(text_key))
    scored = NodeWithScore(node=node, score=float(hit["distance"]))
    return keys.annotate(
        scored, score=scored.score, annotations={keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE}
    )


def _one_line(error: MilvusException) -> str:
    return " ".join(str(error.message or error).split())
