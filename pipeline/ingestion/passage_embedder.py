"""What turns the texts of chunks into vectors while documents are written."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.retrievers.unit_vector import embedding_errors

SLICE = 80
"""Chunks that are embedded in one call. Larger than a model's own batch, so that it is always full; small enough that
progress is seen and that several workers share a batch of documents."""


class PassageEmbedder(Protocol):
    """Embeds slices of texts, in this process or in others."""

    @property
    def slice_size(self) -> int:
        """Most texts of a slice."""
        ...

    def embed(self, slices: Iterable[list[str]]) -> Iterator[list[list[float]]]:
        """Embed slices.

        :param slices: Lists of texts; taken one by one as they are needed, a bounded number ahead of the vectors.
        :returns: The vectors of each slice, in order.
        :raises EmbeddingError: If the model fails.
        """
        ...


def embed_texts(embed_model: BaseEmbedding, texts: list[str], *, model_name: str) -> list[list[float]]:
    """Embed texts, and see that each got a vector.

    :param embed_model: The model.
    :param texts: The texts.
    :param model_name: Named in errors.
    :returns: The vectors, in order.
    :raises EmbeddingError: If the model fails.
    """
    with embedding_errors(model_name):
        vectors = embed_model.get_text_embedding_batch(texts)
        if len(vectors) != len(texts):
            raise ValueError(f"it returned {len(vectors)} vectors for {len(texts)} texts")
    return vectors


class LocalEmbedder:
    """Embeds in this process, each slice when its vectors are asked for.

    :param embed_model: Gives the model; called when the first text has to be embedded.
    :param model_name: Named in errors.
    """

    def __init__(self, embed_model: Callable[[], BaseEmbedding], *, model_name: str) -> None:
        self._embed_model = embed_model
        self._model_name = model_name

    @property
    def slice_size(self) -> int:
        """Most texts of a slice: whole batches of the model."""
        batch = self._embed_model().embed_batch_size
        return -(-SLICE // batch) * batch

    def embed(self, slices: Iterable[list[str]]) -> Iterator[list[list[float]]]:
        """Embed slices; see :class:`PassageEmbedder`.

        :param slices: Lists of texts.
        :returns: The vectors of each slice, in order.
        :raises EmbeddingError: If the model fails.
        """
        for texts in slices:
            yield embed_texts(self._embed_model(), texts, model_name=self._model_name)
