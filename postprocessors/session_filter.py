"""The postprocessor that takes out what a session already has."""

from typing import Protocol, runtime_checkable

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from knowledge_lookup.retrievers import metadata as keys


@runtime_checkable
class RetrievedDocuments(Protocol):
    """What the filter needs of an action memory; ``RetrievedDocTracker`` has it."""

    def is_doc_retrieved(self, session_id: str, file_path: str) -> bool:
        """Tell whether the session has been given the document."""
        ...


class SessionFilterPostprocessor(BaseNodePostprocessor):
    """Drops the nodes of documents that the session has already been given.

    The filter only reads the memory: whoever delivers the nodes marks them. Put it behind a retriever that
    over-fetches, since filtering three hits afterwards hides the fourth; ``KnowledgeRetriever`` leaves the
    documents out in the search itself. Nodes without the metadata key ``file_path`` pass.

    :param memory: The action memory.
    :param session_id: The session; None lets everything pass.
    """

    memory: RetrievedDocuments = Field(exclude=True)
    session_id: str | None = Field(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex serializes."""
        return "SessionFilterPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if self.session_id is None:
            return nodes
        return [scored for scored in nodes if not self._is_retrieved(self.session_id, scored)]

    def _is_retrieved(self, session_id: str, scored: NodeWithScore) -> bool:
        file_path = scored.node.metadata.get(keys.FILE_PATH)
        return isinstance(file_path, str) and self.memory.is_doc_retrieved(session_id, file_path)
