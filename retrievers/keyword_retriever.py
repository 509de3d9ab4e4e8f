"""L0: exact keyword match as a LlamaIndex retriever."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError, DocumentReader
from knowledge_lookup.retrievers.excerpt import Excerpt, excerpt
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordMatch, KeywordMatches
from knowledge_lookup.retrievers.tracing import KeywordMatchEvent, report, traced

logger = logging.getLogger(__name__)

DEFAULT_TOP_K = 6
_CACHED_EXCERPTS = 256


class KeywordRetriever(BaseRetriever):
    """Retrieves the documents whose keywords or title occur in the query, without any model.

    Nodes come best first: equality with the title, then the longest matched term, then the path. A node's text
    is the part of the document that holds the matched terms, at most 2,000 characters. Its ``score`` is 1.0 when
    the match is decisive (exactly one document, and nothing of the query is left unaccounted for), otherwise the
    share of the query's characters that the document's terms cover.

    ::

        index = KeywordIndex()
        index.add(KeywordEntry("api/errors.md", title="Errors", domain="api", keywords=("ERR_TIMEOUT",)))
        nodes = KeywordRetriever(index, reader).retrieve("ERR_TIMEOUT")

    :param index: The keyword index; documents added to it later are found at once.
    :param reader: Gives the text of a document.
    :param similarity_top_k: Most documents to return, at least 1; the metadata key ``kl_match_count`` still
        counts all.
    :param callback_manager: LlamaIndex's callback manager; None makes an empty one.
    """

    def __init__(
        self,
        index: KeywordIndex,
        reader: DocumentReader,
        *,
        similarity_top_k: int = DEFAULT_TOP_K,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {similarity_top_k}")
        self._index = index
        self._reader = reader
        # The same few terms are asked for again and again, and cutting is most of the work of an exact hit.
        self._excerpt = lru_cache(maxsize=_CACHED_EXCERPTS)(excerpt)
        self.similarity_top_k = similarity_top_k
        super().__init__(callback_manager=callback_manager)

    @traced
    def match(self, query: str) -> KeywordMatches:
        """Match a query against the index without reading any document.

        :param query: The query as the user or the agent wrote it.
        :returns: All matching documents and whether they settle the query.
        """
        matches = self._index.match(query)
        report(lambda: KeywordMatchEvent.of(matches))
        return matches

    @traced
    def to_nodes(
        self,
        matches: KeywordMatches,
        selected: Sequence[KeywordMatch],
        *,
        distances: Mapping[str, float] | None = None,
    ) -> list[NodeWithScore]:
        """Read matched documents and make nodes of them.

        A document that is gone by now is left out with a warning.

        :param matches: The outcome of :meth:`match`.
        :param selected: The documents to read, best first.
        :param distances: Squared L2 distance of each document's best passage, by file path, where semantic
            search ran; it becomes the score of a match that isn't decisive, and a document without one gets
            similarity 0.0. None scores such a match by the covered share of the query.
        :returns: One node a document, in the given order.
        """
        nodes: list[NodeWithScore] = []
        for match in selected:
            try:
                body = self._reader.read_body(match.entry.file_path)
            except DocumentNotFoundError as error:
                logger.warning("%s; it matched the query by keyword and is left out of the result", error)
                continue
            nodes.append(_exact_node(matches, match, self._excerpt(body, match.terms), distances))
        return nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        matches = self.match(query_bundle.query_str)
        return self.to_nodes(matches, matches.matches[: self.similarity_top_k])

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # The match takes microseconds, but the documents may lie on a slow disk.
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _exact_node(
    matches: KeywordMatches, match: KeywordMatch, part: Excerpt, distances: Mapping[str, float] | None
) -> NodeWithScore:
    entry = match.entry
    kind = keys.SIMILARITY
    if matches.decisive:
        score = 1.0
    elif distances is None:
        score = _covered_share(matches.query, match)
    elif entry.file_path in distances:
        score, kind = distances[entry.file_path], keys.L2_DISTANCE
    else:
        score = 0.0
    node = TextNode(
        id_=hashlib.sha256(f"exact\0{entry.file_path}".encode()).hexdigest()[:32],
        text=part.text,
        metadata={keys.FILE_PATH: entry.file_path, keys.TITLE: entry.title, keys.DOMAIN: entry.domain},
        excluded_llm_metadata_keys=[keys.DOMAIN],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=entry.file_path)},
    )
    return keys.annotate(
        NodeWithScore(node=node),
        score=score,
        annotations={
            keys.MATCH_TYPE: keys.EXACT_L0,
            keys.MATCH_COUNT: matches.match_count,
            keys.DECISIVE: matches.decisive,
            keys.MATCHED_TERMS: list(match.terms),
            keys.SCORE_KIND: kind,
            keys.TEXT_SPANS: [tuple(span) for span in part.spans],
        },
    )


def _covered_share(query: str, match: KeywordMatch) -> float:
    covered = {position for start, end in match.spans for position in range(start, end)}
    return len(covered) / len(query) if query else 0.0
