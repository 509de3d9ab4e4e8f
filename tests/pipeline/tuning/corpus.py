"""A corpus in Milvus Lite whose documents are near to a query when they share words with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import sqrt
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.pipeline.tuning import CorpusDocument, SampleCollector
from knowledge_lookup.retrievers import Bm25Index, HybridRetriever, MilvusChunkStore, MilvusVectorRetriever
from knowledge_lookup.retrievers.search_terms import query_terms
from tests.retrievers.chunks import MODEL, chunk

_DIMENSIONS = 32


class WordVectors(BaseEmbedding):
    """An embedding model that adds up a fixed vector for each word."""

    def __init__(self) -> None:
        super().__init__(model_name=MODEL)

    def _get_text_embedding(self, text: str) -> list[float]:
        total = [1.0, *[0.0] * (_DIMENSIONS - 1)]
        for word in query_terms(text):
            total = [held + byte / 255 - 0.5 for held, byte in zip(total, sha256(word.encode()).digest(), strict=True)]
        length = sqrt(sum(value * value for value in total))
        return [value / length for value in total]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@dataclass(frozen=True)
class Corpus:
    """The searches over some documents, one chunk for each line of their text."""

    store: MilvusChunkStore
    retriever: HybridRetriever
    bm25_index: Bm25Index

    @classmethod
    def of(cls, documents: Iterable[CorpusDocument], folder: Path) -> "Corpus":
        model = WordVectors()
        store = MilvusChunkStore(uri=str(folder / "milvus.db"), embedding_model=MODEL, timeout=10)
        store.upsert(
            [
                chunk(one.file_path, number, vector=model.get_text_embedding(line), text=line)
                for one in documents
                for number, line in enumerate(one.body.splitlines())
            ]
        )
        index = Bm25Index(store)
        return cls(store, HybridRetriever(MilvusVectorRetriever(store, model), index), index)

    def collector(self) -> SampleCollector:
        return SampleCollector(self.retriever, self.bm25_index, max_l2_distance=2.0)


def document(file_path: str, lines: Sequence[str], *, domain: str = "general", summary: str = "") -> CorpusDocument:
    return CorpusDocument(file_path, domain, {"summary": summary}, "\n".join(lines) + "\n")


def words(*stems: str, number: int) -> str:
    """A clause of words that stand nowhere else."""
    return " ".join(f"{stem}{number:02}" for stem in stems)
