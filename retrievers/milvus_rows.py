"""Chunks as rows of a Milvus collection, in the form of LlamaIndex's ``MilvusVectorStore``, and back."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.milvus import MilvusVectorStore
from pydantic_core import from_json

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


class Hit(NamedTuple):
    """A row with its distance from a query; not a node yet, since most of what is fetched is only ranked.

    :param node_id: Id of the chunk's node.
    :param distance: Squared L2 distance, 0 or more.
    :param row: The row, with the text and ``NODE_FIELDS``.
    :param text: The chunk's text; None where the row has none.
    """

    node_id: str
    distance: float
    row: Mapping[str, Any]
    text: str | None

    def to_node(self, annotations: Mapping[str, Any] | None = None) -> NodeWithScore:
        """Read the row as a node.

        :param annotations: Hidden metadata to set on it.
        :returns: A new node, ``score`` being the distance, marked as such.
        """
        said = {keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE, **(annotations or {})}
        # What LlamaIndex does for a TextNode, in one step with text and annotations instead of one after the other.
        if self.row.get("_node_type") == TextNode.class_name() and self.text is not None:
            fields = from_json(self.row["_node_content"])
            if fields.keys() >= keys.ANNOTATED_FIELDS and "text_resource" not in fields:
                keys.annotate_fields(fields, said)
                fields["text"] = self.text
                fields.pop("class_name", None)
                return NodeWithScore(node=TextNode(**fields), score=self.distance)
        node = metadata_dict_to_node(dict(self.row), text=self.text)
        return keys.annotate(NodeWithScore(node=node), score=self.distance, annotations=said)


class FetchedRow(NamedTuple):
    """A row with its vector.

    :param row: The row, with the id, the text and ``NODE_FIELDS``.
    :param vector: Its vector.
    :param text: The chunk's text; None where the row has none.
    """

    row: Mapping[str, Any]
    vector: Sequence[float]
    text: str | None

    def hit(self, query: Sequence[float]) -> Hit:
        """Measure how far the row is from a query.

        :param query: The query's vector, of the same length.
        :returns: The row with its squared Euclidean distance, which is what Milvus gives as L2 distance.
        """
        difference = np.asarray(query, np.float32) - np.asarray(self.vector, np.float32)
        return Hit(self.row[ID_FIELD], float(np.sum(difference**2)), self.row, self.text)


def passage_of(row: dict[str, Any], vector_store: MilvusVectorStore) -> Passage:
    """Read a row as a passage.

    :param row: The row, with the text, the ids and ``PASSAGE_FIELDS``.
    :param vector_store: LlamaIndex's store on the collection.
    :returns: The passage; its text begins with what the row has of title and section.
    """
    parts = [str(row.get(field) or "") for field in (*PASSAGE_FIELDS, vector_store.text_key)]
    return Passage(row[ID_FIELD], row[DOCUMENT_FIELD], "\n".join(filter(None, parts)))
