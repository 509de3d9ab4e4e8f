"""The metadata keys that this package writes on nodes, and the one way to write them.

Two kinds of keys exist. Those that describe a chunk (``FILE_PATH`` to ``EMBEDDING_MODEL``) are stored in
Milvus. Those that begin with ``kl_`` are judgements made at query time: they travel on the nodes from one
component to the next and are always kept out of what the LLM and the embedding model see.
"""

from collections.abc import Mapping
from typing import Any, Literal

from llama_index.core.schema import NodeWithScore

FILE_PATH = "file_path"
"""Path of the document relative to the base path, ``/`` as separator."""
TITLE = "title"
SECTION = "section"
"""Headings from the document's top down to the chunk, joined by ``SECTION_SEPARATOR``, without one that repeats the
title; empty for the lead."""
SECTION_SEPARATOR = " > "
DOMAIN = "domain"
CHUNK_INDEX = "chunk_index"
"""Position of the chunk in its document, from 0."""
EMBEDDING_MODEL = "embedding_model"

MATCH_TYPE = "kl_match_type"
"""``EXACT_L0`` or ``SEMANTIC_L1``."""
MATCH_COUNT = "kl_match_count"
"""On L0 nodes: how many documents the keyword match left (at least 1)."""
DECISIVE = "kl_decisive"
"""On L0 nodes: whether the keyword match accounts for the whole query with exactly one document."""
MATCHED_TERMS = "kl_matched_terms"
"""The matched terms in normal form, in the order in which the query names them: on L0 nodes, and on the passage that
speaks for a further matching document; such a passage stays whatever its similarity."""
SCORE_KIND = "kl_score_kind"
"""What ``NodeWithScore.score`` is: ``L2_DISTANCE`` (squared, smaller is closer), ``SIMILARITY`` (0 to 1) or
``PROBABILITY`` (0 to 1)."""
DISTANCE = "kl_l2_distance"
"""The raw squared L2 distance that a similarity was made of."""
SIMILARITY_SCORE = "kl_similarity"
"""The similarity that a probability was made of."""
EVIDENCE = "kl_evidence"
"""The features that a probability was made of, by name."""
DENSE_RANK = "kl_dense_rank"
"""Rank in the search by meaning, from 1; absent where that search didn't return the passage."""
SPARSE_RANK = "kl_sparse_rank"
"""Rank in the search by words, from 1; absent where that search didn't return the passage."""
TEXT_SPANS = "kl_text_spans"
"""On L0 nodes: which characters of the document's body the text is made of, as pairs (start, end)."""
RELEVANCE_LEVEL = "kl_relevance_level"
COMPLETENESS_HINT = "kl_completeness_hint"

MatchType = Literal["exact_L0", "semantic_L1"]
ScoreKind = Literal["l2_distance", "similarity", "probability"]
EXACT_L0: MatchType = "exact_L0"
SEMANTIC_L1: MatchType = "semantic_L1"
L2_DISTANCE: ScoreKind = "l2_distance"
SIMILARITY: ScoreKind = "similarity"
PROBABILITY: ScoreKind = "probability"


_EXCLUDING = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")
ANNOTATED_FIELDS = frozenset({"metadata", *_EXCLUDING})
"""The fields of a node that :func:`annotate_fields` replaces."""


def annotate(scored: NodeWithScore, *, score: float | None, annotations: Mapping[str, Any]) -> NodeWithScore:
    """Return a copy of a scored node with another score and more (hidden) metadata; the input stays as it was.

    :param scored: The node to copy.
    :param score: The copy's score.
    :param annotations: Metadata to set on the copy, kept out of what LLM and embedding model see.
    :returns: A new ``NodeWithScore`` around a new node with the same id and text.
    """
    fields = {name: getattr(scored.node, name) for name in ANNOTATED_FIELDS}
    annotate_fields(fields, annotations)
    # `update` saves validating what is known to be valid.
    return NodeWithScore(node=scored.node.model_copy(update=fields), score=score)


def annotate_fields(fields: dict[str, Any], annotations: Mapping[str, Any]) -> None:
    """Set hidden metadata among the fields that a node is made of.

    :param fields: A node's metadata and the two lists of keys left out of it, by field name; each is replaced.
    :param annotations: Metadata to set, kept out of what LLM and embedding model see.
    """
    fields["metadata"] = {**fields["metadata"], **annotations}
    for name in _EXCLUDING:
        excluded = fields[name]
        fields[name] = [*excluded, *[key for key in annotations if key not in excluded]]


def is_exact(scored: NodeWithScore) -> bool:
    """Tell whether a node came from the keyword match.

    :param scored: Any scored node.
    :returns: True for a node marked ``EXACT_L0``.
    """
    return bool(scored.node.metadata.get(MATCH_TYPE) == EXACT_L0)


def document_of(scored: NodeWithScore) -> str:
    """Tell which document a node belongs to.

    :param scored: Any scored node.
    :returns: Its file path; for a node of another application LlamaIndex's id of the document, or the node's own id
        where it belongs to none.
    """
    metadata = scored.node.metadata
    document = metadata.get(FILE_PATH)
    if document is None and FILE_PATH not in metadata:
        document = scored.node.ref_doc_id
    return scored.node.node_id if document is None else str(document)
