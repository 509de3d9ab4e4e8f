"""L1 by meaning and by words: a dense and a sparse search, fused by rank."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.background import in_background
from knowledge_lookup.retrievers.bm25_index import Bm25Index
from knowledge_lookup.retrievers.milvus_rows import FetchedRow, Hit
from knowledge_lookup.retrievers.milvus_vector_retriever import MilvusVectorRetriever
from knowledge_lookup.retrievers.passage import passage_text
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
from knowledge_lookup.retrievers.search_terms import query_terms
from knowledge_lookup.retrievers.term_coverage import differs_in_script, term_coverage
from knowledge_lookup.retrievers.term_statistics import inverse_passage_frequencies
from knowledge_lookup.retrievers.tracing import SemanticSearchEvent, report, traced

_DEPTH = 20
"""Candidates of each search at least, however few are wanted: what only one of them ranks high must get in."""
_MEASURED = 10
"""So many of the first by words get in by that alone; each has to be fetched to be measured."""
_RANK_CONSTANT = 10
_COVERAGE_WEIGHT = 3.0


class HybridRetriever(BaseRetriever):
    """Retrieves passages by meaning and by words, and fuses the two rankings.

    Nodes come in fused order, best first. As with ``MilvusVectorRetriever`` their ``score`` is the **squared L2
    distance** (0 to 4, smaller is closer), marked as such: what was found by its words alone is measured as well, so
    that levels work for it. The order is therefore not that of the scores; put an ``EvidencePostprocessor`` behind the
    retriever to get probabilities in which the evidence of both searches is, higher is better::

        index = Bm25Index(chunk_store)
        retriever = HybridRetriever(MilvusVectorRetriever(chunk_store, embed_model), index)
        engine = RetrieverQueryEngine.from_args(
            retriever, node_postprocessors=[EvidencePostprocessor(statistics=index, profile=profile)]
        )

    The rankings are fused by weighted reciprocal ranks (G. Cormack, C. Clarke, S. Büttcher, "Reciprocal Rank Fusion",
    2009): ``1 / (10 + dense rank) + w / (10 + sparse rank)``. The weight w of the words grows with the share of the
    query that the best of their passages contains (``1 + 3 * coverage``): an identifier that is written there settles
    the matter, a question in other words doesn't. Where query and passages are in different scripts, the words count
    for ``3 * coverage ** 2``: a few Latin words say little about an English question on a Chinese text.

    :param vector_retriever: The search by meaning.
    :param bm25_index: The search by words, over the same collection.
    :param similarity_top_k: Most nodes to return, at least 1; None takes the vector retriever's number.
    :param callback_manager: LlamaIndex's callback manager; None makes an empty one.
    """

    def __init__(
        self,
        vector_retriever: MilvusVectorRetriever,
        bm25_index: Bm25Index,
        *,
        similarity_top_k: int | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if similarity_top_k is not None and similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {similarity_top_k}")
        self._vector_retriever = vector_retriever
        self._bm25_index = bm25_index
        self.similarity_top_k = vector_retriever.similarity_top_k if similarity_top_k is None else similarity_top_k
        super().__init__(callback_manager=callback_manager)

    def embed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query; see ``MilvusVectorRetriever.embed``.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        return self._vector_retriever.embed(query_bundle)

    async def aembed(self, query_bundle: QueryBundle) -> list[float]:
        """Embed a query without blocking the event loop.

        :param query_bundle: The query.
        :returns: A unit vector.
        :raises EmbeddingError: If the model gives no usable vector.
        """
        return await self._vector_retriever.aembed(query_bundle)

    @traced
    def search(self, bundle: ScopedQueryBundle, *, known: Collection[str] = ()) -> list[NodeWithScore]:
        """Retrieve without LlamaIndex's events and callbacks, for a retriever that has this one inside.

        :param bundle: The query; gets its embedding set.
        :param known: Ids of nodes that the caller has already.
        :returns: What :meth:`retrieve` gives, without the known ones.
        :raises EmbeddingError: If the model gives no usable vector.
        :raises VectorStoreError: If Milvus can't be used.
        """
        if bundle.is_empty:
            return []
        limit = self.similarity_top_k if bundle.similarity_top_k is None else bundle.similarity_top_k
        searched = bundle.scoped(
            exclude_documents=bundle.documents_without_passages,
            only_documents=bundle.only_documents,
            similarity_top_k=max(limit, _DEPTH),
        )
        terms = query_terms(bundle.query_str)
        embedding = self._vector_retriever.known_embedding(bundle)
        is_known = embedding is not None
        if embedding is None:
            # The words need no embedding, and the model leaves a processor free, or is elsewhere.
            ahead = in_background(lambda: self._by_words(terms, bundle), name="search-by-words")
            embedding = self._vector_retriever.embed(bundle)
            dense = self._vector_retriever.hits(searched, embedding)
            sparse_ids, rows = ahead.result()
        else:
            dense = self._vector_retriever.hits(searched, embedding)
            sparse_ids, rows = self._by_words(terms, bundle, without={hit.node_id for hit in dense})
        bundle.embedding = embedding
        report(lambda: SemanticSearchEvent.of(dense, hits_by_words=len(sparse_ids), embedding_known=is_known))
        near = {hit.node_id for hit in dense}
        measured = [rows[i].hit(embedding) for i in sparse_ids[:_MEASURED] if i in rows and i not in near]
        fused = self._fused(bundle.query_str, terms, dense, measured, sparse_ids)
        return [hit.to_node(ranks) for hit, ranks in fused[:limit] if hit.node_id not in known]

    @traced
    def _by_words(
        self, terms: Sequence[str], bundle: ScopedQueryBundle, *, without: Collection[str] = ()
    ) -> tuple[list[str], dict[str, FetchedRow]]:
        """Search by words, and read the first of what was found."""
        found = self._bm25_index.search(
            terms,
            limit=_DEPTH,
            exclude_documents=bundle.documents_without_passages,
            only_documents=bundle.only_documents,
        )
        ids = [node_id for node_id, _ in found]
        return ids, self._vector_retriever.fetch([i for i in ids[:_MEASURED] if i not in without])

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # A copy: the caller's bundle stays as it is.
        return self.search(replace(ScopedQueryBundle.of(query_bundle)))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _fused(
        self,
        query: str,
        terms: Sequence[str],
        dense: Sequence[Hit],
        measured: Sequence[Hit],
        sparse_ids: Sequence[str],
    ) -> list[tuple[Hit, dict[str, int]]]:
        candidates = {hit.node_id: hit for hit in [*dense, *measured]}
        dense_ranks = {hit.node_id: rank for rank, hit in enumerate(dense, start=1)}
        sparse_ranks = {
            node_id: rank for rank, node_id in enumerate((i for i in sparse_ids if i in candidates), start=1)
        }
        first = next(iter(sparse_ranks), None)
        weight = 0.0 if first is None else self._weight_of_words(query, terms, candidates[first])

        def fused(node_id: str) -> float:
            score = 0.0
            if node_id in dense_ranks:
                score += 1.0 / (_RANK_CONSTANT + dense_ranks[node_id])
            if node_id in sparse_ranks:
                score += weight / (_RANK_CONSTANT + sparse_ranks[node_id])
            return score

        return [
            (candidates[node_id], _said(dense_ranks.get(node_id), sparse_ranks.get(node_id)))
            for node_id in sorted(candidates, key=lambda node_id: -fused(node_id))
        ]

    def _weight_of_words(self, query: str, terms: Sequence[str], best: Hit) -> float:
        text = passage_text(best.to_node().node)
        coverage = term_coverage(text, inverse_passage_frequencies(terms, self._bm25_index))
        if differs_in_script(query, text):
            return _COVERAGE_WEIGHT * coverage**2
        return 1.0 + _COVERAGE_WEIGHT * coverage


def _said(dense_rank: int | None, sparse_rank: int | None) -> dict[str, int]:
    ranks = {keys.DENSE_RANK: dense_rank, keys.SPARSE_RANK: sparse_rank}
    return {key: rank for key, rank in ranks.items() if rank is not None}
