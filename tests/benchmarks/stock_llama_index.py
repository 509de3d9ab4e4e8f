"""What a LlamaIndex user takes instead: ``RetrieverTool`` over words and meaning, on the chunks of a pipeline.

``QueryFusionRetriever`` (reciprocal rank fusion, no generated queries) over ``BM25Retriever`` and a vector retriever on
Milvus with the metric IP. Chunks and vectors are those of the pipeline, and so is the embedding model of the queries.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import bm25s
    import jieba
    import Stemmer
    from llama_index.retrievers.bm25 import BM25Retriever
except ImportError as error:
    raise SystemExit(f"{error}: this benchmark needs `pip install jieba llama-index-retrievers-bm25`") from error
from llama_index.core import VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.agents.lookup_result import PassageSpan
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.milvus_iteration import iterate_rows
from knowledge_lookup.retrievers.milvus_lite import release_milvus_lite
from knowledge_lookup.retrievers.milvus_rows import ID_FIELD, NODE_FIELDS

TOP_K = 3
_COLLECTION = "stock_chunks"
_WORDS = r"(?u)\S*\w\S*"
"""A token that jieba has cut, unless it is punctuation alone."""
_READ_TIMEOUT_SECONDS = 30.0


class JiebaBM25Retriever(BM25Retriever):
    """A ``BM25Retriever`` that jieba cuts the words for; the stock one ignores the tokenizer that it is given.

    :param nodes: The chunks.
    :param similarity_top_k: Most chunks to return.
    """

    def __init__(self, nodes: Sequence[BaseNode], *, similarity_top_k: int) -> None:
        stemmer = Stemmer.Stemmer("english")  # as the stock one has by default
        texts = [_cut(node.get_content(metadata_mode=MetadataMode.EMBED)) for node in nodes]
        tokens = bm25s.tokenize(texts, token_pattern=_WORDS, stemmer=stemmer, show_progress=False)
        index = bm25s.BM25(corpus=[node_to_metadata_dict(node) | {"node_id": node.node_id} for node in nodes])
        index.index(tokens, show_progress=False)
        super().__init__(existing_bm25=index, stemmer=stemmer, similarity_top_k=similarity_top_k, token_pattern=_WORDS)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found: list[NodeWithScore] = super()._retrieve(QueryBundle(_cut(query_bundle.query_str)))
        return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk and where it stands.

    :param node: The chunk with its embedding.
    :param span: Its document, and the range of its text there.
    """

    node: TextNode
    span: PassageSpan


def read_chunks(pipeline: KnowledgePipeline, files: KnowledgeFiles) -> dict[str, Chunk]:
    """Read the chunks of a pipeline and find each in its document.

    :param pipeline: The pipeline.
    :param files: Its documents.
    :returns: Node ids to chunks.
    :raises ValueError: If a chunk isn't in its document.
    """
    by_document: dict[str, list[TextNode]] = defaultdict(list)
    for node in _nodes(pipeline):
        by_document[str(node.metadata[keys.FILE_PATH])].append(node)
    chunks: dict[str, Chunk] = {}
    for file_path, nodes in by_document.items():
        body = files.read_body(file_path)
        position = 0
        # In their order: the same text may stand in a document twice.
        for node in sorted(nodes, key=lambda one: int(one.metadata[keys.CHUNK_INDEX])):
            start = body.find(node.text, position)
            if start < 0:
                raise ValueError(f"chunk {node.metadata[keys.CHUNK_INDEX]} of '{file_path}' isn't in the document")
            position = start + len(node.text)
            chunks[node.node_id] = Chunk(node, PassageSpan(file_path, start, position))
    return chunks


@contextmanager
def stock_tool(chunks: dict[str, Chunk], pipeline: KnowledgePipeline, folder: Path) -> Iterator[RetrieverTool]:
    """Build the tool, all its other settings left as they are.

    :param chunks: The chunks.
    :param pipeline: Its model embeds the queries.
    :param folder: An empty folder for Milvus Lite.
    :returns: A context manager that yields the tool, for sync and async use in one event loop.
    """
    jieba.setLogLevel(logging.WARNING)
    nodes: list[BaseNode] = [chunk.node for chunk in chunks.values()]
    uri = str(folder / "stock.db")
    store = MilvusVectorStore(
        uri=uri,
        collection_name=_COLLECTION,
        dim=len(nodes[0].get_embedding()),
        similarity_metric="IP",
        overwrite=True,
    )
    try:
        store.add(nodes, force_flush=True)
        index = VectorStoreIndex.from_vector_store(store, embed_model=pipeline.embed_model)
        fusion = QueryFusionRetriever(
            [
                JiebaBM25Retriever(nodes, similarity_top_k=TOP_K),
                index.as_retriever(similarity_top_k=TOP_K),
            ],
            llm=MockLLM(),  # never asked, but without one LlamaIndex makes an OpenAI client
            mode=FUSION_MODES.RECIPROCAL_RANK,
            similarity_top_k=TOP_K,
            num_queries=1,
            use_async=False,
        )
        yield RetrieverTool.from_defaults(fusion)
    finally:
        store.client.close()
        release_milvus_lite(uri)


def _nodes(pipeline: KnowledgePipeline) -> Iterator[TextNode]:
    store = pipeline.chunk_store.open()
    assert store is not None, "the pipeline is indexed"
    rows: Iterator[dict[str, Any]] = iterate_rows(
        store.client,
        store.collection_name,
        output_fields=[ID_FIELD, store.text_key, store.embedding_field, *NODE_FIELDS],
        timeout=_READ_TIMEOUT_SECONDS,
        slow_timeout=_READ_TIMEOUT_SECONDS,
    )
    for row in rows:
        node = metadata_dict_to_node(row, text=row[store.text_key])
        assert isinstance(node, TextNode)
        node.embedding = [float(value) for value in row[store.embedding_field]]
        yield node


def _cut(text: str) -> str:
    return " ".join(jieba.cut(text))
