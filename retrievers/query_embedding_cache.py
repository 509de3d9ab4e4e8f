"""The embeddings of the queries asked last: what an agent asks again is not embedded again."""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from knowledge_lookup.retrievers.fork_safety import hold_during_fork


class QueryEmbeddingCache:
    """Keeps embeddings by the texts that the model got, and forgets the one that wasn't used for longest.

    It is safe to use from many threads. What goes in and what comes out are copies.

    :param size: Most embeddings to keep, 0 or more; 0 keeps none.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"the size of the query cache must be 0 or more, got {size}")
        self._size = size
        self._lock = threading.Lock()
        hold_during_fork(self._lock)
        # Eight bytes a number, where a list has thirty-two.
        self._kept: OrderedDict[tuple[str, ...], array[float]] = OrderedDict()

    def get(self, texts: Sequence[str]) -> list[float] | None:
        """Look up an embedding.

        :param texts: What the model would get.
        :returns: The embedding; None if it isn't kept.
        """
        if self._size == 0:
            return None
        key = tuple(texts)
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
        return kept.tolist()

    def put(self, texts: Sequence[str], embedding: Sequence[float]) -> None:
        """Keep an embedding.

        :param texts: What the model got.
        :param embedding: What it gave.
        """
        if self._size == 0:
            return
        with self._lock:
            key = tuple(texts)
            self._kept[key] = array("d", embedding)
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
