"""An embedding model whose similarities can be worked out by hand, and settings that go with it."""

import threading
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from knowledge_lookup.pipeline import Settings

TOPICS = "甲乙丙丁戊己"


class TopicEmbedding(BaseEmbedding):
    """Each topic that a text names (话题甲, 话题乙, ...) is one direction; a text goes into all of its own alike.

    Of a passage and a query with one topic each the similarity is 1 or 0; of one topic and two of which it is one,
    0.71. A text without a topic is similar to nothing that is asked.
    """

    asked: int = 0
    """Queries that were embedded."""
    is_broken: bool = False
    """Whether a query can't be embedded."""
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self) -> None:
        super().__init__(model_name="topics")

    def _get_query_embedding(self, query: str) -> list[float]:
        with self._lock:
            self.asked += 1
        if self.is_broken:
            raise RuntimeError("the model is away")
        return _vector(query, without_topic=len(TOPICS))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return _vector(text, without_topic=len(TOPICS) + 1)


def topic_settings(base_path: Path, data_dir: Path, *, top_k: int = 3, locale: str = "zh", **session: Any) -> Settings:
    """Give settings under which a similarity of 0.4 is a reference and one of 0.9 highly relevant.

    The model is asked at each retrieval, so that what it was asked tells whether there was one.

    :param base_path: The documents.
    :param data_dir: The data folder.
    :param top_k: Passages of a look-up.
    :param locale: The language of messages.
    :param session: Settings of the action memory.
    :returns: The settings.
    """
    normalization = {"max_l2_distance": 2.0, "highly_relevant_threshold": 0.9, "reference_threshold": 0.4}
    return Settings(
        knowledge={"base_path": base_path},
        data_dir=data_dir,
        retrieval={"normalization": normalization, "vector": {"top_k": top_k}},
        embedding={"query_cache_size": 0},
        session=session,
        locale=locale,
    )


def _vector(text: str, *, without_topic: int) -> list[float]:
    directions = [at for at, topic in enumerate(TOPICS) if f"话题{topic}" in text] or [without_topic]
    return [float(at in directions) / len(directions) ** 0.5 for at in range(len(TOPICS) + 2)]
