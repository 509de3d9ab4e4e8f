"""The Milvus collection that holds the chunks: opened on first use, checked, searched by squared L2 distance.

The collection is made by LlamaIndex's ``MilvusVectorStore`` and its rows have that store's form, so that other
LlamaIndex code can read it. Reading and writing go straight to the client: that keeps the distance a distance,
returns no vectors, puts a time limit on each call and always replaces a chunk that is there.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.errors import VectorStoreError, VectorStoreUnavailableError
from knowledge_lookup.retrievers.milvus_collection import MilvusCollection
from knowledge_lookup.retrievers.milvus_collection_check import METRIC
from knowledge_lookup.retrievers.milvus_errors import shown_uri
from knowledge_lookup.retrievers.milvus_expression import all_of, is_in, is_not_in, string_literal
from knowledge_lookup.retrievers.milvus_iteration import iterate_rows
from knowledge_lookup.retrievers.milvus_lite import is_milvus_lite
from knowledge_lookup.retrievers.milvus_requests import request_batches
from knowledge_lookup.retrievers.milvus_rows import (
    DOCUMENT_FIELD,
    ID_FIELD,
    NODE_FIELDS,
    FetchedRow,
    Hit,
    passage_of,
    row_of,
)
from knowledge_lookup.retrievers.passage import PASSAGE_FIELDS, Passage

_MOST_HITS = 16_384
"""More than this Milvus refuses to return in one answer."""
_READ_BATCH = 1000


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
    :param timeout: Seconds that a search or a connection attempt may take, above 0; what changes the collection may
        take 15 times as long.
    :param is_needed: Tells whether there must be chunks by now: a search of a collection that doesn't exist then fails,
        where it would otherwise find nothing. None for never.
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
        is_needed: Callable[[], bool] | None = None,
    ) -> None:
        self._is_needed = is_needed
        self._collection = MilvusCollection(
            uri=uri,
            token=token,
            name=collection_name,
            embedding_model=embedding_model,
            consistency_level=consistency_level,
            timeout=timeout,
        )
        self._consistency_level = consistency_level

    @classmethod
    def from_vector_store(cls, vector_store: MilvusVectorStore, *, timeout: float = 2.0) -> "MilvusChunkStore":
        """Take a ``MilvusVectorStore`` that an application already has.

        What this class calls a document's file path is then LlamaIndex's id of the document (``ref_doc_id``).

        :param vector_store: A store with the metric L2.
        :param timeout: Seconds that a search may take, above 0.
        :returns: A chunk store on the same client and collection.
        :raises VectorStoreError: If the store's metric isn't L2; that of the collection is checked on first use.
        """
        if vector_store.similarity_metric != METRIC:
            raise VectorStoreError(
                f"the vector store of collection '{vector_store.collection_name}' has the metric "
                f"'{vector_store.similarity_metric}', build it with similarity_metric='{METRIC}'"
            )
        store = cls(
            # The store's own `uri` field keeps its default whatever it was built with: it names nothing.
            uri="the given vector store",
            collection_name=vector_store.collection_name,
            consistency_level=vector_store.consistency_level,
            timeout=timeout,
        )
        store._collection.given = vector_store
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
        :param limit: Most chunks to return, at least 1; of more than 16,384 Milvus returns so many.
        :param exclude_documents: File paths whose chunks are left out by Milvus itself.
        :param only_documents: File paths whose chunks alone are searched; None for all, empty for none.
        :returns: Nodes nearest first, ``score`` being the raw squared L2 distance (0 to 4, smaller is closer);
            empty when the collection doesn't exist yet.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer within the time limit.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`).
        """
        hits = self.hits(embedding, limit=limit, exclude_documents=exclude_documents, only_documents=only_documents)
        return [hit.to_node() for hit in hits]

    def hits(
        self,
        embedding: Sequence[float],
        *,
        limit: int,
        exclude_documents: Collection[str] = (),
        only_documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """Find what :meth:`search` finds, without making nodes of it.

        :param embedding: See :meth:`search`, the others likewise.
        :param limit: Most chunks to return.
        :param exclude_documents: File paths left out.
        :param only_documents: File paths searched.
        :returns: Rows nearest first.
        :raises VectorStoreError: See :meth:`search`.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if only_documents is not None and not only_documents:
            return []
        expression = all_of(
            is_in(DOCUMENT_FIELD, only_documents) if only_documents is not None else "",
            is_not_in(DOCUMENT_FIELD, exclude_documents) if exclude_documents else "",
        )

        def nearest(vector_store: MilvusVectorStore) -> list[Hit]:
            answer = vector_store.client.search(
                collection_name=self._collection.name,
                data=[list(embedding)],
                anns_field=vector_store.embedding_field,
                filter=expression,
                limit=min(limit, _MOST_HITS),
                output_fields=[vector_store.text_key, *NODE_FIELDS],
                search_params={"metric_type": METRIC},
                consistency_level=self._consistency_level,
                timeout=self._collection.timeout,
            )
            found = ((hit["entity"], hit) for hit in answer[0])
            return [Hit(hit[ID_FIELD], _distance(hit), row, row.get(vector_store.text_key)) for row, hit in found]

        found = self._collection.ask("searched", nearest, dimension=len(embedding))
        if found is None and self._is_needed is not None and self._is_needed():
            raise VectorStoreUnavailableError(
                f"there is no collection '{self._collection.name}' at {shown_uri(self._collection.uri)}, although "
                "documents are indexed: run `knowledge-lookup sync`, or correct milvus.uri and milvus.collection"
            )
        return found or []

    def measure(self, embedding: Sequence[float], node_ids: Sequence[str]) -> list[NodeWithScore]:
        """Measure how far some chunks are from a query vector.

        :param embedding: Unit vector of the collection's dimension.
        :param node_ids: The chunks; one that isn't there is left out.
        :returns: Nodes in the order of ``node_ids``, scored as :meth:`search` scores them.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer within the time limit.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`).
        """
        return [hit.to_node() for hit in self.measured(embedding, node_ids)]

    def measured(self, embedding: Sequence[float], node_ids: Sequence[str]) -> list[Hit]:
        """Measure what :meth:`measure` measures, without making nodes of it.

        :param embedding: See :meth:`measure`.
        :param node_ids: See :meth:`measure`.
        :returns: Rows in the order of ``node_ids``.
        :raises VectorStoreError: See :meth:`measure`.
        """
        rows = self.fetch(node_ids, dimension=len(embedding))
        return [rows[node_id].hit(embedding) for node_id in node_ids if node_id in rows]

    def fetch(self, node_ids: Sequence[str], *, dimension: int | None = None) -> dict[str, FetchedRow]:
        """Read chunks with their vectors.

        :param node_ids: The chunks; one that isn't there is left out.
        :param dimension: Length that the vectors must have; None for any.
        :returns: Rows by node id.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer within the time limit.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`).
        """
        if not node_ids:
            return {}

        def get(vector_store: MilvusVectorStore) -> dict[str, FetchedRow]:
            # By id and not by a filtered search, which costs Milvus Lite several times as much.
            rows = vector_store.client.get(
                self._collection.name,
                ids=list(node_ids),
                output_fields=[ID_FIELD, vector_store.text_key, vector_store.embedding_field, *NODE_FIELDS],
                timeout=self._collection.timeout,
            )
            return {
                row[ID_FIELD]: FetchedRow(row, row[vector_store.embedding_field], row.get(vector_store.text_key))
                for row in rows
            }

        return self._collection.ask("searched", get, dimension=dimension) or {}

    def passages(self, file_paths: Collection[str] | None = None) -> Iterator[Passage]:
        """Read chunks as passages of text, for a search by words.

        :param file_paths: Only those of these documents; None for all.
        :returns: The passages in any order; none when the collection doesn't exist.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """

        def read(vector_store: MilvusVectorStore) -> list[Passage]:
            fields = [ID_FIELD, DOCUMENT_FIELD, vector_store.text_key, *PASSAGE_FIELDS]
            only = is_in(DOCUMENT_FIELD, file_paths) if file_paths is not None else ""
            return [passage_of(row, vector_store) for row in self._rows(vector_store, fields, only)]

        def is_there(vector_store: MilvusVectorStore) -> bool:
            name = self._collection.name
            return bool(vector_store.client.has_collection(name, timeout=self._collection.timeout))

        if file_paths is not None and not file_paths:
            return
        # Reading may take long, but not to find out that Milvus doesn't answer: a search waits for these passages.
        if self._collection.ask("read", is_there):
            yield from self._collection.run("read", read) or []

    def is_empty(self) -> bool:
        """Tell whether there is no chunk at all, be it that the collection doesn't exist.

        :returns: True without a collection or with an empty one.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """

        def has_none(vector_store: MilvusVectorStore) -> bool:
            rows = vector_store.client.query(
                self._collection.name,
                filter="",
                limit=1,
                output_fields=[ID_FIELD],
                # What another process wrote a moment ago counts: who takes the collection for empty embeds all again.
                consistency_level="Strong",
                timeout=self._collection.slow_timeout,
            )
            return not rows

        outcome = self._collection.run("read", has_none)
        return True if outcome is None else outcome

    def documents(self) -> dict[str, int]:
        """List the documents that have chunks in the collection.

        :returns: File path to number of chunks; empty when the collection doesn't exist.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """

        def count(vector_store: MilvusVectorStore) -> dict[str, int]:
            return dict(Counter(row[DOCUMENT_FIELD] for row in self._rows(vector_store, [DOCUMENT_FIELD])))

        return self._collection.run("read", count) or {}

    # Writing

    def upsert(self, nodes: Sequence[BaseNode]) -> None:
        """Write chunks; a chunk with the same node id is replaced.

        :param nodes: Chunks with unit embeddings, all of one dimension; none is allowed.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        :raises VectorStoreError: If the collection doesn't fit (see :meth:`open`), or Milvus refuses a chunk, as a
            server does when text and metadata pass 65,535 bytes.
        """
        if not nodes:
            return

        def write(vector_store: MilvusVectorStore) -> None:
            for rows in request_batches(row_of(node, vector_store) for node in nodes):
                vector_store.client.upsert(self._collection.name, rows, timeout=self._collection.slow_timeout)

        self._collection.run("written", write, dimension=len(nodes[0].get_embedding()), create=True)

    def delete_documents(self, file_paths: Collection[str]) -> None:
        """Delete all chunks of some documents.

        :param file_paths: The documents; those without chunks are no error.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        if file_paths:
            self._delete(is_in(DOCUMENT_FIELD, file_paths))

    def delete_chunks_from(self, file_path: str, first_index: int) -> None:
        """Delete the chunks that a shorter version of a document no longer has.

        :param file_path: The document.
        :param first_index: Chunks with this index and higher ones go.
        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        self._delete(f"{DOCUMENT_FIELD} == {string_literal(file_path)} and {keys.CHUNK_INDEX} >= {first_index}")

    def flush(self) -> None:
        """Have Milvus Lite search by index what was written; without it the search is by brute force.

        A server does so by itself, and limits how often it lets a client ask for it: there nothing is done.

        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """

        def flush(vector_store: MilvusVectorStore) -> None:
            vector_store.client.flush(self._collection.name, timeout=self._collection.slow_timeout)

        if is_milvus_lite(self._collection.uri):
            self._collection.run("flushed", flush)

    def drop(self) -> None:
        """Delete the whole collection, whatever model or metric it was built with.

        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        self._collection.drop()

    # Opening and closing

    def open(self, *, dimension: int | None = None, create: bool = False) -> MilvusVectorStore | None:
        """Connect and check the collection, once; later calls return what is open.

        :param dimension: Length of the vectors to be searched or written, compared with the collection's each time;
            needed to create.
        :param create: Create the collection if it doesn't exist.
        :returns: LlamaIndex's store on the collection; None if there's none and it may not be created.
        :raises VectorStoreUnavailableError: If Milvus can't be reached or another process holds Milvus Lite.
        :raises EmbeddingModelMismatchError: If the collection was built with another embedding model.
        :raises VectorStoreError: If the collection has another metric, or vectors of another length.
        """
        return self._collection.open(dimension=dimension, create=create)

    def close(self) -> None:
        """Disconnect, and release Milvus Lite's lock so that other processes may open the folder.

        A vector store that the application handed over stays open. The next call opens the collection again.
        """
        self._collection.close()

    def _rows(
        self, vector_store: MilvusVectorStore, output_fields: Sequence[str], expression: str = ""
    ) -> Iterator[dict[str, Any]]:
        return iterate_rows(
            vector_store.client,
            self._collection.name,
            output_fields=output_fields,
            expression=expression,
            timeout=self._collection.timeout,
            slow_timeout=self._collection.slow_timeout,
        )

    def _delete(self, expression: str) -> None:
        def delete(vector_store: MilvusVectorStore) -> None:
            # A server doesn't count a deletion among a session's own writes and goes on returning the rows for a
            # moment: asking until they are gone makes sure that no later search returns them.
            client = vector_store.client
            while rows := client.query(
                self._collection.name,
                filter=expression,
                limit=_READ_BATCH,
                output_fields=[ID_FIELD],
                consistency_level="Strong",
                timeout=self._collection.slow_timeout,
            ):
                ids = is_in(ID_FIELD, [row[ID_FIELD] for row in rows])
                client.delete(self._collection.name, filter=ids, timeout=self._collection.slow_timeout)

        self._collection.run("changed", delete)


def _distance(hit: Any) -> float:
    distance = float(hit["distance"])
    if not math.isfinite(distance):
        raise ValueError(f"the distance {distance}")
    return distance
