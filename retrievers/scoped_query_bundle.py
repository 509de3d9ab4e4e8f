"""A query bundle that also says which documents may answer."""

from dataclasses import dataclass

from llama_index.core.schema import QueryBundle

from knowledge_lookup.retrievers.query_text import readable_query


@dataclass
class ScopedQueryBundle(QueryBundle):
    """A LlamaIndex ``QueryBundle`` with the scope of the search.

    ``KnowledgeRetriever`` and ``MilvusVectorRetriever`` honour it; other retrievers take it as the
    plain bundle that it also is. Of a query of more than 8,000 characters the beginning alone is taken.

    :param exclude_documents: File paths that must not be returned (what the session already has).
    :param exclude_passages_of: File paths of which no passage may be returned, though an exact match may (what the
        session has passages of); a retriever without exact match takes them as excluded.
    :param only_documents: File paths that alone may be returned; None is no restriction, empty means none.
    :param similarity_top_k: How many passages to return for this query; None takes the retriever's own number.
    :raises ValueError: If ``similarity_top_k`` is less than 1.
    """

    exclude_documents: frozenset[str] = frozenset()
    only_documents: frozenset[str] | None = None
    similarity_top_k: int | None = None
    exclude_passages_of: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.similarity_top_k is not None and self.similarity_top_k < 1:
            raise ValueError(f"similarity_top_k must be at least 1, got {self.similarity_top_k}")
        self.query_str = readable_query(self.query_str)

    @property
    def documents_without_passages(self) -> frozenset[str]:
        """The documents of which no passage may be returned."""
        return self.exclude_documents | self.exclude_passages_of

    @property
    def is_empty(self) -> bool:
        """Whether there's nothing to embed; a search by meaning then finds nothing."""
        return self.embedding is None and not any(text.strip() for text in self.embedding_strs)

    def scoped(
        self,
        *,
        exclude_documents: frozenset[str] = frozenset(),
        only_documents: frozenset[str] | None = None,
        similarity_top_k: int | None = None,
        exclude_passages_of: frozenset[str] = frozenset(),
    ) -> "ScopedQueryBundle":
        """Return the same query, its embedding included, with another scope.

        :param exclude_documents: See the class.
        :param only_documents: See the class.
        :param similarity_top_k: See the class.
        :param exclude_passages_of: See the class.
        :returns: A new bundle.
        """
        return ScopedQueryBundle(
            query_str=self.query_str,
            image_path=self.image_path,
            custom_embedding_strs=self.custom_embedding_strs,
            embedding=self.embedding,
            exclude_documents=exclude_documents,
            only_documents=only_documents,
            similarity_top_k=similarity_top_k,
            exclude_passages_of=exclude_passages_of,
        )

    @classmethod
    def of(cls, bundle: QueryBundle) -> "ScopedQueryBundle":
        """Take any bundle as a scoped one.

        :param bundle: A plain bundle, or a scoped one, which is returned as it is.
        :returns: A scoped bundle; unrestricted when the given one was plain.
        """
        if isinstance(bundle, cls):
            return bundle
        return cls(
            query_str=bundle.query_str,
            image_path=bundle.image_path,
            custom_embedding_strs=bundle.custom_embedding_strs,
            embedding=bundle.embedding,
        )
