"""Chunks with vectors chosen by hand, and places to keep them, for the tests of the chunk store and the retrievers."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import pairwise
from math import sqrt

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from knowledge_lookup.retrievers import metadata as keys

MODEL = "model-a"
AHEAD = (1.0, 0.0, 0.0, 0.0)
ASIDE = (sqrt(0.5), sqrt(0.5), 0.0, 0.0)
ACROSS = (0.0, 1.0, 0.0, 0.0)
BEHIND = (-1.0, 0.0, 0.0, 0.0)


def chunk(
    file_path: str,
    index: int = 0,
    *,
    vector: Sequence[float] = AHEAD,
    text: str = "text",
    model: str = MODEL,
) -> TextNode:
    """Make a chunk as the pipeline makes it."""
    return TextNode(
        id_=sha256(f"{file_path}\0{index}".encode()).hexdigest()[:32],
        text=text,
        embedding=list(vector),
        metadata={keys.FILE_PATH: file_path, keys.CHUNK_INDEX: index, keys.EMBEDDING_MODEL: model},
        excluded_llm_metadata_keys=[keys.CHUNK_INDEX],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=file_path)},
    )


def vector_at(similarity: float) -> list[float]:
    """Make a unit vector whose cosine to ``AHEAD`` is the similarity."""
    return [similarity, sqrt(1.0 - similarity * similarity), 0.0, 0.0]


def paths_of(nodes: Iterable[NodeWithScore]) -> list[str]:
    """List the documents of nodes, in their order."""
    return [scored.node.metadata[keys.FILE_PATH] for scored in nodes]


class ChosenVectors(BaseEmbedding):
    """An embedding model that gives each query the vector that a table says; ``AHEAD`` where it says nothing."""

    vectors: dict[str, list[float]] = Field(default_factory=dict)
    asked: list[str] = Field(default_factory=list)

    def __init__(self, vectors: Mapping[str, Sequence[float]] | None = None) -> None:
        super().__init__(model_name=MODEL, vectors={text: list(vector) for text, vector in (vectors or {}).items()})

    def _get_query_embedding(self, query: str) -> list[float]:
        self.asked.append(query)
        return self.vectors.get(query, list(AHEAD))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_query_embedding(text)


@asynccontextmanager
async def event_loop_stays_free(*, longest_pause: float = 0.3) -> AsyncIterator[None]:
    """Require that the event loop runs other tasks while the block waits.

    :param longest_pause: The most seconds between two turns of another task.
    :returns: An asynchronous context manager.
    """
    beats = [time.monotonic()]

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.01)
            beats.append(time.monotonic())

    heart = asyncio.create_task(beat())
    try:
        yield
        beats.append(time.monotonic())
    finally:
        heart.cancel()
    pauses = [after - before for before, after in pairwise(beats)]
    assert max(pauses) <= longest_pause, f"the event loop stood still for {max(pauses):.2f} seconds"
