"""Chunks as rows of a Milvus collection, in the form of LlamaIndex's ``MilvusVectorStore``, and back."""

from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers import metadata as keys

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


def scored_node(hit: dict[str, Any], vector_store: MilvusVectorStore) -> NodeWithScore:
    """Read a hit of a search.

    :param hit: The hit, with the text and ``NODE_FIELDS``.
    :param vector_store: LlamaIndex's store on the collection.
    :returns: The node, ``score`` being the raw squared L2 distance, marked as such.
    """
    entity = hit["entity"]
    node = metadata_dict_to_node(entity, text=entity.get(vector_store.text_key))
    distance = float(hit["distance"])
    return keys.annotate(
        NodeWithScore(node=node, score=distance),
        score=distance,
        annotations={keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE},
    )
