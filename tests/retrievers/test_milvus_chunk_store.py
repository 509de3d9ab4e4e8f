"""The chunk store, by one contract on Milvus Lite and on a server, and what is special to each."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.vector_stores.milvus import MilvusVectorStore
from pymilvus import DataType, MilvusClient

from knowledge_lookup.retrievers import (
    EmbeddingModelMismatchError,
    MilvusChunkStore,
    VectorStoreError,
    VectorStoreUnavailableError,
)
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.milvus_requests import request_batches
from tests.retrievers.broken_connections import black_hole, pipe_to, within
from tests.retrievers.chunks import ACROSS, AHEAD, ASIDE, BEHIND, MODEL, chunk, paths_of, vector_at

SERVER = pytest.param("server", marks=pytest.mark.milvus_server)
STACKS = ["lite", SERVER]
SERVER_ONLY = pytest.mark.parametrize("uri", [SERVER], indirect=True)
REBUILD = r"knowledge-lookup sync --rebuild"

HOSTILE_PATHS = [
    "plain.md",
    'a"b.md',
    "a'b.md",
    "a\\b.md",
    'a\\"b.md',
    "ends with a backslash\\",
    "line\nbreak\r\tand tab.md",
    'x" or 1==1 or doc_id == "',
    "x' or 1==1 --",
    '"] or doc_id in ["plain.md',
    "{curly} %like% _wild_ [list].md",
    "支付/网关超时（一）.md",
    "emoji/🚀💥.md",
    "long/" + "长" * 990 + ".md",
]


class Place:
    """A Milvus, and the collections that a test makes there."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.stores: list[MilvusChunkStore] = []

    def name(self) -> str:
        return f"c{uuid4().hex}"

    def store(self, name: str, **options: Any) -> MilvusChunkStore:
        """Open a store with enough time for a busy machine; dropped and closed at the end."""
        given: dict[str, Any] = {"uri": self.uri, "embedding_model": MODEL, "timeout": 10.0, **options}
        store = MilvusChunkStore(collection_name=name, **given)
        self.stores.append(store)
        return store

    def clear(self) -> None:
        for store in self.stores:
            store.drop()
        for store in self.stores:
            store.close()
        self.stores.clear()


@pytest.fixture(scope="module", params=STACKS)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "lite":
        return str(tmp_path_factory.mktemp("chunks") / "milvus.db")
    server_uri: str = request.getfixturevalue("milvus_server_uri")
    return server_uri


@pytest.fixture
def place(uri: str) -> Iterator[Place]:
    place = Place(uri)
    yield place
    place.clear()


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Place]:
    place = Place(str(tmp_path / "data" / "milvus.db"))
    yield place
    for store in place.stores:
        store.close()


@pytest.fixture(scope="module")
def filled_name(uri: str) -> str:
    return Place(uri).name()


@pytest.fixture(scope="module")
def filled(uri: str, filled_name: str) -> Iterator[MilvusChunkStore]:
    """Give a store that isn't empty: making a collection on a server takes three seconds, so most tests share one."""
    place = Place(uri)
    store = place.store(filled_name)
    store.upsert([chunk("filled.md", vector=(0.0, 0.0, 0.0, 1.0))])
    yield store
    place.clear()


@pytest.fixture
def write(filled: MilvusChunkStore) -> Iterator[Callable[..., None]]:
    """Give a function that writes chunks into the shared store, from which they are gone after the test."""
    written: set[str] = set()

    def write(*nodes: TextNode) -> None:
        filled.upsert(nodes)
        written.update(node.metadata[keys.FILE_PATH] for node in nodes)

    yield write
    filled.delete_documents(written)


Write = Callable[..., None]


# Searching


def test_the_score_is_the_squared_distance_nearest_first(filled: MilvusChunkStore, write: Write) -> None:
    write(
        chunk("behind.md", vector=BEHIND),
        chunk("ahead.md", vector=AHEAD),
        chunk("across.md", vector=ACROSS),
        chunk("aside.md", vector=ASIDE),
    )
    found = filled.search(AHEAD, limit=10, exclude_documents=["filled.md"])
    assert paths_of(found) == ["ahead.md", "aside.md", "across.md", "behind.md"]
    assert found[0].score == 0.0
    assert [scored.score for scored in found] == pytest.approx([0.0, 0.586, 2.0, 4.0], abs=0.001)


def test_a_hit_is_the_node_that_was_written_with_the_kind_of_its_score(filled: MilvusChunkStore, write: Write) -> None:
    written = chunk("a.md", 3, text='第一行\n\n“引号” "quotes" 🚀')
    write(written)
    [found] = filled.search(AHEAD, limit=1)
    assert found.node.node_id == written.node_id
    assert found.node.ref_doc_id == "a.md"
    assert found.node.get_content() == '第一行\n\n“引号” "quotes" 🚀'
    assert found.node.metadata == {
        **written.metadata,
        keys.MATCH_TYPE: keys.SEMANTIC_L1,
        keys.SCORE_KIND: keys.L2_DISTANCE,
    }
    assert {keys.CHUNK_INDEX, keys.MATCH_TYPE, keys.SCORE_KIND} <= set(found.node.excluded_llm_metadata_keys)
    assert {keys.MATCH_TYPE, keys.SCORE_KIND} <= set(found.node.excluded_embed_metadata_keys)


def test_no_more_chunks_come_back_than_asked_for(filled: MilvusChunkStore, write: Write) -> None:
    write(*(chunk("a.md", index) for index in range(5)))
    assert len(filled.search(AHEAD, limit=3)) == 3
    assert len(filled.search(AHEAD, limit=100_000)) == 6
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        filled.search(AHEAD, limit=0)


def test_documents_are_left_out_or_alone_searched(filled: MilvusChunkStore, write: Write) -> None:
    write(chunk("a.md"), chunk("a.md", 1, vector=ACROSS), chunk("b.md", vector=ASIDE))

    def found(**scope: Any) -> list[str]:
        return paths_of(filled.search(AHEAD, limit=10, **scope))

    assert found(exclude_documents=["a.md"]) == ["b.md", "filled.md"]
    assert found(exclude_documents=["a.md", "filled.md", "nowhere.md"]) == ["b.md"]
    assert found(only_documents=["a.md"]) == ["a.md", "a.md"]
    assert found(only_documents={"a.md", "b.md"}, exclude_documents={"a.md"}) == ["b.md"]
    assert found(only_documents=["nowhere.md"]) == []
    assert found(only_documents=[]) == []
    assert sorted(found(only_documents=None)) == ["a.md", "a.md", "b.md", "filled.md"]


def test_a_path_never_means_another_document_than_its_own(filled: MilvusChunkStore, write: Write) -> None:
    write(*(chunk(path) for path in HOSTILE_PATHS))
    for path in HOSTILE_PATHS:
        assert paths_of(filled.search(AHEAD, limit=100, only_documents=[path])) == [path]
        others = paths_of(filled.search(AHEAD, limit=100, exclude_documents=[path]))
        assert sorted(others) == sorted({*HOSTILE_PATHS, "filled.md"} - {path})
    filled.delete_documents(HOSTILE_PATHS[::2])
    kept = HOSTILE_PATHS[1::2]
    assert sorted(paths_of(filled.search(AHEAD, limit=100))) == sorted([*kept, "filled.md"])
    filled.delete_chunks_from(kept.pop(), 0)
    filled.delete_chunks_from(kept[0], 1)
    assert sorted(paths_of(filled.search(AHEAD, limit=100))) == sorted([*kept, "filled.md"])


def test_many_excluded_documents_are_no_problem(filled: MilvusChunkStore, write: Write) -> None:
    write(chunk("a.md"))
    excluded = [f"some/folder/document-{number}.md" for number in range(3000)]
    assert paths_of(filled.search(AHEAD, limit=10, exclude_documents=[*excluded, "filled.md"])) == ["a.md"]


# Writing


def test_a_chunk_with_the_same_id_is_replaced(filled: MilvusChunkStore, write: Write) -> None:
    write(chunk("a.md", text="old"), chunk("a.md", 1, text="other"))
    write(chunk("a.md", text="new", vector=ACROSS))
    found = filled.search(AHEAD, limit=10, only_documents=["a.md"])
    assert [(scored.node.get_content(), scored.score) for scored in found] == [
        ("other", 0.0),
        ("new", pytest.approx(2)),
    ]


def test_what_was_written_and_deleted_counts_at_once(filled: MilvusChunkStore, write: Write) -> None:
    for _ in range(2):
        write(chunk("a.md"), chunk("b.md"))
        assert sorted(paths_of(filled.search(AHEAD, limit=2))) == ["a.md", "b.md"]
        filled.delete_documents(["a.md", "nowhere.md"])
        assert "a.md" not in paths_of(filled.search(AHEAD, limit=10))


def test_the_chunks_that_a_shorter_version_lacks_are_deleted(filled: MilvusChunkStore, write: Write) -> None:
    write(*(chunk(path, index) for path in ("a.md", "b.md") for index in range(12)))
    filled.delete_chunks_from("a.md", 2)
    left = filled.search(AHEAD, limit=100, exclude_documents=["filled.md"])
    indexes = {(scored.node.metadata[keys.FILE_PATH], scored.node.metadata[keys.CHUNK_INDEX]) for scored in left}
    assert indexes == {("a.md", 0), ("a.md", 1), *(("b.md", index) for index in range(12))}


def test_documents_and_their_chunks_are_counted_beyond_one_batch(filled: MilvusChunkStore, write: Write) -> None:
    write(*(chunk(f"{number % 3}.md", number) for number in range(2300)))
    assert filled.documents() == {"0.md": 767, "1.md": 767, "2.md": 766, "filled.md": 1}
    filled.delete_documents(["0.md", "1.md"])
    assert set(paths_of(filled.search(AHEAD, limit=5000))) == {"2.md", "filled.md"}


def test_what_was_flushed_is_found_as_before(filled: MilvusChunkStore, write: Write) -> None:
    write(chunk("a.md", vector=ASIDE))
    filled.flush()
    [found] = filled.search(AHEAD, limit=10, only_documents=["a.md"])
    assert found.score == pytest.approx(0.586, abs=0.001)


def test_a_chunk_of_sixty_kilobytes_is_kept_whole(filled: MilvusChunkStore, write: Write) -> None:
    twenty_kilobytes, sixty_kilobytes = "错误码 " * 2000, "x" * 60_000
    write(chunk("a.md", text=twenty_kilobytes), chunk("b.md", text=sixty_kilobytes, vector=ASIDE))
    found = filled.search(AHEAD, limit=2)
    assert [scored.node.get_content() for scored in found] == [twenty_kilobytes, sixty_kilobytes]


def test_writing_nothing_does_nothing(place: Place) -> None:
    name = place.name()
    place.store(name).upsert([])
    assert not MilvusClient(place.uri).has_collection(name)


def test_threads_search_while_another_writes(filled: MilvusChunkStore, write: Write) -> None:
    write(chunk("stays.md"))
    done = Event()

    def search_on() -> int:
        searches = 0
        while not done.is_set() or searches < 5:
            assert paths_of(filled.search(AHEAD, limit=1)) == ["stays.md"]
            searches += 1
        return searches

    with ThreadPoolExecutor(8) as threads:
        counts = [threads.submit(search_on) for _ in range(8)]
        try:
            for number in range(20):
                write(*(chunk("moves.md", index, vector=ASIDE, text=str(number)) for index in range(5)))
        finally:
            done.set()
    assert all(count.result() >= 5 for count in counts)
    assert {hit.node.get_content() for hit in filled.search(AHEAD, limit=9, only_documents=["moves.md"])} == {"19"}


def test_threads_that_come_first_together_all_get_their_answer(
    filled: MilvusChunkStore, filled_name: str, place: Place
) -> None:
    store = MilvusChunkStore(uri=place.uri, collection_name=filled_name, embedding_model=MODEL, timeout=10)
    barrier = Barrier(12)

    def search() -> list[str]:
        barrier.wait()
        return paths_of(store.search((0.0, 0.0, 0.0, 1.0), limit=1))

    with ThreadPoolExecutor(12) as threads:
        assert [future.result() for future in [threads.submit(search) for _ in range(12)]] == [["filled.md"]] * 12


# Opening, closing, dropping


def test_a_collection_that_does_not_exist_reads_as_empty_and_is_not_made(place: Place) -> None:
    name = place.name()
    store = place.store(name)
    assert store.search(AHEAD, limit=10) == []
    assert store.documents() == {}
    store.flush()
    store.delete_documents(["a.md"])
    store.delete_chunks_from("a.md", 0)
    store.drop()
    assert not MilvusClient(place.uri).has_collection(name)


def test_a_closed_store_and_a_new_one_find_what_was_written(
    filled: MilvusChunkStore, filled_name: str, write: Write, uri: str
) -> None:
    write(chunk("a.md"))
    filled.close()
    filled.close()
    again = MilvusChunkStore(uri=uri, collection_name=filled_name, embedding_model=MODEL, timeout=10)
    assert paths_of(again.search(AHEAD, limit=1)) == ["a.md"]
    again.close()
    assert paths_of(filled.search(AHEAD, limit=1)) == ["a.md"]


# Collections that don't fit


def test_another_embedding_model_is_refused_with_both_names_and_the_command(
    filled: MilvusChunkStore, filled_name: str, uri: str
) -> None:
    other = MilvusChunkStore(uri=uri, collection_name=filled_name, embedding_model="model-b", timeout=10)
    for use in uses_of(other):
        with pytest.raises(EmbeddingModelMismatchError, match=rf"^.*'model-a'.*'model-b'.*{REBUILD}.*$"):
            use()


def test_without_a_model_name_the_model_is_not_compared(filled: MilvusChunkStore, filled_name: str, uri: str) -> None:
    store = MilvusChunkStore(uri=uri, collection_name=filled_name, timeout=10)
    assert paths_of(store.search(AHEAD, limit=1)) == ["filled.md"]


@pytest.mark.parametrize("opened_before", [False, True])
def test_vectors_of_another_length_are_refused_with_both_lengths_and_the_command(
    filled: MilvusChunkStore, filled_name: str, uri: str, opened_before: bool
) -> None:
    store = MilvusChunkStore(uri=uri, collection_name=filled_name, embedding_model=MODEL, timeout=10)
    if opened_before:
        assert paths_of(store.search(AHEAD, limit=1)) == ["filled.md"]
    with pytest.raises(VectorStoreError, match=rf"^.*length 4, the embedding model gives 3: .*{REBUILD}.*$"):
        store.search((1.0, 0.0, 0.0), limit=1)
    with pytest.raises(VectorStoreError, match=rf"^.*length 4, the embedding model gives 2: .*{REBUILD}.*$"):
        store.upsert([chunk("a.md", vector=(1.0, 0.0))])


def test_a_collection_with_another_metric_is_refused_by_every_way_in(place: Place) -> None:
    name = place.name()
    make_collection(place.uri, name, vector_field="embedding", metric="IP")
    for use in uses_of(place.store(name)):
        with pytest.raises(VectorStoreError, match=rf"^.*metric 'IP', 'L2' is needed: .*{REBUILD}.*$"):
            use()
    with pytest.raises(VectorStoreError, match=r"^.*has the metric 'IP', build it with similarity_metric='L2'$"):
        MilvusChunkStore.from_vector_store(
            MilvusVectorStore(uri=place.uri, collection_name=name, similarity_metric="IP", use_async_client=False)
        )
    # LlamaIndex takes the metric that it is told for that of the collection.
    claimed = MilvusVectorStore(uri=place.uri, collection_name=name, similarity_metric="L2", use_async_client=False)
    for use in uses_of(MilvusChunkStore.from_vector_store(claimed, timeout=10)):
        with pytest.raises(VectorStoreError, match=r"metric 'IP', 'L2' is needed"):
            use()


def test_a_collection_without_an_index_gets_one_by_distance(place: Place) -> None:
    name = place.name()
    make_collection(place.uri, name, vector_field="embedding")
    store = place.store(name)
    assert store.search(AHEAD, limit=1) == []
    store.upsert([chunk("near.md", vector=ASIDE), chunk("far.md", vector=BEHIND)])
    assert [scored.score for scored in store.search(AHEAD, limit=2)] == pytest.approx([0.586, 4.0], abs=0.001)


def test_a_collection_without_the_vector_field_is_refused(place: Place) -> None:
    name = place.name()
    make_collection(place.uri, name, vector_field="vec")
    for use in uses_of(place.store(name)):
        with pytest.raises(VectorStoreError, match=rf"^.*no vector field 'embedding': .*{REBUILD}.*$"):
            use()


def test_a_vector_store_of_the_application_serves_and_stays_open(place: Place) -> None:
    name = place.name()
    given = MilvusVectorStore(
        uri=place.uri, collection_name=name, dim=4, similarity_metric="L2", use_async_client=False
    )
    store = MilvusChunkStore.from_vector_store(given, timeout=10)
    given.add([chunk("theirs.md", text="old")])
    assert paths_of(store.search(AHEAD, limit=10)) == ["theirs.md"]
    # Their store would add a second row for the same id.
    store.upsert([chunk("theirs.md", text="new")])
    assert [scored.node.get_content() for scored in store.search(AHEAD, limit=10)] == ["new"]
    with pytest.raises(VectorStoreError, match=r"length 4, the embedding model gives 2"):
        store.search((1.0, 0.0), limit=1)
    store.close()
    given.add([chunk("more.md")])
    other = place.store(name)
    for reader in (store, other):
        assert sorted(paths_of(reader.search(AHEAD, limit=10))) == ["more.md", "theirs.md"]
    store.drop()
    # The other one had the collection open, as another process may have.
    for reader in (store, other):
        assert reader.search(AHEAD, limit=10) == []
        assert reader.documents() == {}
    with pytest.raises(VectorStoreError, match="was dropped: build a new MilvusVectorStore"):
        store.upsert([chunk("a.md")])


# Milvus Lite


def test_nothing_is_opened_before_it_is_needed(lite: Place, tmp_path: Path) -> None:
    lite.store("chunks").close()
    assert not (tmp_path / "data").exists()


PATHS = st.text(alphabet=st.one_of(st.sampled_from("\"'\\/ab\n{}%"), st.characters(exclude_categories=["Cs"])))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS.filter(bool), other=PATHS.filter(bool))
def test_any_two_paths_are_told_apart(shared_lite: MilvusChunkStore, path: str, other: str) -> None:
    paths = {path, other}
    shared_lite.upsert([chunk(each) for each in paths])
    assert paths_of(shared_lite.search(AHEAD, limit=10, only_documents=[path])) == [path]
    assert set(paths_of(shared_lite.search(AHEAD, limit=10, exclude_documents=[path]))) == paths - {path}
    shared_lite.delete_documents([path])
    assert set(paths_of(shared_lite.search(AHEAD, limit=10))) == paths - {path}
    shared_lite.delete_documents([other])


@pytest.fixture(scope="module")
def shared_lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    store = MilvusChunkStore(uri=str(tmp_path_factory.mktemp("paths") / "milvus.db"), timeout=10)
    yield store
    store.close()


OTHER_PROCESS = """
import sys
from knowledge_lookup.retrievers import MilvusChunkStore, VectorStoreError

store = MilvusChunkStore(uri=sys.argv[1], collection_name="chunks", timeout=10)
for command in sys.stdin:
    try:
        print(store.documents() if command.strip() == "read" else store.close(), flush=True)
    except VectorStoreError as error:
        print(type(error).__name__, error, flush=True)
"""


def test_one_process_at_a_time_holds_the_folder_and_close_passes_it_on(lite: Place) -> None:
    store = lite.store("chunks")
    store.upsert([chunk("a.md")])
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, lite.uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def other(command: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        in_use = (
            f"VectorStoreUnavailableError the embedded Milvus Lite at {lite.uri} is in use by another process: "
            "wait for that process or stop it, or run a Milvus server and set milvus.uri, which serves many processes"
        )
        assert other("read") == in_use
        store.close()
        assert other("read") == "{'a.md': 1}"
        with pytest.raises(VectorStoreUnavailableError, match=r"is in use by another process") as caught:
            store.documents()
        assert "rebuild" not in str(caught.value)
        assert other("close") == "None"
        assert store.documents() == {"a.md": 1}
        assert other("read") == in_use
        process.communicate(timeout=30)


def test_a_collection_that_another_store_rebuilds_is_opened_and_checked_again(lite: Place) -> None:
    store, other = lite.store("chunks"), lite.store("chunks", embedding_model="model-b")
    store.upsert([chunk("old.md")])
    with pytest.raises(EmbeddingModelMismatchError):
        other.search(AHEAD, limit=10)
    other.drop()
    assert store.search(AHEAD, limit=10) == []
    assert store.documents() == {}
    other.upsert([chunk("new.md", vector=(1.0, 0.0), model="model-b")])
    assert paths_of(other.search((1.0, 0.0), limit=10)) == ["new.md"]
    with pytest.raises(EmbeddingModelMismatchError):
        store.search(AHEAD, limit=10)


def test_closing_one_store_of_a_process_does_not_stop_another(lite: Place) -> None:
    one, two = lite.store("chunks"), lite.store("chunks")
    one.upsert([chunk("a.md")])
    assert two.documents() == {"a.md": 1}
    one.close()
    assert paths_of(two.search(AHEAD, limit=1)) == ["a.md"]
    two.close()
    one.upsert([chunk("b.md")])
    assert one.documents() == {"a.md": 1, "b.md": 1}


def test_the_folder_stays_the_same_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MilvusChunkStore(uri="data/milvus.db", timeout=10)
    store.upsert([chunk("a.md")])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.close()
    assert store.documents() == {"a.md": 1}
    store.close()
    again = MilvusChunkStore(uri="../data/milvus.db", timeout=10)
    assert again.documents() == {"a.md": 1}
    again.close()
    assert not (tmp_path / "elsewhere" / "data").exists()


def test_a_path_below_the_home_folder_is_taken_as_such(tmp_path: Path) -> None:
    store = MilvusChunkStore(uri="~/below/milvus.db", timeout=10)
    store.documents()
    store.close()
    assert (tmp_path / "below" / "milvus.db").is_dir()
    assert not (tmp_path / "~").exists()


def test_rows_are_sent_in_requests_bounded_in_number_and_in_bytes() -> None:
    small = [{"id": str(number), "text": "长", "vector": [0.5] * 4} for number in range(2_500)]
    requests = list(request_batches(small))
    assert [len(request) for request in requests] == [1000, 1000, 500]
    assert [row for request in requests for row in request] == small
    large = [{"id": str(number), "text": "长" * 20_000, "vector": [0.5] * 4_096} for number in range(600)]
    requests = list(request_batches(large))
    assert all(len(request) * (60_000 + 16_384) < 16_000_000 for request in requests)
    assert min(len(request) for request in requests[:-1]) > 100
    huge = [{"text": "x" * 20_000_000}] * 2
    assert [len(request) for request in request_batches(huge)] == [1, 1]
    assert list(request_batches([])) == []


def test_more_chunks_than_one_request_holds_are_all_written(lite: Place) -> None:
    store = lite.store("chunks")
    store.upsert([chunk(f"{number % 7}.md", number, vector=AHEAD) for number in range(1_500)])
    assert sum(store.documents().values()) == 1_500


def test_a_flush_makes_the_indexed_file_of_what_was_written(lite: Place) -> None:
    store = lite.store("chunks")
    store.upsert([chunk("a.md")])
    assert list(Path(lite.uri).rglob("*.parquet")) == []
    store.flush()
    assert len(list(Path(lite.uri).rglob("*.parquet"))) == 1


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["made whole", "left without an index"])
def test_a_search_of_one_document_finds_it_however_many_chunks_are_nearer(lite: Place, is_cut_off: bool) -> None:
    if is_cut_off:
        Path(lite.uri).parent.mkdir()
        make_collection(lite.uri, "chunks", vector_field="embedding")
    store = lite.store("chunks")
    nearer = [chunk("near.md", number, vector=vector_at(1.0 - number / 1000)) for number in range(600)]
    store.upsert([*nearer, chunk("far.md", vector=BEHIND)])
    store.flush()
    store.close()
    assert paths_of(store.search(AHEAD, limit=3, only_documents=["far.md"])) == ["far.md"]


def test_a_connection_that_somebody_closed_in_the_middle_is_opened_again(filled: MilvusChunkStore) -> None:
    opened = filled.open()
    assert opened is not None
    opened.client.close()
    assert paths_of(filled.search(AHEAD, limit=1)) == ["filled.md"]
    assert filled.documents() == {"filled.md": 1}


def test_a_collection_that_somebody_released_is_loaded_again(lite: Place) -> None:
    store = lite.store("chunks")
    store.upsert([chunk("a.md")])
    MilvusClient(lite.uri).release_collection("chunks")
    assert paths_of(store.search(AHEAD, limit=10)) == ["a.md"]


def test_a_proxy_for_the_outer_world_does_not_stand_before_milvus_lite(
    lite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    store = lite.store("chunks")
    store.upsert([chunk("a.md")])
    assert store.documents() == {"a.md": 1}


def test_a_file_in_the_place_of_the_folder_is_to_be_moved_away(lite: Place) -> None:
    path = Path(lite.uri)
    path.parent.mkdir()
    path.write_text("something of the user", encoding="utf-8")
    with pytest.raises(VectorStoreError, match=r"milvus\.db is a file, .*move the file away or set another data-dir$"):
        lite.store("chunks").documents()
    assert path.read_text(encoding="utf-8") == "something of the user"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = MilvusChunkStore(uri=str(tmp_path / "file" / "milvus.db"))
    with pytest.raises(VectorStoreError, match=r"^the embedded Milvus Lite at .*could not be opened.*permissions.*$"):
        store.documents()


def test_a_folder_of_something_else_may_be_moved_away_and_rebuilt(lite: Place) -> None:
    folder = Path(lite.uri)
    folder.mkdir(parents=True)
    (folder / "collections").write_text("no folder", encoding="utf-8")
    with pytest.raises(
        VectorStoreError, match=rf"milvus\.db could not be opened.*move the folder away.*{REBUILD}"
    ) as caught:
        lite.store("chunks").documents()
    assert not isinstance(caught.value, VectorStoreUnavailableError)
    assert "in use" not in str(caught.value)


@pytest.mark.parametrize("damaged", ["schema.json", "*.parquet"])
def test_a_damaged_collection_may_be_moved_away_and_rebuilt(lite: Place, damaged: str) -> None:
    store = lite.store("chunks")
    store.upsert([chunk("a.md")])
    store.flush()
    store.close()
    [file] = Path(lite.uri).rglob(damaged)
    file.write_bytes(b"\x00\xff")
    with pytest.raises(VectorStoreError, match=rf"milvus\.db could not be opened: .*move the folder away.*{REBUILD}`$"):
        store.documents()
    store.close()
    shutil.move(lite.uri, f"{lite.uri}.away")
    store.upsert([chunk("b.md")])
    assert store.documents() == {"b.md": 1}


# Servers that aren't there, or don't answer


def test_a_server_that_is_not_there_is_reported_within_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    store = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.5)
    for use in [*uses_of(store), store.drop]:
        with (
            within(1.5),
            pytest.raises(VectorStoreUnavailableError, match=rf"^Milvus at http://127\.0\.0\.1:{port} .*milvus\.uri"),
        ):
            use()


def test_a_server_that_never_answers_is_given_up_at_the_time_limit() -> None:
    with black_hole() as port:
        store = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.3)
        for use in [*uses_of(store), store.drop]:
            with (
                within(1.2),
                pytest.raises(VectorStoreUnavailableError, match=r"could not be (opened|dropped): .*timeout-seconds$"),
            ):
                use()


@SERVER_ONLY
def test_a_server_that_falls_silent_is_given_up_at_the_time_limit(
    filled: MilvusChunkStore, filled_name: str, uri: str
) -> None:
    with pipe_to(uri) as (port, fall_silent):
        store = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", collection_name=filled_name, timeout=1.0)
        assert paths_of(store.search(AHEAD, limit=1)) == ["filled.md"]
        fall_silent()
        for use in (lambda: store.search(AHEAD, limit=1), store.documents):
            with within(2.0), pytest.raises(VectorStoreUnavailableError, match="DEADLINE_EXCEEDED"):
                use()


@SERVER_ONLY
def test_a_chunk_beyond_the_limit_of_a_server_is_refused_not_the_server_blamed(filled: MilvusChunkStore) -> None:
    with pytest.raises(VectorStoreError, match=r"could not be written: .*exceeds max length.*65535") as caught:
        filled.upsert([chunk("a.md", text="x" * 70_000)])
    assert not isinstance(caught.value, VectorStoreUnavailableError)


@pytest.mark.parametrize(
    ("address", "said"),
    [("localhost:19530", "localhost:19530 is illegal"), ("http://localhost:port", "http://localhost:port is no valid")],
)
def test_an_address_that_is_none_is_named(address: str, said: str) -> None:
    with pytest.raises(VectorStoreError, match=said) as caught:
        MilvusChunkStore(uri=address).documents()
    assert not isinstance(caught.value, VectorStoreUnavailableError)


def test_a_password_in_the_address_stays_out_of_messages() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"http://root:secret@127.0.0.1:{port}", "root:secret@localhost"):
        with pytest.raises(VectorStoreError) as caught:
            MilvusChunkStore(uri=address, timeout=0.5).documents()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_time_limit_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be more than 0 seconds"):
        MilvusChunkStore(uri="http://localhost:19530", timeout=timeout)


def uses_of(store: MilvusChunkStore) -> list[Callable[[], Any]]:
    return [
        lambda: store.search(AHEAD, limit=1),
        store.documents,
        lambda: store.upsert([chunk("a.md")]),
        lambda: store.delete_documents(["a.md"]),
    ]


def make_collection(uri: str, name: str, *, vector_field: str, metric: str | None = None) -> None:
    """Make a collection; without a metric it has no index, as a creation that was cut off leaves it."""
    client = MilvusClient(uri)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
    schema.add_field("doc_id", DataType.VARCHAR, max_length=65_535)
    schema.add_field(vector_field, DataType.FLOAT_VECTOR, dim=4)
    client.create_collection(name, schema=schema)
    if metric is not None:
        index = client.prepare_index_params(vector_field, index_type="FLAT", metric_type=metric)
        client.create_index(name, index)
