"""Reading chunks as passages and measuring them, on Milvus Lite and on a server."""

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from llama_index.core.schema import Document, IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.vector_stores.milvus import MilvusVectorStore

from knowledge_lookup.retrievers import MilvusChunkStore, MilvusVectorRetriever, VectorStoreError
from knowledge_lookup.retrievers import VectorStoreUnavailableError as Unavailable
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.passage import Passage
from tests.retrievers.broken_connections import black_hole
from tests.retrievers.chunks import ACROSS, AHEAD, ASIDE, BEHIND, MODEL, ChosenVectors, chunk

QUOTED = "a'\"b\\.md"
MORE_THAN_A_BATCH = 1003


@pytest.fixture(scope="module", params=["lite", pytest.param("server", marks=pytest.mark.milvus_server)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusChunkStore]:
    """Give a store that no test changes."""
    if request.param == "lite":
        uri = str(tmp_path_factory.mktemp("passages") / "milvus.db")
    else:
        uri = request.getfixturevalue("milvus_server_uri")
    store = MilvusChunkStore(uri=uri, collection_name=f"c{uuid4().hex}", embedding_model=MODEL, timeout=10)
    sectioned = chunk("ora.md", vector=AHEAD, text="监听程序未启动")
    sectioned.metadata |= {keys.TITLE: "Oracle 错误码", keys.SECTION: "连接 > ORA-12541"}
    store.upsert(
        [
            sectioned,
            chunk("ora.md", 1, vector=ASIDE, text="lead"),
            chunk(QUOTED, vector=ACROSS, text="quoted"),
            chunk("behind.md", vector=BEHIND, text="behind"),
            *(chunk("many.md", number, vector=BEHIND, text=f"row {number}") for number in range(MORE_THAN_A_BATCH)),
        ]
    )
    yield store
    store.drop()
    store.close()


def node_id(file_path: str, index: int = 0) -> str:
    return chunk(file_path, index).node_id


# Passages


def test_a_passage_has_title_and_section_before_its_text(store: MilvusChunkStore) -> None:
    assert sorted(store.passages(["ora.md"]), key=lambda passage: passage.text) == [
        Passage(node_id("ora.md"), "ora.md", "Oracle 错误码\n连接 > ORA-12541\n监听程序未启动"),
        Passage(node_id("ora.md", 1), "ora.md", "lead"),
    ]


def test_all_passages_are_read_however_many_there_are(store: MilvusChunkStore) -> None:
    passages = list(store.passages())
    assert len(passages) == len({passage.node_id for passage in passages}) == MORE_THAN_A_BATCH + 4
    assert {passage.text for passage in passages} >= {f"row {number}" for number in range(MORE_THAN_A_BATCH)}
    assert len(list(store.passages(["many.md", "behind.md"]))) == MORE_THAN_A_BATCH + 1


def test_only_the_documents_that_were_asked_for_are_read(store: MilvusChunkStore) -> None:
    assert {passage.file_path for passage in store.passages([QUOTED, "behind.md", "none.md"])} == {QUOTED, "behind.md"}
    assert list(store.passages(["none.md"])) == []
    assert list(store.passages([])) == []


def test_reading_says_nothing_about_timestamps(store: MilvusChunkStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pymilvus.orm.iterator"):
        assert list(store.passages(["behind.md"]))
        logging.getLogger("pymilvus.orm.iterator").warning("something else")
        logging.getLogger("pymilvus.orm.iterator").warning("failed to get mvccTs")
    # what others do with the iterator is told as before
    assert [record.getMessage() for record in caplog.records] == ["something else", "failed to get mvccTs"]


def test_a_collection_that_does_not_exist_has_no_passages(tmp_path: Path) -> None:
    store = MilvusChunkStore(uri=str(tmp_path / "milvus.db"), timeout=10)
    assert list(store.passages()) == list(store.passages(["a.md"])) == []
    assert store.measure(AHEAD, ["some id"]) == []
    store.close()


def test_a_milvus_that_does_not_answer_is_an_error() -> None:
    with black_hole() as port:
        silent = MilvusChunkStore(uri=f"http://127.0.0.1:{port}", timeout=0.3)
        with pytest.raises(Unavailable):
            list(silent.passages())
        with pytest.raises(Unavailable):
            silent.measure(AHEAD, ["some id"])


# Measuring


def test_chunks_are_measured_in_the_order_asked_for_by_their_squared_distance(store: MilvusChunkStore) -> None:
    asked = [node_id("behind.md"), node_id("ora.md"), node_id(QUOTED), node_id("ora.md", 1)]
    measured = store.measure(AHEAD, asked)
    assert [scored.node.node_id for scored in measured] == asked
    assert [scored.score for scored in measured] == pytest.approx([4.0, 0.0, 2.0, 0.586], abs=0.001)
    assert measured[1].score == 0.0


def test_a_chunk_measures_what_a_search_gives_it(store: MilvusChunkStore) -> None:
    query = (0.8, 0.48, 0.36, 0.0)
    found = store.search(query, limit=4, exclude_documents=["many.md"])
    assert len(found) == 4
    measured = store.measure(query, [scored.node.node_id for scored in found])
    assert [scored.score for scored in measured] == pytest.approx([scored.score for scored in found], abs=1e-5)
    # everything else is the same to the letter: text, metadata, marks, what is hidden from the LLM
    assert [scored.node.to_dict() for scored in measured] == [scored.node.to_dict() for scored in found]
    assert {scored.node.metadata[keys.SCORE_KIND] for scored in measured} == {keys.L2_DISTANCE}


def test_a_chunk_that_is_not_there_is_left_out(store: MilvusChunkStore) -> None:
    measured = store.measure(AHEAD, ["no such id", node_id("ora.md"), 'x" or 1==1'])
    assert [scored.node.node_id for scored in measured] == [node_id("ora.md")]
    assert store.measure(AHEAD, []) == []


def test_vectors_of_another_length_are_refused(store: MilvusChunkStore) -> None:
    with pytest.raises(VectorStoreError, match="holds vectors of length 4, the embedding model gives 2"):
        store.measure((1.0, 0.0), [node_id("ora.md")])


def test_the_retriever_measures_with_the_vector_that_it_embeds_a_query_to(store: MilvusChunkStore) -> None:
    retriever = MilvusVectorRetriever(store, ChosenVectors({"long": (0.0, 7.0, 0.0, 0.0)}))
    embedding = retriever.embed(QueryBundle("long"))
    [across, aside] = retriever.measure(embedding, [node_id(QUOTED), node_id("ora.md", 1)])
    assert [across.score, aside.score] == pytest.approx([0.0, 0.586], abs=0.001)


def test_the_store_of_an_application_can_be_read_and_measured(tmp_path: Path) -> None:
    theirs = MilvusVectorStore(uri=str(tmp_path / "theirs.db"), dim=4, similarity_metric="L2", use_async_client=False)
    theirs.add([chunk("a.md", vector=ASIDE, text="theirs")])
    store = MilvusChunkStore.from_vector_store(theirs, timeout=10)
    assert list(store.passages()) == [Passage(node_id("a.md"), "a.md", "theirs")]
    [measured] = store.measure(AHEAD, [node_id("a.md")])
    assert measured.score == pytest.approx(0.586, abs=0.001)
    assert measured.node.get_content() == "theirs"


def test_nodes_of_an_application_are_read_as_llamaindex_reads_them(tmp_path: Path) -> None:
    theirs = MilvusVectorStore(uri=str(tmp_path / "theirs.db"), dim=4, similarity_metric="L2", use_async_client=False)
    nodes = [
        TextNode(id_="text", text="a text", embedding=list(ASIDE), metadata={"page": 3}, text_template="{content}"),
        IndexNode(id_="index", text="an index", index_id="other", embedding=list(ASIDE)),
        Document(id_="document", text="a document", embedding=list(ASIDE), excluded_llm_metadata_keys=["page"]),
    ]
    theirs.add(nodes)
    found = MilvusChunkStore.from_vector_store(theirs, timeout=10).search(AHEAD, limit=3)
    read = {scored.node.node_id: scored.node for scored in found}
    by_them = theirs.query(VectorStoreQuery(query_embedding=list(AHEAD), similarity_top_k=3)).nodes
    for node in by_them:
        marked = keys.annotate(
            NodeWithScore(node=node),
            score=None,
            annotations={keys.MATCH_TYPE: keys.SEMANTIC_L1, keys.SCORE_KIND: keys.L2_DISTANCE},
        )
        assert read[node.node_id] == marked.node
        assert type(read[node.node_id]) is type(node)
    assert len(by_them) == len(nodes)
