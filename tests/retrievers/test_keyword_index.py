"""The exact keyword index: which documents match a query, in which order, and when a match is decisive."""

import logging
import sys
import threading
import time

import pytest

from knowledge_lookup.retrievers.errors import KnowledgeLookupError
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry, KeywordMatches

PAYMENT = "api/payment-errors.md"
REDIS = "infrastructure/redis-config.md"
POOL = "infrastructure/mysql-connection-pool.md"


def entry(path: str, *keywords: str, title: str = "未命名手册") -> KeywordEntry:
    return KeywordEntry(file_path=path, title=title, domain=path.split("/", maxsplit=1)[0], keywords=keywords)


def index_of(*entries: KeywordEntry) -> KeywordIndex:
    index = KeywordIndex()
    for item in entries:
        index.add(item)
    return index


def paths(matches: KeywordMatches) -> list[str]:
    return [match.entry.file_path for match in matches.matches]


@pytest.fixture
def index() -> KeywordIndex:
    return index_of(
        entry(PAYMENT, "ERR_TIMEOUT", "ERR_SIGN_INVALID", "支付网关", "超时", title="支付错误码"),
        entry(REDIS, "Redis", "缓存", "HTTP 429", title="Redis 配置规范"),
        entry(POOL, "max-pool-size", "连接池", "v2.0", title="MySQL 连接池"),
        entry("ops/timeouts.md", "超时", title="全局时限手册"),
    )


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("ERR_TIMEOUT", PAYMENT),
        ("ＥＲＲ＿ＴＩＭＥＯＵＴ", PAYMENT),
        ("err_timeout 怎么处理", PAYMENT),
        ("ERR_TIMEOUT 怎么处理", PAYMENT),
        ("支付网关返回 ERR_TIMEOUT，怎么排查？", PAYMENT),
        ("支付网关超时", PAYMENT),
        ("线上突然一直报 ERR_TIMEOUT，各位大佬帮忙看看咋回事啊", PAYMENT),
        ("请帮我看一下支付网关返回ERR_TIMEOUT是什么原因导致的，谢谢！", PAYMENT),
        ("支付网关为什么会返回 ERR_TIMEOUT", PAYMENT),
        ("ERR_TIMEOUT和ERR_SIGN_INVALID的区别", PAYMENT),
        ("what is ERR_TIMEOUT", PAYMENT),
        ("how to fix ERR_TIMEOUT?", PAYMENT),
        ("What's ERR_TIMEOUT's root cause?", PAYMENT),
        ("Please help me with the ERR_TIMEOUT error", PAYMENT),
        ("redis", REDIS),
        ("HTTP 429", REDIS),
        ("为什么会返回 HTTP 429", REDIS),
        ("Redis配置规范", REDIS),
        ("看一下《Redis 配置规范》", REDIS),
        ("max-pool-size 是什么意思", POOL),
        ("v2.0", POOL),
        ("v2.0.", POOL),
        ("MySQL 连接池", POOL),
    ],
)
def test_one_document_that_accounts_for_the_query_is_decisive(index: KeywordIndex, query: str, path: str) -> None:
    matches = index.match(query)

    assert paths(matches) == [path]
    assert matches.decisive


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("ERR_TIMEOUT E17", "e17"),
        ("ERR_TIMEOUT 重试", "重试"),
        ("ERR_TIMEOUT 能不能重试", "能不能重试"),
        ("ERR_TIMEOUT 是不是支付网关的问题", "是不是"),
        ("Redis 集群", "集群"),
        ("Redis 备份", "备份"),
        ("钉钉返回 HTTP 429", "钉钉"),
        ("为什么 Redis", "为什么"),
        ("why Redis", "why"),
        ("支付网关最近的团建安排", "最近 团建安排"),
        ("ERR_TIMEOUT 以外的错误码", "以外"),
        ("除了 ERR_TIMEOUT 还有哪些错误码", "除 还有哪些"),
        ("不是 ERR_TIMEOUT", "不是"),
        ("没有 ERR_TIMEOUT", "没有"),
        ("沒有 ERR_TIMEOUT", "沒有"),
        ("ERR_TIMEOUT 其他", "其他"),
        ("类似 ERR_TIMEOUT 的错误", "类似"),
        ("ERR_TIMEOUT 等错误", "等"),
        ("ERR_TIMEOUT without retry", "without retry"),
        ("what is not ERR_TIMEOUT", "not"),
        ("ERR_TIMEOUT and others", "others"),
        ("why doesn’t it return ERR_TIMEOUT", "why doesn't return"),
        ("ERR_TIMEOUT 2", "2"),
        ("ERR_TIMEOUT → ?", "→"),
        ("ERR_TIMEOUTの", "の"),
        ("支付网关 报表 申请", "表 申"),
        ("支付网关会员日", "会员日"),
        ("Redis++", "++"),
        ("什么是.Redis", "."),
        ("@Redis", "@"),
        ("#Redis", "#"),
        ("Redis*", "*"),
        ("Redis 问题 -Redis", "-"),
    ],
)
def test_a_hit_that_leaves_something_unsaid_is_not_decisive(index: KeywordIndex, query: str, rest: str) -> None:
    matches = index.match(query)

    assert matches.match_count == 1
    assert not matches.decisive
    assert matches.rest == rest


@pytest.mark.parametrize(
    "query",
    [
        "ERR_TIME",
        "TIMEOUT",
        "rediscover",
        "credis",
        "redis_1",
        "pool",
        "max-pool",
        "v2.0.1",
        "1v2.0",
        "HTTP 4290",
        "X-Redis",
        "今天中午吃什么",
        "",
        "？！",
    ],
)
def test_no_term_matches_inside_a_token(index: KeywordIndex, query: str) -> None:
    matches = index.match(query)

    assert list(matches.matches) == []
    assert matches.match_count == 0
    assert not matches.decisive


def test_a_part_of_a_hyphenated_name_is_not_the_name() -> None:
    index = index_of(entry("a.md", "pool"), entry("b.md", "max-pool-size"))

    assert paths(index.match("max-pool-size 怎么配")) == ["b.md"]
    assert paths(index.match("pool 怎么配")) == ["a.md"]


@pytest.mark.parametrize(
    ("query", "path"),
    [("C 是什么", "c.md"), ("C++ 是什么", "cpp.md"), ("C# 是什么", "csharp.md"), (".NET 是什么", "dotnet.md")],
)
def test_languages_that_differ_in_a_mark_stay_apart(query: str, path: str) -> None:
    index = index_of(
        entry("c.md", "C"),
        entry("cpp.md", "C++"),
        entry("csharp.md", "C#"),
        entry("net.md", "NET"),
        entry("dotnet.md", ".NET"),
    )

    matches = index.match(query)

    assert paths(matches) == [path]
    assert matches.decisive


@pytest.mark.parametrize("query", ["C++ 是什么", "C# 是什么", "什么是 C++", "C* 是什么"])
def test_a_name_without_its_mark_is_not_decisive_for_the_marked_one(query: str) -> None:
    matches = index_of(entry("c.md", "C")).match(query)

    assert matches.match_count == 1
    assert not matches.decisive


def test_a_keyword_of_three_documents_matches_all_three_in_path_order() -> None:
    index = index_of(entry("c.md", "Redis"), entry("a.md", "redis"), entry("b.md", "REDIS"))

    matches = index.match("Redis")

    assert paths(matches) == ["a.md", "b.md", "c.md"]
    assert matches.match_count == 3
    assert not matches.decisive


def test_a_document_whose_matches_are_part_of_anothers_is_dominated(index: KeywordIndex) -> None:
    assert paths(index.match("超时")) == [PAYMENT, "ops/timeouts.md"]
    assert paths(index.match("支付网关超时怎么办")) == [PAYMENT]


def test_documents_with_the_same_matches_do_not_dominate_each_other() -> None:
    index = index_of(entry("a.md", "支付", "超时"), entry("b.md", "支付", "超时"), entry("c.md", "超时"))

    assert paths(index.match("支付超时")) == ["a.md", "b.md"]


def test_a_comparison_of_two_documents_matches_both() -> None:
    index = index_of(entry("sign.md", "ERR_SIGN_INVALID"), entry("timeout.md", "ERR_TIMEOUT"))

    matches = index.match("ERR_TIMEOUT和ERR_SIGN_INVALID的区别")

    assert paths(matches) == ["sign.md", "timeout.md"]
    assert not matches.decisive
    assert matches.rest == ""


def test_a_keyword_inside_a_longer_matched_title_of_another_document_does_not_count() -> None:
    index = index_of(entry("redis.md", "Redis"), entry("guide.md", title="Redis 集群迁移指南"))

    matches = index.match("Redis 集群迁移指南")

    assert paths(matches) == ["guide.md"]
    assert matches.matches[0].equals_title
    assert matches.decisive
    assert paths(index.match("怎么看 Redis 集群迁移指南？")) == ["guide.md"]


def test_a_keyword_counts_where_it_also_stands_outside_the_longer_one() -> None:
    index = index_of(entry("redis.md", "Redis"), entry("cluster.md", "Redis 集群"))

    matches = index.match("Redis 集群和 Redis 的区别")

    assert paths(matches) == ["cluster.md", "redis.md"]
    assert matches.matches[1].spans == {(8, 13)}


def test_terms_that_overlap_partly_both_count() -> None:
    index = index_of(entry("a.md", "支付网关"), entry("b.md", "网关超时"))

    assert paths(index.match("支付网关超时")) == ["a.md", "b.md"]


@pytest.mark.parametrize("word", ["原因", "怎么", "的", "不", "error", "how to", "not"])
def test_a_query_that_equals_a_term_is_decisive_whatever_the_word(word: str) -> None:
    index = index_of(entry("word.md", word), entry("redis.md", "Redis"))

    matches = index.match(f"{word}？")

    assert paths(matches) == ["word.md"]
    assert matches.decisive


def test_a_query_that_equals_a_term_of_two_documents_is_not_decisive(index: KeywordIndex) -> None:
    assert not index.match("超时").decisive


def test_title_equality_comes_first_then_the_longest_match_then_the_path() -> None:
    index = index_of(
        entry("a.md", "连接池"),
        entry("z.md", title="连接池"),
        entry("long.md", "连接池已经耗尽"),
        entry("redis.md", "Redis"),
        entry("0.md", "Redis"),
    )

    assert paths(index.match("连接池")) == ["z.md", "a.md"]
    assert paths(index.match("连接池已经耗尽和 Redis")) == ["long.md", "0.md", "redis.md"]


def test_a_match_names_its_terms_in_query_order_with_their_spans(index: KeywordIndex) -> None:
    matches = index.match("支付网关：ERR_TIMEOUT，又是 ERR_TIMEOUT")

    assert matches.query == "支付网关:err_timeout,又是err_timeout"
    (match,) = matches.matches
    assert match.entry == index.get(PAYMENT)
    assert match.terms == ("支付网关", "err_timeout")
    assert match.spans == {(0, 4), (5, 16), (19, 30)}
    assert match.longest_span == 11
    assert not match.equals_title


def test_only_the_configured_fields_are_indexed() -> None:
    titles = KeywordIndex(fields=["title"])
    keywords = KeywordIndex(fields=["keywords"])
    for index in (titles, keywords):
        index.add(entry("a.md", "Redis", title="缓存手册"))

    assert paths(titles.match("缓存手册")) == ["a.md"]
    assert paths(titles.match("Redis")) == []
    assert paths(keywords.match("缓存手册")) == []
    assert paths(keywords.match("Redis")) == ["a.md"]


@pytest.mark.parametrize("fields", [[], ["summary"], ["keywords", "tags"]])
def test_unknown_or_missing_fields_are_refused_with_the_allowed_names(fields: list[str]) -> None:
    with pytest.raises(KnowledgeLookupError, match=r"can't index the fields .*; name one or both of keywords, title"):
        KeywordIndex(fields=fields)  # type: ignore[arg-type]


def test_an_empty_term_is_refused_with_a_warning_that_names_file_and_term(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        index = index_of(entry("a.md", "Redis", "。。", "\u200b", title="《》"))

    assert [record.getMessage().split(" holds")[0] for record in caplog.records] == [
        "a.md: '。。' in keywords",
        "a.md: '\\u200b' in keywords",
        "a.md: '《》' in title",
    ]
    assert paths(index.match("Redis")) == ["a.md"]
    assert paths(index.match("。。")) == []


def test_adding_a_path_again_replaces_the_document(index: KeywordIndex) -> None:
    replacement = entry(REDIS, "Memcached", title="缓存")

    index.add(replacement)

    assert index.get(REDIS) == replacement
    assert len(index) == 4
    assert paths(index.match("Memcached")) == [REDIS]
    assert paths(index.match("Redis 配置规范")) == []
    assert paths(index.match("HTTP 429")) == []


def test_a_removed_document_is_gone_and_its_shared_terms_stay(index: KeywordIndex) -> None:
    assert index.remove(PAYMENT)

    assert PAYMENT not in index
    assert index.get(PAYMENT) is None
    assert paths(index.match("ERR_TIMEOUT")) == []
    assert paths(index.match("超时")) == ["ops/timeouts.md"]
    assert not index.remove(PAYMENT)


def test_an_index_lists_its_documents(index: KeywordIndex) -> None:
    assert len(index) == 4
    assert REDIS in index
    assert sorted(item.file_path for item in index) == [PAYMENT, POOL, REDIS, "ops/timeouts.md"]


def test_a_keyword_given_twice_or_equal_to_the_title_counts_once() -> None:
    index = index_of(entry("a.md", "Redis", "redis", "ＲＥＤＩＳ", title="Redis"))

    assert index.match("Redis").match_count == 1
    index.remove("a.md")
    assert index.match("Redis").match_count == 0


def test_a_long_query_is_matched_on_its_beginning_and_never_decisive(index: KeywordIndex) -> None:
    padding = "的" * 1_990

    assert index.match(f"Redis{padding}").decisive
    assert paths(index.match(f"Redis{padding}{padding}")) == [REDIS]
    assert not index.match(f"Redis{padding}{padding}").decisive
    assert paths(index.match(f"{padding}{padding}Redis")) == []


def test_a_long_query_is_not_cut_inside_a_token() -> None:
    index = index_of(entry("a.md", "ERR"), entry("b.md", "ERR_TIMEOUT"))

    for length in range(1_985, 2_001):
        assert "a.md" not in paths(index.match("的" * length + "ERR_TIMEOUT 怎么处理"))
        assert "a.md" not in paths(index.match(" x" * (length // 2) + " ERR\u200b_TIMEOUT"))


@pytest.mark.parametrize("filler", ["x ", "x", "支付", "\u200b\u0301", "(", "不"])
def test_of_a_query_of_a_million_characters_no_more_than_the_beginning_is_looked_at(
    index: KeywordIndex, filler: str
) -> None:
    matches = index.match("  Redis " + filler * (1_000_000 // len(filler)))

    assert paths(matches) == [REDIS]
    assert not matches.decisive
    assert len(matches.query) <= 2_000


def test_lone_surrogates_in_queries_and_terms_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    index = index_of(entry("a.md", "\ud800", "Redis"))

    assert paths(index.match("Redis \udfff")) == ["a.md"]
    assert paths(index.match("\ud800")) == ["a.md"]
    assert not caplog.records


def test_a_keyword_of_very_many_documents_ranks_them_as_one_of_few_does() -> None:
    many = [entry(f"ops/{number:04}.md", "Redis", *(["缓存"] if number % 2 else [])) for number in range(1_500)]
    index = index_of(*many, entry("z.md", "别名", title="Redis"))
    everyone = [document.file_path for document in many]

    for _ in range(2):  # the second time from what was kept
        whole = index.match("redis")
        assert whole.match_count == 1_501
        assert paths(whole) == ["z.md", *everyone]
        assert whole.matches[0].equals_title
        assert not whole.matches[1].equals_title
        assert paths(index.match("redis 怎么配")) == [*everyone, "z.md"]
        both = index.match("redis 缓存怎么配")
        assert paths(both) == everyone[1::2]
        assert both.matches[0].terms == ("redis", "缓存")
        assert both.matches[0].spans == {(0, 5), (5, 7)}
        assert index.match("缓存 redis").matches[0].spans == {(0, 2), (2, 7)}


def test_what_is_kept_of_a_keyword_of_very_many_documents_follows_every_change() -> None:
    index = index_of(*(entry(f"{number:04}.md", "Redis") for number in range(1_200)))
    assert index.match("redis").match_count == 1_200
    index.remove("0000.md")
    index.add(entry("a.md", "Redis", title="Redis"))
    index.add(entry("0001.md", "别的"))
    assert paths(index.match("redis"))[:2] == ["a.md", "0002.md"]
    assert index.match("redis").match_count == 1_199


def test_matches_are_a_sequence_and_single_documents_can_be_picked_out() -> None:
    index = index_of(entry("b.md", "Redis", "缓存"), entry("a.md", "Redis", "集群"), entry("c.md", "Redis"))
    matches = index.match("redis 怎么配").matches

    assert [match.entry.file_path for match in matches[1:]] == ["b.md", "c.md"]
    assert matches[-1].entry.file_path == "c.md"
    assert [match.entry.file_path for match in matches[::-1]] == ["c.md", "b.md", "a.md"]
    with pytest.raises(IndexError, match="3 matches"):
        matches[3]
    assert [match.entry.file_path for match in matches.among(["c.md", "nowhere.md", "a.md"])] == ["a.md", "c.md"]
    assert matches == tuple(matches)
    assert matches != index.match("缓存").matches
    assert list(reversed(matches)) == list(matches)[::-1]


def test_very_many_matches_can_be_walked_in_any_way() -> None:
    index = index_of(*(entry(f"{number:04}.md", "Redis") for number in range(3_000)))
    matches = index.match("redis").matches
    expected = list(matches)

    assert [matches[at] for at in range(len(matches))] == expected
    assert list(reversed(matches)) == expected[::-1]
    assert list(matches[150:10:-7]) == expected[150:10:-7]
    assert list(matches[2_990:]) == expected[2_990:]
    assert len(repr(matches)) < 2_000


def test_readers_see_a_replacement_wholly_or_not_at_all() -> None:
    versions = [entry("flip.md", "alpha", "bravo"), entry("flip.md", "charlie", "delta", "echo")]
    allowed = {("alpha", "bravo"), ("charlie", "delta", "echo")}
    index = index_of(versions[0], entry("fixed.md", "foxtrot"))
    stop = threading.Event()
    seen: set[tuple[str, ...]] = set()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            found = {
                match.entry.file_path: match.terms
                for match in index.match("alpha bravo charlie delta echo foxtrot").matches
            }
            seen.add(found.get("flip.md", ()))
            if found.get("fixed.md") != ("foxtrot",) or found.get("flip.md") not in allowed:
                wrong.append(found)

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    readers = [threading.Thread(target=read) for _ in range(4)]
    try:
        for reader in readers:
            reader.start()
        for turn in range(1_500):
            index.add(versions[turn % 2])
        while seen < allowed and all(reader.is_alive() for reader in readers):
            index.add(versions[1])
            time.sleep(0.01)
            index.add(versions[0])
            time.sleep(0.01)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(switch_interval)

    assert wrong == []
    assert seen == allowed


def test_writers_in_many_threads_leave_exactly_what_they_added() -> None:
    index = KeywordIndex()

    def write(number: int) -> None:
        for turn in range(100):
            index.add(entry(f"{number}.md", "共享词", f"own{number}", f"turn{turn}"))
        index.add(entry(f"gone{number}.md", "共享词", "ABANDONED"))
        index.remove(f"gone{number}.md")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert paths(index.match("共享词")) == [f"{number}.md" for number in range(8)]
    assert index.match("turn99").match_count == 8
    assert index.match("turn98").match_count == 0
    assert index.match("ABANDONED").match_count == 0
