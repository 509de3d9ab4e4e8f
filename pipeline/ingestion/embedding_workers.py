"""Embedding in several processes, for models that compute on the CPU.

Processes and not threads: a model that runs in Python, as those of sentence-transformers do in part, holds the
interpreter's lock, and a model's own threads get in each other's way. Each worker builds the model of the settings and
gives it an equal share of the cores. Only texts and vectors pass between the processes; everything is read and written
by the one that syncs.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from types import TracebackType
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.pipeline.ingestion.passage_embedder import SLICE, embed_texts
from knowledge_lookup.pipeline.settings import EmbeddingSettings
from knowledge_lookup.retrievers.errors import EmbeddingError, KnowledgeLookupError

_SLICES_AHEAD = 2
"""Slices for each worker that are on their way: one that it works on, one that waits for it."""


class EmbeddingWorkers:
    """Worker processes; a context manager that ends them.

    :param settings: The model that each worker builds.
    :param model_name: Named in errors.
    :param count: Number of processes, at least 1.
    """

    def __init__(self, settings: EmbeddingSettings, *, model_name: str, count: int) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        self._settings = settings
        self._model_name = model_name
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def slice_size(self) -> int:
        """Most texts of a slice."""
        return SLICE

    def embed(self, slices: Iterable[list[str]]) -> Iterator[list[list[float]]]:
        """Embed slices; see :class:`~knowledge_lookup.pipeline.ingestion.passage_embedder.PassageEmbedder`.

        :param slices: Lists of texts; at most two for each worker are taken ahead.
        :returns: The vectors of each slice, in order.
        :raises EmbeddingError: If the model can't be built or fails, or a worker dies.
        """
        waiting: deque[Future[list[list[float]]]] = deque()
        try:
            for texts in slices:
                waiting.append(self._submit(texts))
                if len(waiting) == _SLICES_AHEAD * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise EmbeddingError(
                f"a worker that embeds with '{self._model_name}' died: it was killed, there was too little memory (try "
                'fewer workers), or a script calls sync(workers=...) outside of `if __name__ == "__main__":`'
            ) from error

    def _submit(self, texts: list[str]) -> "Future[list[list[float]]]":
        if self._pool is None:
            # Spawned: a fork would inherit the connections and locks of this process's threads.
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_follow_parent,
            )
        threads = max(1, (os.cpu_count() or 1) // self._count)
        return self._pool.submit(_embed, texts, self._settings, self._model_name, threads)


def _follow_parent() -> None:
    """Leave Ctrl-C to the process that syncs, and end when it is gone: its queue would stay open without it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.join,), name="parent-watch", daemon=True).start()


def _end_after(wait: Callable[[], None]) -> None:
    wait()
    os._exit(1)


def _embed(texts: list[str], settings: EmbeddingSettings, model_name: str, threads: int) -> list[list[float]]:
    try:
        return embed_texts(_model_of_worker(settings, threads), texts, model_name=model_name)
    except KnowledgeLookupError as error:
        # Only an error that can be built from its message alone gets through to the other process.
        raise EmbeddingError(str(error)) from None


@cache
def _model_of_worker(settings: EmbeddingSettings, threads: int) -> BaseEmbedding:
    from knowledge_lookup.pipeline.models.embedding_models import build_embed_model

    return build_embed_model(settings, threads=threads)
