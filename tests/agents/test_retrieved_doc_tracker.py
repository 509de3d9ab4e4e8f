"""FS-3: the action memory through its public face; the stores have a contract suite of their own."""

import pytest

from knowledge_lookup.agents import RetrievedDocTracker
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup
from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.text_span import TextSpan


@pytest.fixture
def tracker() -> RetrievedDocTracker:
    tracker = RetrievedDocTracker()
    tracker.mark_retrieved("s1", "infrastructure", "a.md")
    return tracker


def test_a_marked_document_is_retrieved_with_its_domain(tracker: RetrievedDocTracker) -> None:
    assert tracker.is_doc_retrieved("s1", "a.md") is True
    assert tracker.is_already_retrieved("s1", "a.md") is True
    assert tracker.is_domain_retrieved("s1", "infrastructure") is True
    assert tracker.get_retrieved_domains("s1") == ["infrastructure"]
    assert tracker.get_retrieved_documents("s1") == {"a.md"}


def test_what_was_not_marked_is_not_retrieved(tracker: RetrievedDocTracker) -> None:
    assert tracker.is_doc_retrieved("s1", "b.md") is False
    assert tracker.is_domain_retrieved("s1", "api") is False
    assert tracker.is_doc_retrieved("s2", "a.md") is False
    assert tracker.get_retrieved_domains("s2") == []


def test_domains_come_in_order_of_first_retrieval(tracker: RetrievedDocTracker) -> None:
    tracker.mark_retrieved("s1", "api", "b.md")
    tracker.mark_retrieved("s1", "infrastructure", "c.md")
    assert tracker.get_retrieved_domains("s1") == ["infrastructure", "api"]


def test_a_cleared_session_is_empty(tracker: RetrievedDocTracker) -> None:
    tracker.clear_session("s1")
    assert tracker.is_doc_retrieved("s1", "a.md") is False
    assert tracker.is_already_retrieved("s1", "a.md") is False
    assert tracker.is_domain_retrieved("s1", "infrastructure") is False
    assert tracker.get_retrieved_domains("s1") == []


def test_a_document_is_claimed_once(tracker: RetrievedDocTracker) -> None:
    assert tracker.claim("s1", "infrastructure", "a.md") is False
    assert tracker.claim("s1", "api", "b.md") is True
    assert tracker.claim("s1", "api", "b.md") is False
    tracker.clear_session("s1")
    assert tracker.claim("s1", "api", "b.md") is True


def test_a_look_up_is_remembered_with_what_it_delivered(tracker: RetrievedDocTracker) -> None:
    text = DocumentText("一段文字，共十个字。", "T")
    delivered = DeliveredText(
        domain="api", file_path="b.md", version=text.version, way="exact", spans=(TextSpan(0, 9),)
    )
    lookup = RememberedLookup(number=1, question="q", corpus="c", outcome="delivered", delivered=(delivered,))
    assert tracker.remember("s1", lookup) is True
    assert tracker.remember("s1", lookup) is False
    memory = tracker.recall("s1")
    assert memory.lookups == (lookup,)
    assert memory.given("b.md", text) == [TextSpan(0, 9)]
    assert memory.is_given("b.md", text.version)
    assert tracker.get_retrieved_documents("s1") == {"a.md", "b.md"}
    assert tracker.get_retrieved_domains("s1") == ["infrastructure", "api"]
