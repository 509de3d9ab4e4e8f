"""Passages in memory, for the tests of what searches by words."""

from collections.abc import Collection, Iterator, Sequence
from threading import Event

from knowledge_lookup.retrievers.errors import VectorStoreUnavailableError
from knowledge_lookup.retrievers.passage import Passage


class Documents:
    """Documents in memory, which remember how often they are read, and can fail or wait half-way."""

    def __init__(self, **documents: Sequence[str]) -> None:
        self.texts: dict[str, Sequence[str]] = {f"{name}.md": texts for name, texts in documents.items()}
        self.asked: list[set[str] | None] = []
        self.fails = False
        self.half_way: Event | None = None
        """Set once the first passage was given; reading then waits for ``go_on``."""
        self.go_on = Event()

    def passages(self, file_paths: Collection[str] | None = None) -> Iterator[Passage]:
        self.asked.append(None if file_paths is None else set(file_paths))
        for file_path, texts in list(self.texts.items()):
            if file_paths is not None and file_path not in file_paths:
                continue
            for number, text in enumerate(texts):
                yield Passage(f"{file_path}#{number}", file_path, text)
                if self.fails:
                    raise VectorStoreUnavailableError("Milvus doesn't answer")
                if self.half_way is not None:
                    self.half_way.set()
                    assert self.go_on.wait(10)
