"""The session filter, over the real action memory."""

from knowledge_lookup.agents import RetrievedDocTracker
from knowledge_lookup.postprocessors import SessionFilterPostprocessor
from knowledge_lookup.retrievers import metadata as keys
from tests.postprocessors.nodes import passage


def test_documents_of_the_session_are_taken_out() -> None:
    memory = RetrievedDocTracker()
    memory.mark_retrieved("s1", "api", "a.md")
    nodes = [passage("a.md", 0.1), passage("b.md", 0.2)]
    left = SessionFilterPostprocessor(memory=memory, session_id="s1").postprocess_nodes(nodes)
    assert [node.node.metadata[keys.FILE_PATH] for node in left] == ["b.md"]


def test_another_session_and_no_session_get_everything() -> None:
    memory = RetrievedDocTracker()
    memory.mark_retrieved("s1", "api", "a.md")
    nodes = [passage("a.md", 0.1)]
    assert SessionFilterPostprocessor(memory=memory, session_id="s2").postprocess_nodes(nodes) == nodes
    assert SessionFilterPostprocessor(memory=memory).postprocess_nodes(nodes) == nodes
