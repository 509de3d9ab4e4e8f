"""The terms of passages and queries, and the test whether a passage contains one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.search_terms import SearchedText, passage_terms, query_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("连接池", ["连接", "接池"]),
        ("锁", ["锁"]),
        ("分布式锁，缓存", ["分布", "布式", "式锁", "缓存"]),
        ("データ 한국어", ["デー", "ータ", "한국", "국어"]),
        ("tidb_mem_quota_query", ["tidb_mem_quota_query", "tidb", "mem", "quota", "query"]),
        ("ORA-12541", ["ora-12541", "ora", "12541"]),
        ("8005", ["8005"]),
        ("spring.redis.lettuce", ["spring.redis.lettuce", "spring", "redis", "lettuce"]),
        ("/etc/my.cnf:", ["etc/my.cnf", "etc", "my", "cnf"]),
        ("maxPoolSize", ["maxpoolsize", "max", "pool", "size"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("hikari.maxPoolSize", ["hikari.maxpoolsize", "hikari", "maxpoolsize", "max", "pool", "size"]),
        ("__init__", ["__init__", "init"]),
        ("ＥＲＲ＿ＴＩＭＥＯＵＴ", ["err_timeout", "err", "timeout"]),
        ("Redis集群", ["redis", "集群"]),
        ("Größe STRASSE straße", ["grösse", "strasse", "strasse"]),
        ("redis Redis", ["redis", "redis"]),
        ("……！？ + -- #", []),
        ("", []),
    ],
)
def test_a_passage_is_cut_into_pairs_of_cjk_characters_and_identifiers_with_their_parts(
    text: str, terms: list[str]
) -> None:
    assert passage_terms(text) == terms


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("ORA-12541 怎么处理", ["ora-12541", "ora", "12541", "处理"]),
        ("什么是连接池", ["连接", "接池"]),
        ("连接池怎么配置", ["连接", "接池", "配置"]),
        ("How do I set the pool size?", ["set", "pool", "size"]),
        ("THE pool", ["pool"]),
        ("redis Redis ＲＥＤＩＳ", ["redis"]),
        ("?!", []),
        ("", []),
    ],
)
def test_words_that_only_ask_are_left_out_of_a_query_and_each_term_comes_once(query: str, terms: list[str]) -> None:
    assert query_terms(query) == terms


@pytest.mark.parametrize(
    ("query", "terms"), [("怎么办", ["怎么", "么办"]), ("what is it", ["what", "is", "it"]), ("The", ["the"])]
)
def test_a_query_of_words_that_only_ask_keeps_them(query: str, terms: list[str]) -> None:
    assert query_terms(query) == terms


def test_what_is_left_on_both_sides_of_a_word_that_asks_makes_no_pair() -> None:
    assert query_terms("端口是多少网关") == ["端口", "口是", "网关"]


def test_words_that_ask_stay_in_a_passage() -> None:
    assert passage_terms("the 怎么") == ["the", "怎么"]


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("max-pool-size", "max", True),
        ("max-pool-size", "pool", True),
        ("max-pool-size", "size", True),
        ("max-pool-size", "max-pool-size", True),
        ("pooling", "pool", False),
        ("carpool", "pool", False),
        ("pool2", "pool", False),
        ("carpool, then a pool", "pool", True),
        ("mem_quota", "quota", True),
        ("ORA-125410", "ora-12541", False),
        ("错误码8005，", "8005", True),
        ("错误码 18005", "8005", False),
        ("maxPoolSize", "pool", True),
        ("maxPoolSize", "maxpoolsize", True),
        ("maxPoolSize", "ool", False),
        ("ＭＡＸ＿ＰＯＯＬ", "max_pool", True),
        ("Redis集群", "redis", True),
        ("数据库连接池", "连接", True),
        ("数据库连接池", "库池", False),
        ("集 群", "集群", False),
        ("", "pool", False),
    ],
)
def test_latin_terms_are_contained_from_part_to_part_and_cjk_terms_side_by_side(
    text: str, term: str, expected: bool
) -> None:
    assert SearchedText(text).contains(term) is expected


MIXED = st.text(alphabet=st.sampled_from(list("abXYZ09_.-/:' \n中文集。\u0301ßİéÉΩﬃ\u200bŉあ한Ｑ")), max_size=16)


@given(MIXED | st.text(max_size=16))
@example("0XÉ")
@example("hikari.maxPoolSize_v2")
@example("它的maxPoolSize是10")
def test_every_term_of_a_passage_is_contained_in_it(text: str) -> None:
    searched = SearchedText(text)
    assert [term for term in passage_terms(text) if not searched.contains(term)] == []


@given(MIXED | st.text(max_size=16))
def test_terms_are_folded_and_hold_no_white_space(text: str) -> None:
    terms = passage_terms(text)
    assert [term for term in terms if term.casefold() != term or term.split() != [term]] == []


@given(MIXED | st.text(max_size=16))
def test_a_query_has_terms_of_the_passage_that_reads_the_same_and_none_only_if_that_has_none(text: str) -> None:
    terms = query_terms(text)
    assert len(terms) == len(set(terms))
    assert bool(terms) == bool(passage_terms(text))
