"""Chunks as rows of a Milvus collection, in the form of LlamaIndex's ``MilvusVectorStore``, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.passage import PASSAGE_FIELDS, Passage

ID_FIELD = "id"
DOCUMENT_FIELD = "doc_id"
NODE_FIELDS = ("_node_content", "_node_type")
"""What a node is read from, besides the text, whose field has the name that the store gives it."""


def row_of(node: BaseNode, vector_store: MilvusVectorStore) -> dict[str, Any]:
    """Make of a node what ``MilvusVectorStore.add`` makes of it.

    That method itself has no time limit, and adds a second row for an id if its store was built so.

    :param node: A chunk with its embedding.
    :param vector_store: LlamaIndex's store on the collection, which knows the names of the fields.
    :returns: Field names to values.
    """
    row = node_to_metadata_dict(node, remove_text=True, text_field=vector_store.text_key)
    row[vector_store.text_key] = node.get_content(metadata_mode=MetadataMode.NONE)
    row[vector_store.embedding_field] = node.get_embedding()
    row[ID_FIELD] = node.node_id
    return row


def scored_node(row: dict[str, Any], distance: float, vector_store: MilvusVectorStore) -> NodeWithScore:
    """Read a row as a node with its distance from a query.

    :param row: The row, with the text and ``NODE_FIELDS``.
    :param distance: Squared L2 distance, 0 or more.
    :param vector_store: LlamaIndex's store on the collection.
    :returns: The node, ``score`` being the distance, marked as such.
    """
    node = metadata_dict_to_node(row, text=row.get(vector_store.text_key))
    return keys.annotate(
        NodeWithScore(node=node, score=distance),
        score=distance,
        annotations={keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE},
    )


def passage_of(row: dict[str, Any], vector_store: MilvusVectorStore) -> Passage:
    """Read a row as a passage.

    :param row: The row, with the text, the ids and ``PASSAGE_FIELDS``.
    :param vector_store: LlamaIndex's store on the collection.
    :returns: The passage; its text begins with what the row has of title and section.
    """
    parts = [str(row.get(field) or "") for field in (*PASSAGE_FIELDS, vector_store.text_key)]
    return Passage(row[ID_FIELD], row[DOCUMENT_FIELD], "\n".join(filter(None, parts)))


def squared_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute what Milvus gives as the L2 distance of two vectors.

    :param first: A vector.
    :param second: A vector of the same length.
    :returns: The squared Euclidean distance, 0 or more.
    """
    return float(np.sum((np.asarray(first, np.float32) - np.asarray(second, np.float32)) ** 2))
