"""Which document a node belongs to."""

from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from knowledge_lookup.retrievers import metadata as keys


def scored(*, file_path: str | None = None, source: str | None = None) -> NodeWithScore:
    return NodeWithScore(
        node=TextNode(
            id_="own id",
            text="text",
            metadata={} if file_path is None else {keys.FILE_PATH: file_path},
            relationships={} if source is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)},
        )
    )


def test_a_node_belongs_to_its_file_path_before_llamaindexs_document() -> None:
    assert keys.document_of(scored(file_path="a.md", source="theirs")) == "a.md"
    assert keys.document_of(scored(source="theirs")) == "theirs"


def test_a_node_that_belongs_to_no_document_is_one_by_itself() -> None:
    assert keys.document_of(scored()) == "own id"
