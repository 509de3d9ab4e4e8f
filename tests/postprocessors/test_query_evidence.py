"""The features of passages for one query."""

from math import log, log1p

import pytest

from knowledge_lookup.postprocessors import Evidence
from knowledge_lookup.postprocessors.query_evidence import QueryEvidence, backgrounds
from tests.postprocessors.nodes import Counted


def weight(total: int, containing: int) -> float:
    return log(1 + (total - containing + 0.5) / (containing + 0.5))


CORPUS = Counted(100, {"redis": 4, "淘汰": 1})
REDIS, EVICTION, KAFKA = weight(100, 4), weight(100, 1), weight(100, 0)


def evidence(query: str, text: str, similarity: float = 0.9, *, background: float = 0.8) -> Evidence:
    return QueryEvidence(query, CORPUS).of(text, similarity, background=background)


def test_the_features_of_a_passage() -> None:
    total = REDIS + EVICTION + KAFKA
    assert evidence("Redis 淘汰 kafka", "Redis 集群", 0.85) == Evidence(
        similarity=0.85,
        lift=pytest.approx(0.05),
        coverage=pytest.approx(REDIS / total),
        unknown=pytest.approx(KAFKA / total),
        information=pytest.approx(log1p(total)),
        other_script=False,
    )


def test_coverage_belongs_to_the_passage_and_what_is_unknown_to_the_query() -> None:
    both, none = evidence("Redis 淘汰", "Redis 的淘汰策略"), evidence("Redis 淘汰", "网关")
    assert (both.coverage, none.coverage) == (1.0, 0.0)
    assert both.unknown == none.unknown == 0.0
    assert both.information == none.information == pytest.approx(log1p(REDIS + EVICTION))


def test_a_query_whose_words_occur_nowhere_is_unknown_altogether() -> None:
    assert evidence("kafka flink", "Redis").unknown == 1.0


def test_a_passage_less_similar_than_others_has_a_negative_lift() -> None:
    assert evidence("Redis", "Redis", 0.5, background=0.8).lift == pytest.approx(-0.3)
    assert evidence("Redis", "Redis", 0.5, background=0.0).lift == 0.5


def test_a_passage_at_similarity_zero_has_features_like_any_other() -> None:
    found = evidence("Redis", "Redis", 0.0)
    assert (found.similarity, found.coverage) == (0.0, 1.0)


def test_a_query_without_terms_says_nothing() -> None:
    found = evidence("?!", "Redis")
    assert (found.coverage, found.unknown, found.information) == (0.0, 0.0, 0.0)


def test_an_english_question_on_a_chinese_passage_is_marked() -> None:
    assert evidence("how does eviction work", "淘汰策略的取值").other_script is True
    assert evidence("how does eviction work", "values of the policy").other_script is False


# How similar other documents are


def compared(
    similarities: dict[str, list[float]], texts: dict[str, str] | None = None, *, unrelated: float | None = None
) -> dict[str, float]:
    return backgrounds(similarities, texts or {path: path for path in similarities}, unrelated=unrelated)


def test_the_background_of_a_document_is_the_mean_of_the_others_by_their_best_passages() -> None:
    found = compared({"a": [0.5, 0.9], "b": [0.8, 0.1], "c": [0.6]})
    assert found == pytest.approx({"a": (0.8 + 0.6) / 2, "b": (0.9 + 0.6) / 2, "c": (0.9 + 0.8) / 2})


def test_of_many_others_only_the_five_nearest_count() -> None:
    similarities = {str(number): [0.9 - 0.1 * number] for number in range(8)}
    found = compared(similarities)
    assert found["0"] == pytest.approx((0.8 + 0.7 + 0.6 + 0.5 + 0.4) / 5)
    assert found["4"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.6 + 0.4) / 5)
    # who isn't among the nearest six has five others all the same
    assert found["5"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.6 + 0.5) / 5)
    assert found["7"] == found["6"] == found["5"]


def test_a_document_by_itself_is_compared_with_its_own_weaker_half() -> None:
    assert compared({"a": [0.5, 0.9, 0.6, 0.8]}) == {"a": pytest.approx((0.6 + 0.5) / 2)}
    assert compared({"a": [0.5, 0.9, 0.6]}) == {"a": pytest.approx((0.6 + 0.5) / 2)}
    assert compared({"a": [0.7]}) == {"a": 0.7}


def test_others_at_similarity_zero_count() -> None:
    assert compared({"a": [0.9], "b": [0.0]}) == {"a": 0.0, "b": 0.9}
    assert compared({}) == {}


def test_copies_of_a_document_do_not_count_as_others() -> None:
    runbook = "Who approves a rollback: the release manager on duty in {}; roll back within ten minutes."
    texts = {city: runbook.format(city) for city in ("London", "Sydney")} | {"vacation": "How vacation is approved."}
    found = compared({"London": [0.9], "Sydney": [0.89], "vacation": [0.7]}, texts)
    assert found == pytest.approx({"London": 0.7, "Sydney": 0.7, "vacation": (0.9 + 0.89) / 2})


def test_where_there_are_fewer_than_two_others_what_is_unrelated_stands_in() -> None:
    assert compared({"a": [0.9]}, unrelated=0.8) == {"a": pytest.approx(0.8)}
    found = compared({"a": [0.9], "b": [0.85]}, unrelated=0.8)
    assert found == pytest.approx({"a": (0.85 + 0.8) / 2, "b": (0.9 + 0.8) / 2})
    # never more than what others there are have
    assert compared({"a": [0.9], "b": [0.5]}, unrelated=0.8)["a"] == pytest.approx(0.5)
    assert compared({"a": [0.9], "b": [0.85], "c": [0.85]}, unrelated=0.5)["a"] == pytest.approx(0.85)
