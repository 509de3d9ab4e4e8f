"""The index of words against a naive model, after any changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers import Bm25Index
from knowledge_lookup.retrievers.search_terms import passage_terms
from tests.retrievers.passages import Documents

WORDS = ["redis", "maxPoolSize", "ORA-12541", "连接池", "连接", "池", "8005", "a_b"]
TERMS = sorted({term for word in WORDS for term in passage_terms(word)})
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["a.md", 'b".md', "c/丙.md"]), st.none() | st.lists(TEXTS, max_size=3)), max_size=4
)


@given(start=CHANGES, batches=st.lists(CHANGES, max_size=3), scope=st.sets(st.sampled_from(["a.md", 'b".md', "x.md"])))
@settings(max_examples=40)
def test_counts_are_those_of_a_naive_model_after_any_changes(
    start: list[tuple[str, list[str] | None]],
    batches: list[list[tuple[str, list[str] | None]]],
    scope: set[str],
) -> None:
    documents = Documents()
    index = Bm25Index(documents)
    for batch in [start, *batches]:
        for file_path, texts in batch:
            if texts is None:
                documents.texts.pop(file_path, None)
            else:
                documents.texts[file_path] = texts
            index.mark_changed(file_path)
        cut = {path: [set(passage_terms(text)) for text in texts] for path, texts in documents.texts.items()}
        everything = [terms for passages in cut.values() for terms in passages]
        in_scope = [terms for path, passages in cut.items() if path in scope for terms in passages]
        index.search(TERMS, limit=1)
        assert index.passage_count() == len(everything)
        assert index.passage_count(within=scope) == len(in_scope)
        for term in TERMS:
            frequency = sum(term in terms for terms in everything)
            assert index.passage_frequency(term, within=documents.texts) == frequency
            assert index.passage_frequency(term, within=scope) == sum(term in terms for terms in in_scope)
            assert index.passage_frequency(term) >= frequency
            assert len(index.search([term], limit=20)) == frequency
    fresh = Bm25Index(documents)
    assert [fresh.passage_frequency(term) for term in TERMS] == [
        index.passage_frequency(term, within=documents.texts) for term in TERMS
    ]
