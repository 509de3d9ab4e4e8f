"""A chunk as the search by words reads it, and where such chunks come from."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from llama_index.core.schema import BaseNode, MetadataMode, TextNode

from knowledge_lookup.retrievers import metadata as keys

PASSAGE_FIELDS = (keys.TITLE, keys.SECTION)
"""The metadata that a passage's text begins with, as what is embedded does."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk's text with what identifies it.

    :param node_id: Id of the chunk's node.
    :param file_path: The document that it belongs to.
    :param text: Title, section path and text.
    """

    node_id: str
    file_path: str
    text: str


class PassageSource(Protocol):
    """Where the passages are; ``MilvusChunkStore`` is one."""

    def passages(self, file_paths: Collection[str] | None = None) -> Iterator[Passage]:
        """Read passages.

        :param file_paths: Only those of these documents; None for all.
        :returns: The passages in any order.
        """
        ...


def passage_text(node: BaseNode) -> str:
    """Give the text of a node as the search by words has it.

    :param node: A chunk of this package or of another application.
    :returns: Title and section path where the metadata has them, and the text.
    """
    parts = [str(node.metadata.get(field) or "") for field in PASSAGE_FIELDS]
    content = node.text if type(node) is TextNode else node.get_content(metadata_mode=MetadataMode.NONE)
    return "\n".join(filter(None, [*parts, content]))
