"""Nodes as the retrievers give them, for the tests of what comes behind."""

from collections.abc import Mapping

from llama_index.core.schema import NodeWithScore, TextNode

from knowledge_lookup.retrievers import metadata as keys


def exact(path: str, *, score: float | None = 0.0, decisive: bool | None = None) -> NodeWithScore:
    """A keyword match."""
    marks: dict[str, object] = {keys.MATCH_TYPE: keys.EXACT_L0}
    if decisive is not None:
        marks[keys.DECISIVE] = decisive
    node = TextNode(id_=f"exact {path}", text=path, metadata={keys.FILE_PATH: path})
    return keys.annotate(NodeWithScore(node=node), score=score, annotations=marks)


def passage(path: str, distance: float | None, *, marked: bool = True) -> NodeWithScore:
    """A passage with its squared L2 distance."""
    node = TextNode(id_=f"{path} {distance}", text=path, metadata={keys.FILE_PATH: path})
    marks = {keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE} if marked else {}
    return keys.annotate(NodeWithScore(node=node), score=distance, annotations=marks)


def distance_of(similarity: float) -> float:
    """The squared L2 distance that normalizes to a similarity."""
    return 2.0 * (1.0 - similarity)


class Counted:
    """A corpus that is known by its counts only."""

    def __init__(self, total: int, frequencies: Mapping[str, int]) -> None:
        self._total = total
        self._frequencies = frequencies

    def passage_count(self) -> int:
        return self._total

    def passage_frequency(self, term: str) -> int:
        return self._frequencies.get(term, 0)
