"""L0, then L1 only where L0 isn't decisive: the retriever behind the look-up."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation.events.retrieval import RetrievalStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.errors import (
    EmbeddingError,
    EmbeddingUnavailableError,
    VectorStoreError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers.hybrid_retriever import HybridRetriever
from knowledge_lookup.retrievers.keyword_match import KeywordMatch, KeywordMatches
from knowledge_lookup.retrievers.keyword_retriever import KeywordRetriever
from knowledge_lookup.retrievers.milvus_vector_retriever import MilvusVectorRetriever
from knowledge_lookup.retrievers.retrieval_attempt import RetrievalAttempt
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle
from knowledge_lookup.retrievers.time_spent import shared_time
from knowledge_lookup.retrievers.tracing import report, report_retrieval, traced

logger = logging.getLogger(__name__)

_L1_FAILURES = (VectorStoreError, EmbeddingError)


@dataclass(frozen=True, slots=True)
class KnowledgeRetrieval:
    """What a retrieval found, and how.

    :param nodes: Keyword matches best first, then passages best first.
    :param matches: Outcome of the keyword match over all documents, before any scope was applied.
    :param withheld: Documents that would have been part of the result if they hadn't been excluded, in order of
        rank.
    :param other_matches: Matching documents in scope that ``nodes`` doesn't have as a keyword match, by rank; of very
        many the first hundred.
    :param top_distance: Squared L2 distance of the nearest passage in scope, before anything was dropped; None
        if semantic search didn't run or found nothing.
    :param l0_ms: Milliseconds of the keyword match.
    :param l1_ms: Milliseconds of embedding and vector search; None if they didn't run.
    :param embedding: The query's vector; None if semantic search didn't run.
    :param withheld_passages: Passages of the withheld documents, with the scores that they would have had.
    :param l1_error: Why semantic search was needed and gave nothing: everything else is what L0 has alone. None if it
        wasn't needed, or went well.
    """

    nodes: list[NodeWithScore]
    matches: KeywordMatches
    withheld: tuple[str, ...]
    other_matches: tuple[KeywordMatch, ...]
    top_distance: float | None
    l0_ms: float
    l1_ms: float | None
    embedding: list[float] | None = None
    withheld_passages: tuple[NodeWithScore, ...] = ()
    l1_error: VectorStoreError | EmbeddingError | None = None

    @property
    def is_outage(self) -> bool:
        """Whether semantic search failed for a reason that may pass, rather than for one that has to be mended."""
        return isinstance(self.l1_error, VectorStoreUnavailableError | EmbeddingUnavailableError)

    def require_semantic_search(self) -> None:
        """Refuse a result that lacks what semantic search would have given.

        :raises KnowledgeLookupError: The error that semantic search failed with, if it was needed and failed.
        """
        if self.l1_error is not None:
            raise self.l1_error


class KnowledgeRetriever(BaseRetriever):
    """Exact match first; semantic search when that doesn't settle the query.

    When the keyword match is decisive, its one document is the result and neither the embedding model nor
    Milvus is called. Otherwise the result is the matching documents, then the nearest passages: at most
    ``similarity_top_k`` of other documents than the best match, those of further matching documents first in
    line, and the best one of the best match's own document.

    Of each further match that covers a part of the query that the best match doesn't, one passage is kept however far
    it is: a question that compares two error codes needs both.

    Scores are those of the postprocessors: with a ``RelevancePostprocessor`` similarities between 0 and 1,
    higher is better, 1.0 for a decisive match; without one the raw squared L2 distances of Milvus.

    Where semantic search fails, be it Milvus or the embedding model, the result is what the keyword match has, and the
    failure is logged as a warning; with no keyword match it is raised, since an empty result would claim that there is
    nothing. All of a query's questions to a Milvus server take no longer together than the store's ``timeout``.

    A ``ScopedQueryBundle`` restricts a query to some documents or leaves some out; whether the keyword match is
    decisive is judged before that.

    ::

        retriever = KnowledgeRetriever(keyword_retriever, vector_retriever,
                                       node_postprocessors=[RelevancePostprocessor()])
        engine = RetrieverQueryEngine.from_args(retriever, llm=llm)

    :param keyword_retriever: L0.
    :param vector_retriever: L1, by meaning alone or by words as well; its ``similarity_top_k`` is the number of
        passages.
    :param node_postprocessors: LlamaIndex postprocessors, run in this order over the candidates.
    :param callback_manager: LlamaIndex's callback manager; None makes an empty one.
    """

    def __init__(
        self,
        keyword_retriever: KeywordRetriever,
        vector_retriever: MilvusVectorRetriever | HybridRetriever,
        *,
        node_postprocessors: Sequence[BaseNodePostprocessor] = (),
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._keyword_retriever = keyword_retriever
        self._vector_retriever = vector_retriever
        self._node_postprocessors = tuple(node_postprocessors)
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes_of(self.retrieve_with_evidence(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes_of(await self.aretrieve_with_evidence(query_bundle))

    @traced
    def retrieve_with_evidence(self, query_bundle: QueryBundle) -> KnowledgeRetrieval:
        """Retrieve, and tell how the result came about.

        :param query_bundle: The query; a ``ScopedQueryBundle`` restricts it.
        :returns: Nodes and evidence; if semantic search is needed and fails, those of the keyword match alone, with the
            error as ``l1_error``.
        """
        return self._retrieved(query_bundle)

    @traced
    async def aretrieve_with_evidence(self, query_bundle: QueryBundle) -> KnowledgeRetrieval:
        """Retrieve without blocking the event loop; see :meth:`retrieve_with_evidence`.

        :param query_bundle: The query; a ``ScopedQueryBundle`` restricts it.
        :returns: Nodes and evidence; if semantic search is needed and fails, those of the keyword match alone, with the
            error as ``l1_error``.
        """
        # Reading documents, embedding, Milvus and judging take long, and all of them run in threads: one hop does.
        if not any(map(_is_asynchronous, self._node_postprocessors)):
            return await asyncio.to_thread(self._retrieved, query_bundle)
        attempt = await asyncio.to_thread(self._searched, query_bundle)
        try:
            return await self._apostprocessed(attempt)
        except _L1_FAILURES as error:
            return await self._apostprocessed(attempt.without_search(error))

    def _retrieved(self, query_bundle: QueryBundle) -> KnowledgeRetrieval:
        attempt = self._searched(query_bundle)
        try:
            return self._postprocessed(attempt)
        except _L1_FAILURES as error:  # the statistics of the words come from Milvus, too
            return self._postprocessed(attempt.without_search(error))

    def _postprocessed(self, attempt: RetrievalAttempt) -> KnowledgeRetrieval:
        nodes, withheld = self._candidates(attempt)
        for postprocessor in self._node_postprocessors:
            nodes = postprocessor.postprocess_nodes(nodes, attempt.bundle)
            withheld = postprocessor.postprocess_nodes(withheld, attempt.bundle) if withheld else withheld
        return self._finish(attempt, nodes, withheld)

    async def _apostprocessed(self, attempt: RetrievalAttempt) -> KnowledgeRetrieval:
        nodes, withheld = await asyncio.to_thread(self._candidates, attempt)
        for postprocessor in self._node_postprocessors:
            nodes = await postprocessor.apostprocess_nodes(nodes, attempt.bundle)
            withheld = await postprocessor.apostprocess_nodes(withheld, attempt.bundle) if withheld else withheld
        return self._finish(attempt, nodes, withheld)

    def _searched(self, query_bundle: QueryBundle) -> RetrievalAttempt:
        attempt = self._begin(query_bundle)
        if attempt.needs_semantic_search:
            started = time.perf_counter()
            try:
                with shared_time():
                    self._search(attempt)
            except _L1_FAILURES as error:
                attempt = attempt.without_search(error)
            attempt.l1_ms = _ms_since(started)
        return attempt

    def _search(self, attempt: RetrievalAttempt) -> None:
        for name, bundle in attempt.searches():
            attempt.add(name, self._vector_retriever.search(bundle, known=attempt.known_ids))
            # The first search embeds the query for all of them.
            attempt.bundle.embedding = bundle.embedding

    def _begin(self, query_bundle: QueryBundle) -> RetrievalAttempt:
        report(lambda: RetrievalStartEvent(str_or_query_bundle=query_bundle.query_str))
        started = time.perf_counter()
        bundle = ScopedQueryBundle.of(query_bundle)
        matches = self._keyword_retriever.match(bundle.query_str)
        # The embedding is set on a bundle of our own: the caller's stays as it is.
        own = bundle.scoped(
            exclude_documents=bundle.exclude_documents,
            only_documents=bundle.only_documents,
            similarity_top_k=bundle.similarity_top_k,
            exclude_passages_of=bundle.exclude_passages_of,
        )
        top_k = self._vector_retriever.similarity_top_k if own.similarity_top_k is None else own.similarity_top_k
        return RetrievalAttempt(
            bundle=own,
            matches=matches,
            top_k=top_k,
            most_exact=self._keyword_retriever.similarity_top_k,
            l0_ms=_ms_since(started),
        )

    def _candidates(self, attempt: RetrievalAttempt) -> tuple[list[NodeWithScore], list[NodeWithScore]]:
        distances = attempt.distances() if attempt.needs_semantic_search else None
        attempt.top_distance = min((distances or {}).values(), default=None)
        ranked = attempt.ranked_matches(distances or {})
        attempt.exact = tuple(ranked[: attempt.most_exact])
        attempt.others = tuple(ranked[attempt.most_exact :])
        nodes = self._keyword_retriever.to_nodes(attempt.matches, attempt.exact, distances=distances)
        passages, withheld = attempt.marked_passages(), attempt.withheld_passages()
        # What is withheld is judged in the company of the rest: how much better one is may be what it's judged by.
        return [*nodes, *passages], [*withheld, *passages] if withheld else []

    @staticmethod
    def _finish(
        attempt: RetrievalAttempt, nodes: list[NodeWithScore], withheld: list[NodeWithScore]
    ) -> KnowledgeRetrieval:
        held = attempt.held_documents() if withheld else frozenset()
        selected = _select(nodes, attempt.top_k, attempt.bundle.exclude_passages_of)
        report_retrieval(attempt.bundle.query_str, selected)
        return KnowledgeRetrieval(
            nodes=selected,
            matches=attempt.matches,
            withheld=attempt.withheld_documents(withheld),
            other_matches=attempt.others,
            top_distance=attempt.top_distance,
            l0_ms=attempt.l0_ms,
            l1_ms=attempt.l1_ms,
            embedding=attempt.bundle.embedding,
            withheld_passages=tuple(s for s in withheld if keys.document_of(s) in held),
            l1_error=attempt.l1_error,
        )


def _nodes_of(retrieval: KnowledgeRetrieval) -> list[NodeWithScore]:
    if not retrieval.nodes:
        retrieval.require_semantic_search()
    elif retrieval.l1_error is not None:
        logger.warning("semantic search failed, the result is by exact match alone: %s", retrieval.l1_error)
    return retrieval.nodes


def _select(nodes: list[NodeWithScore], top_k: int, without: frozenset[str]) -> list[NodeWithScore]:
    """Keep all keyword matches and the passages that the class promises, in the order that they have.

    Of the documents in ``without`` a passage is kept only where it speaks for the level of the best match.
    """
    matched = [keys.document_of(scored) for scored in nodes if keys.is_exact(scored)]
    primary = matched[0] if matched else None
    passages = [scored for scored in nodes if not keys.is_exact(scored)]
    own = [scored for scored in passages if primary is not None and keys.document_of(scored) == primary][:1]
    passages = [scored for scored in passages if keys.document_of(scored) not in without]
    first_of_matched = list(
        {keys.document_of(s): s for s in reversed(passages) if keys.document_of(s) in matched[1:]}.values()
    )[::-1]
    more_of_matched = [scored for scored in passages if keys.document_of(scored) in matched[1:]]
    others = [scored for scored in passages if keys.document_of(scored) != primary]
    in_line = {s.node.node_id: s for s in [*first_of_matched, *more_of_matched, *others]}
    kept = {*list(in_line)[:top_k], *(scored.node.node_id for scored in own)}
    return [scored for scored in nodes if keys.is_exact(scored) or scored.node.node_id in kept]


def _is_asynchronous(postprocessor: BaseNodePostprocessor) -> bool:
    """Tell whether a postprocessor has an asynchronous way of its own; LlamaIndex runs the others in a thread."""
    return type(postprocessor)._apostprocess_nodes is not BaseNodePostprocessor._apostprocess_nodes


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
