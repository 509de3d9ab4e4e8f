"""Retrieval: exact keyword match (L0), semantic search over Milvus (L1), and the two together.

The names are imported on first use: LlamaIndex takes over a second, which an error class or `--help` does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knowledge_lookup.retrievers.bm25_index import Bm25Index as Bm25Index
    from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError as DocumentNotFoundError
    from knowledge_lookup.retrievers.document_reader import DocumentReader as DocumentReader
    from knowledge_lookup.retrievers.errors import EmbeddingError as EmbeddingError
    from knowledge_lookup.retrievers.errors import EmbeddingModelMismatchError as EmbeddingModelMismatchError
    from knowledge_lookup.retrievers.errors import KnowledgeLookupError as KnowledgeLookupError
    from knowledge_lookup.retrievers.errors import VectorStoreError as VectorStoreError
    from knowledge_lookup.retrievers.errors import VectorStoreUnavailableError as VectorStoreUnavailableError
    from knowledge_lookup.retrievers.hybrid_retriever import HybridRetriever as HybridRetriever
    from knowledge_lookup.retrievers.keyword_index import KeywordIndex as KeywordIndex
    from knowledge_lookup.retrievers.keyword_match import KeywordEntry as KeywordEntry
    from knowledge_lookup.retrievers.keyword_match import KeywordMatch as KeywordMatch
    from knowledge_lookup.retrievers.keyword_match import KeywordMatches as KeywordMatches
    from knowledge_lookup.retrievers.keyword_retriever import KeywordRetriever as KeywordRetriever
    from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval as KnowledgeRetrieval
    from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetriever as KnowledgeRetriever
    from knowledge_lookup.retrievers.milvus_chunk_store import MilvusChunkStore as MilvusChunkStore
    from knowledge_lookup.retrievers.milvus_vector_retriever import MilvusVectorRetriever as MilvusVectorRetriever
    from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle as ScopedQueryBundle
    from knowledge_lookup.retrievers.term_statistics import TermStatistics as TermStatistics

_MODULES = {
    "Bm25Index": "bm25_index",
    "DocumentNotFoundError": "document_reader",
    "DocumentReader": "document_reader",
    "EmbeddingError": "errors",
    "EmbeddingModelMismatchError": "errors",
    "HybridRetriever": "hybrid_retriever",
    "KeywordEntry": "keyword_match",
    "KeywordIndex": "keyword_index",
    "KeywordMatch": "keyword_match",
    "KeywordMatches": "keyword_match",
    "KeywordRetriever": "keyword_retriever",
    "KnowledgeLookupError": "errors",
    "KnowledgeRetrieval": "knowledge_retriever",
    "KnowledgeRetriever": "knowledge_retriever",
    "MilvusChunkStore": "milvus_chunk_store",
    "MilvusVectorRetriever": "milvus_vector_retriever",
    "ScopedQueryBundle": "scoped_query_bundle",
    "TermStatistics": "term_statistics",
    "VectorStoreError": "errors",
    "VectorStoreUnavailableError": "errors",
}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - the names are listed once


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
