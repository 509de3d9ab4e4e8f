"""How much a term says, by how many passages contain it."""

from math import log

import pytest

from knowledge_lookup.retrievers import TermStatistics
from knowledge_lookup.retrievers.term_statistics import inverse_passage_frequencies


class Counted:
    """A corpus that is known by its counts only."""

    def __init__(self, total: int, **frequencies: int) -> None:
        self._total = total
        self._frequencies = frequencies

    def passage_count(self) -> int:
        return self._total

    def passage_frequency(self, term: str) -> int:
        return self._frequencies.get(term, 0)


def test_the_weight_is_that_of_bm25() -> None:
    weights = inverse_passage_frequencies(["redis", "ora"], Counted(100, redis=40, ora=1))
    assert weights == pytest.approx({"redis": log(1 + 60.5 / 40.5), "ora": log(1 + 99.5 / 1.5)})


def test_the_rarer_a_term_the_more_it_weighs_and_what_all_passages_contain_still_weighs_something() -> None:
    weights = inverse_passage_frequencies(["none", "one", "some", "all"], Counted(8, one=1, some=4, all=8))
    assert weights["none"] > weights["one"] > weights["some"] > weights["all"] > 0.0


def test_a_frequency_that_counts_deleted_passages_weighs_as_little_as_one_of_all_passages() -> None:
    weights = inverse_passage_frequencies(["stale", "all"], Counted(300, stale=700, all=300))
    assert weights["stale"] == weights["all"] > 0.0


def test_an_empty_corpus_gives_all_terms_the_same_weight_above_zero() -> None:
    weights = inverse_passage_frequencies(["a", "b"], Counted(0))
    assert weights == pytest.approx({"a": log(202.0), "b": log(202.0)})


def test_in_a_handful_of_passages_a_word_of_all_of_them_still_says_something() -> None:
    few = inverse_passage_frequencies(["release"], Counted(8, release=8))
    assert few == inverse_passage_frequencies(["release"], Counted(100, release=8))
    assert few["release"] > 2.0


def test_any_object_with_the_two_methods_is_term_statistics() -> None:
    assert isinstance(Counted(1), TermStatistics)
    assert not isinstance(object(), TermStatistics)
