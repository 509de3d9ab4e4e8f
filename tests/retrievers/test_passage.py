"""The text by which a node is searched."""

from llama_index.core.schema import TextNode

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.passage import passage_text


def test_title_and_section_come_before_the_text_and_no_other_metadata() -> None:
    node = TextNode(
        text="先看监听程序。",
        metadata={keys.FILE_PATH: "db/ora.md", keys.SECTION: "连接 > ORA-12541", keys.TITLE: "Oracle 错误码"},
    )
    assert passage_text(node) == "Oracle 错误码\n连接 > ORA-12541\n先看监听程序。"


def test_a_node_of_another_application_is_its_text() -> None:
    assert passage_text(TextNode(text="plain", metadata={"author": "somebody"})) == "plain"
    assert passage_text(TextNode(text="lead", metadata={keys.TITLE: "Pool", keys.SECTION: ""})) == "Pool\nlead"
    assert passage_text(TextNode(text="", metadata={keys.TITLE: None})) == ""
