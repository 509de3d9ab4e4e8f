"""From a document to the chunks that are embedded."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.markdown_sections import Section, split_sections

if TYPE_CHECKING:
    from llama_index.core.node_parser import SentenceSplitter

CHUNK_TOKENS = 300
"""Most tokens of a chunk's own text; title and section path come on top and fit the model's 512 as well."""
_MOST_CHARACTERS_OF_A_TOKEN = 16
"""More characters count as another token: a chunk has 4,800 at most."""
_MOST_TITLE_CHARACTERS = 120
_MOST_SECTION_CHARACTERS = 200


class MarkdownChunker:
    """Cuts a document at its headings, and a section that is too long at its sentences.

    A chunk never reaches over a heading and chunks don't overlap. Title and section path are metadata that take
    part in the embedding. Node ids depend on the document's path and the chunk's position only, so that a new
    version of a document overwrites the old one chunk by chunk.

    :param count_tokens: How the embedding model counts.
    :param max_tokens: Most tokens of a chunk's text.
    """

    def __init__(self, count_tokens: Callable[[str], int], *, max_tokens: int = CHUNK_TOKENS) -> None:
        self._count_tokens = count_tokens
        self._max_tokens = max_tokens

    def chunk(self, document: SourceDocument, *, embedding_model: str) -> list[TextNode]:
        """Cut a document.

        :param document: The document.
        :param embedding_model: Name of the model that will embed the chunks; kept with each of them.
        :returns: The chunks in order, without embeddings; none for a document without text.
        """
        nodes: list[TextNode] = []
        for section in split_sections(document.body):
            text = document.body[section.text_start : section.end].strip()
            for piece in self._pieces(text):
                nodes.append(_node(document, section, piece, index=len(nodes), embedding_model=embedding_model))
        return nodes

    def _pieces(self, text: str) -> list[str]:
        if not text:
            return []
        if self._size(text) <= self._max_tokens:
            return [text]
        most = self._max_tokens * _MOST_CHARACTERS_OF_A_TOKEN
        # The splitter adds up the tokens of single characters, which may be none.
        pieces = (
            whole[start : start + most]
            for whole in self._splitter.split_text(text)
            for start in range(0, len(whole), most)
        )
        return [piece for piece in pieces if piece.strip()]

    @cached_property
    def _splitter(self) -> "SentenceSplitter":
        # Building the first one costs about two seconds: short documents do without.
        from llama_index.core.node_parser import SentenceSplitter

        return SentenceSplitter(
            chunk_size=self._max_tokens,
            chunk_overlap=0,
            tokenizer=lambda text: range(self._size(text)),  # the splitter only takes the length
        )

    def _size(self, text: str) -> int:
        # A model reads a megabyte of white space as one token; no row of a Milvus server holds it.
        return max(self._count_tokens(text), len(text) // _MOST_CHARACTERS_OF_A_TOKEN)


def chunk_id(file_path: str, index: int) -> str:
    """Make the node id of a chunk.

    :param file_path: Path of the document.
    :param index: Position of the chunk in it, from 0.
    :returns: 32 hexadecimal digits, always the same for the same chunk.
    """
    return hashlib.sha256(f"{file_path}\0{index}".encode()).hexdigest()[:32]


def _node(document: SourceDocument, section: Section, text: str, *, index: int, embedding_model: str) -> TextNode:
    hidden = [keys.DOMAIN, keys.CHUNK_INDEX, keys.EMBEDDING_MODEL]
    return TextNode(
        id_=chunk_id(document.file_path, index),
        text=text,
        metadata={
            keys.FILE_PATH: document.file_path,
            keys.TITLE: document.title[:_MOST_TITLE_CHARACTERS],
            keys.SECTION: _section_path(section, document.title),
            keys.DOMAIN: document.domain,
            keys.CHUNK_INDEX: index,
            keys.EMBEDDING_MODEL: embedding_model,
        },
        excluded_embed_metadata_keys=[keys.FILE_PATH, *hidden],
        excluded_llm_metadata_keys=hidden,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document.file_path)},
    )


def _section_path(section: Section, title: str) -> str:
    # The first heading usually repeats the title, which takes part in the embedding already.
    path = section.path[1:] if section.path[:1] == (title,) else section.path
    return keys.SECTION_SEPARATOR.join(path)[-_MOST_SECTION_CHARACTERS:]
