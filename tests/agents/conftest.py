"""A small knowledge base for the tests of the action memory, indexed once."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.manuals import DOCUMENTS
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import write_documents


@pytest.fixture(scope="session")
def indexed_manuals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the documents and their index; copy it, don't open it."""
    folder = tmp_path_factory.mktemp("manuals")
    write_documents(folder / "docs", DOCUMENTS)
    settings = topic_settings(folder / "docs", folder / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding()) as pipeline:
        pipeline.sync()
    return folder


@pytest.fixture
def manuals(indexed_manuals: Path, tmp_path: Path) -> Path:
    """Give a private copy of that folder: ``docs`` and ``data``."""
    return Path(copytree(indexed_manuals, tmp_path / "manuals"))


@pytest.fixture
def model() -> TopicEmbedding:
    """Give the embedding model of the pipeline."""
    return TopicEmbedding()


@pytest.fixture
def pipeline(manuals: Path, model: TopicEmbedding) -> Iterator[KnowledgePipeline]:
    """Give a pipeline over the documents, without limits."""
    settings = topic_settings(manuals / "docs", manuals / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        yield pipeline
