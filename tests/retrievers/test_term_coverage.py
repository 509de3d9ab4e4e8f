"""The share of a query's words that a passage has, and whether the two are written in different scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.search_terms import passage_terms
from knowledge_lookup.retrievers.term_coverage import differs_in_script, term_coverage


def test_rare_terms_count_more() -> None:
    weights = {"ora-12541": 6.0, "监听": 2.0, "服务": 1.0, "重启": 1.0}
    assert term_coverage("ORA-12541", weights) == pytest.approx(0.6)
    assert term_coverage("重启监听服务", weights) == pytest.approx(0.4)


def test_all_terms_are_one_and_none_is_zero() -> None:
    weights = {"max": 1.5, "pool": 2.5}
    assert term_coverage("max-pool-size", weights) == 1.0
    assert term_coverage("pooling at maximum", weights) == 0.0
    assert term_coverage("", weights) == 0.0


def test_a_query_without_terms_is_covered_by_nothing() -> None:
    assert term_coverage("max-pool-size", {}) == 0.0


@given(
    st.text(alphabet="ab 集群连接-_A", max_size=20),
    st.dictionaries(st.text(alphabet="ab集群连接", min_size=1, max_size=3), st.floats(0.01, 20), max_size=5),
)
def test_coverage_is_between_zero_and_one_and_grows_with_the_text(text: str, weights: dict[str, float]) -> None:
    coverage = term_coverage(text, weights)
    assert 0.0 <= coverage <= 1.0 + 1e-9
    assert term_coverage(f"{text} {' '.join(weights)}", weights) == pytest.approx(1.0 if weights else 0.0)
    assert coverage <= term_coverage(f"{text} b 集群", weights) + 1e-9


@given(st.text(max_size=20))
def test_a_passage_covers_its_own_terms(text: str) -> None:
    terms = passage_terms(text)
    assert term_coverage(text, dict.fromkeys(terms, 1.0)) == (1.0 if terms else 0.0)


CHINESE = "网关超时后先看连接池（maxPoolSize）"
ENGLISH = "check the pool first when the gateway times out"


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("why does the gateway time out", CHINESE, True),
        ("网关为什么超时", ENGLISH, True),
        ("网关为什么超时", CHINESE, False),
        ("why does the gateway time out", ENGLISH, False),
        ("gateway 超时", CHINESE, False),
        ("maxPoolSize", CHINESE, True),
        # a Chinese word among many English ones: neither side is without the other's script
        ("网关超时", ENGLISH + " 网关", False),
        # one CJK character for three words isn't CJK for the most part
        ("is the gateway 慢", ENGLISH, False),
        ("?", CHINESE, False),
        ("网关", "", False),
        ("", "", False),
    ],
)
def test_scripts_differ_if_one_side_is_cjk_and_the_other_has_none_of_it(query: str, text: str, expected: bool) -> None:
    assert differs_in_script(query, text) is expected
