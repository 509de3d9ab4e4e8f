"""What is learned from: queries asked with and without the documents that answer them."""

from collections.abc import Iterator
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.pipeline.evaluation import LabelledQuery
from knowledge_lookup.pipeline.tuning import Sample, StatisticsWithout
from knowledge_lookup.retrievers import Bm25Index, TermStatistics
from tests.retrievers.passages import Documents

from .corpus import Corpus, document

DOCUMENTS = [
    document("valve.md", ["valve pressure limit", "valve replaced every spring", "tighten the valve bolt"]),
    document("pump.md", ["pump pressure falls after a restart", "pump oil is changed every spring"]),
    document("gauge.md", ["gauge shows the pressure in bar"]),
    document("crank.md", ["crank shaft turns clockwise"]),
]
QUERY = LabelledQuery("valve pressure limit", frozenset({"valve.md"}))
UNANSWERABLE = LabelledQuery("holiday calendar pressure", frozenset())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    corpus = Corpus.of(DOCUMENTS, tmp_path_factory.mktemp("corpus"))
    yield corpus
    corpus.store.close()


@pytest.fixture(scope="module")
def smaller_corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    """The same without the document on valves."""
    corpus = Corpus.of(DOCUMENTS[1:], tmp_path_factory.mktemp("smaller"))
    yield corpus
    corpus.store.close()


def candidates(one: Sample) -> dict[str, tuple[object, ...]]:
    return {found.file_path: (*astuple(found.evidence), found.is_right) for found in one.candidates}


def test_an_answerable_query_is_asked_with_and_without_what_answers_it(corpus: Corpus) -> None:
    as_it_is, without = corpus.collector().collect([QUERY])
    assert (as_it_is.is_answerable, without.is_answerable) == (True, False)
    assert {found.file_path: found.is_right for found in as_it_is.candidates} == {
        "valve.md": True,
        "pump.md": False,
        "gauge.md": False,
        "crank.md": False,
    }
    assert as_it_is.candidates[0].file_path == "valve.md"
    assert without.left_out == {"valve.md"}
    assert {found.file_path for found in without.candidates} == {"pump.md", "gauge.md", "crank.md"}
    assert not any(found.is_right for found in without.candidates)
    assert as_it_is.group == without.group == "valve.md"


def test_an_unanswerable_query_is_asked_once(corpus: Corpus) -> None:
    [only] = corpus.collector().collect([UNANSWERABLE])
    assert not only.is_answerable
    assert only.left_out == frozenset()
    assert len(only.candidates) == 4
    assert only.group == UNANSWERABLE.query


def test_the_evidence_without_a_document_is_that_of_a_corpus_that_never_had_it(
    corpus: Corpus, smaller_corpus: Corpus
) -> None:
    _, without = corpus.collector().collect([QUERY])
    [never] = smaller_corpus.collector().collect([LabelledQuery(QUERY.query, frozenset())])
    found, expected = candidates(without), candidates(never)
    assert found.keys() == expected.keys()
    for path, values in expected.items():
        assert found[path] == pytest.approx(values), path
    # "valve" and "limit" stand nowhere else: unknown now, which they weren't with the document.
    [as_it_is, _] = corpus.collector().collect([QUERY])
    assert as_it_is.candidates[0].evidence.unknown == 0.0
    assert without.candidates[0].evidence.unknown > 0.5


def test_a_document_has_the_similarity_of_its_nearest_passage_and_the_best_coverage_of_any(corpus: Corpus) -> None:
    as_it_is, _ = corpus.collector().collect([QUERY])
    valve = as_it_is.candidates[0].evidence
    assert valve.similarity == pytest.approx(1.0, abs=1e-5)
    assert valve.coverage == pytest.approx(1.0)


def test_other_documents_may_be_left_out_with_those_that_answer(corpus: Corpus) -> None:
    asked: list[LabelledQuery] = []

    def leave_out(query: LabelledQuery) -> set[str]:
        asked.append(query)
        return {"valve.md", "pump.md"}

    samples = corpus.collector().collect([QUERY, UNANSWERABLE], leave_out=leave_out)
    assert asked == [QUERY]
    assert [one.left_out for one in samples] == [frozenset(), frozenset({"valve.md", "pump.md"}), frozenset()]
    assert {found.file_path for found in samples[1].candidates} == {"gauge.md", "crank.md"}


def test_leaving_out_everything_leaves_a_sample_without_candidates(corpus: Corpus) -> None:
    everything = {one.file_path for one in DOCUMENTS}
    _, without = corpus.collector().collect([QUERY], leave_out=lambda _: everything)
    assert without.candidates == ()
    assert not without.is_answerable


def test_progress_is_told_query_by_query(corpus: Corpus) -> None:
    told: list[tuple[int, int, str]] = []
    corpus.collector().collect([QUERY, UNANSWERABLE], progress=lambda *said: told.append(said))
    assert told == [(0, 2, QUERY.query), (1, 2, UNANSWERABLE.query)]


WORDS = ["valve", "pump", "gauge", "crank"]


@given(
    st.lists(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), max_size=3), min_size=1, max_size=5),
    st.sets(st.integers(0, 5)),
)
@settings(max_examples=25)
def test_statistics_without_documents_are_those_of_a_corpus_that_never_had_them(
    documents: list[list[list[str]]], numbers: set[int]
) -> None:
    texts = {f"d{number}": [" ".join(passage) for passage in one] for number, one in enumerate(documents)}
    left_out = {f"d{number}" for number in numbers}
    without = StatisticsWithout(Bm25Index(Documents(**texts)), {f"{name}.md" for name in left_out})
    never = Bm25Index(Documents(**{name: one for name, one in texts.items() if name not in left_out}))
    assert isinstance(without, TermStatistics)
    assert without.passage_count() == never.passage_count()
    for word in [*WORDS, "absent"]:
        assert without.passage_frequency(word) == never.passage_frequency(word)
