"""What matched terms leave of a query, and the word lists by which it is judged."""

import itertools
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers.decisiveness import QueryWords, Rest, accounts_for, what_is_left
from knowledge_lookup.retrievers.normal_form import normal_form

LISTS = ("question_words", "general_words", "topic_words", "negations", "negation_lookalikes", "question_idioms")
TERM = "err_timeout"


def read(name: str) -> list[str]:
    text = files("knowledge_lookup.retrievers.words").joinpath(f"{name}.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def words() -> QueryWords:
    return QueryWords.load()


def left(query: str, words: QueryWords) -> Rest:
    """What ERR_TIMEOUT leaves of a query."""
    normal = normal_form(query)
    starts = [start for start in range(len(normal)) if normal.startswith(TERM, start)]
    return what_is_left(normal, [(start, start + len(TERM)) for start in starts], words)


@pytest.mark.parametrize(
    "query",
    [
        "ERR_TIMEOUT 怎么办",
        "ERR_TIMEOUT怎么解决？",
        "ERR_TIMEOUT 如何解决",
        "ERR_TIMEOUT 是什么意思啊",
        "什么是 ERR_TIMEOUT",
        "ERR_TIMEOUT 是什么原因导致的",
        "为啥会报 ERR_TIMEOUT",
        "为什么我们一直返回 ERR_TIMEOUT 呢",
        "ERR_TIMEOUT 咋整",
        "ERR_TIMEOUT咋回事",
        "请问 ERR_TIMEOUT 的含义是什么",
        "请教一下，遇到 ERR_TIMEOUT 该怎么处理",
        "麻烦帮我查一下 ERR_TIMEOUT",
        "帮忙看下ERR_TIMEOUT的错误信息",
        "ERR_TIMEOUT 的解决方案",
        "ERR_TIMEOUT 排查步骤",
        "ERR_TIMEOUT 的原因分析",
        "报了个 ERR_TIMEOUT 的错",
        "出现了ERR_TIMEOUT这个错误码，怎么定位？",
        "抛出 ERR_TIMEOUT 时要怎么处理",
        "帮忙看下 ERR_TIMEOUT",
        "有人遇到过 ERR_TIMEOUT 吗，会怎么样",
        "错误码：ERR_TIMEOUT",
        "【求助】ERR_TIMEOUT！",
        "有没有人知道 ERR_TIMEOUT 怎么解决",
        "ERR_TIMEOUT 能不能解决",
        "ERR_TIMEOUT 要不要处理",
        "ERR_TIMEOUT 有哪些原因",
        "ERR_TIMEOUT 詳細說明",  # 詳細: two characters left
        "為什麼會出現 ERR_TIMEOUT",
        "what does ERR_TIMEOUT mean?",
        "What causes ERR_TIMEOUT?",
        "why am I getting ERR_TIMEOUT",
        "I'm seeing ERR_TIMEOUT, how do I fix it?",
        "how can we troubleshoot the ERR_TIMEOUT issue",
        "error code: ERR_TIMEOUT",
        "root cause of ERR_TIMEOUT",
        "I don’t know what ERR_TIMEOUT means",
        "I would like to know about ERR_TIMEOUT",
        "any idea how to get rid of 'ERR_TIMEOUT'?",
        "ERR_TIMEOUT error 怎么 fix",
        "fix ERR_TIMEOUT, 'how to'?!",
        "error: handling ERR_TIMEOUT",
    ],
)
def test_asking_reporting_and_handling_words_leave_nothing_to_ask(words: QueryWords, query: str) -> None:
    rest = left(query, words)

    assert accounts_for(rest)
    assert len(rest.text) <= 2


@pytest.mark.parametrize(
    "query",
    [
        "ERR_TIMEOUT 之外的错误",
        "ERR_TIMEOUT外的错误码",
        "除了ERR_TIMEOUT",
        "除 ERR_TIMEOUT 外",
        "而不是 ERR_TIMEOUT",
        "并非 ERR_TIMEOUT",
        "别报 ERR_TIMEOUT",
        "别的 ERR_TIMEOUT",
        "无 ERR_TIMEOUT",
        "未报 ERR_TIMEOUT",
        "ERR_TIMEOUT 解决不了",
        "ERR_TIMEOUT 为什么没有返回",
        "是不是不报 ERR_TIMEOUT",
        "有没有不报 ERR_TIMEOUT 的办法",
        "ERR_TIMEOUT 无法处理",
        "不区别 ERR_TIMEOUT",
        "ERR_TIMEOUT 还有什么",
        "not ERR_TIMEOUT",
        "ERR_TIMEOUT isn't it",
        "why don't I see ERR_TIMEOUT",
        "why don´t I see ERR_TIMEOUT",
        "ERR_TIMEOUT can’t happen",
        "it cannot be ERR_TIMEOUT",
        "other than ERR_TIMEOUT",
        "errors except ERR_TIMEOUT",
        "instead of ERR_TIMEOUT",
        "unless ERR_TIMEOUT",
        "never ERR_TIMEOUT",
        "errors like ERR_TIMEOUT",
        "no ERR_TIMEOUT",
    ],
)
def test_negations_and_turns_away_are_never_accounted_for(words: QueryWords, query: str) -> None:
    rest = left(query, words)

    assert not accounts_for(rest)
    assert rest.has_negation or rest.has_token


@pytest.mark.parametrize(
    "query", ["ERR_TIMEOUT 的区别", "ERR_TIMEOUT 有什么不同", "删除 ERR_TIMEOUT", "特别 ERR_TIMEOUT"]
)
def test_words_that_only_look_like_negations_negate_nothing(words: QueryWords, query: str) -> None:
    rest = left(query, words)

    assert not rest.has_negation
    assert accounts_for(rest)


@pytest.mark.parametrize(
    ("query", "text", "count"),
    [
        ("ERR_TIMEOUT 重试", "重试", 2),
        ("ERR_TIMEOUT 重试吗", "重试", 2),
        ("客户端 ERR_TIMEOUT", "客户端", 3),
        ("ERR_TIMEOUT 重试多久", "重试多久", 4),
        ("重试 ERR_TIMEOUT 幂等", "重试 幂等", 4),
    ],
)
def test_at_most_two_han_characters_may_be_left_in_all(words: QueryWords, query: str, text: str, count: int) -> None:
    rest = left(query, words)

    assert rest.text == text
    assert rest.cjk_count == count
    assert accounts_for(rest) == (count <= 2)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ERR_TIMEOUT 报表系统", "报表系统"),
        ("申请 ERR_TIMEOUT 权限", "申请 权限"),
        ("ERR_TIMEOUT 会议室", "会议室"),
        ("怎么做主从 ERR_TIMEOUT", "做主从"),
        ("ERR_TIMEOUT 怎么做", ""),
        ("要报 ERR_TIMEOUT", ""),
        ("看下游 ERR_TIMEOUT", "看下游"),
        ("ERR_TIMEOUT 为什么会员价", "会员价"),
        ("ERR_TIMEOUT 慢响应怎么处理", "慢响应"),
        ("遇到过期键 ERR_TIMEOUT", "过期键"),
    ],
)
def test_a_single_character_word_is_taken_out_only_where_it_stands_alone(
    words: QueryWords, query: str, text: str
) -> None:
    assert left(query, words).text == text


@pytest.mark.parametrize(
    "topic", ["监控", "配置", "性能", "升级", "部署", "安装", "备份", "集群", "连接", "日志", "数据", "恢复"]
)
def test_a_word_with_a_topic_of_its_own_is_left(words: QueryWords, topic: str) -> None:
    assert left(f"ERR_TIMEOUT 的{topic}怎么处理", words).text == topic


@pytest.mark.parametrize("topic", ["批处理", "错误率", "返回值", "error handling", "return code"])
def test_a_topic_made_of_general_words_is_left_whole(words: QueryWords, topic: str) -> None:
    rest = left(f"ERR_TIMEOUT {topic} 怎么办", words)

    assert rest.text == topic
    assert not accounts_for(rest)


@pytest.mark.parametrize("token", ["retry", "e17", "2", "config", "log", "explain", "get", "v1.2", "naïve", "тест"])
def test_any_unknown_latin_word_or_number_blocks(words: QueryWords, token: str) -> None:
    rest = left(f"how to fix {token} ERR_TIMEOUT", words)

    assert rest.has_token
    assert rest.text == token
    assert not accounts_for(rest)


@pytest.mark.parametrize(
    "query",
    [
        "ERR_TIMEOUT++",
        "ERR_TIMEOUT# 是什么",
        "@ERR_TIMEOUT",
        ".ERR_TIMEOUT",
        "ERR_TIMEOUT*",
        "*ERR_TIMEOUT",
        "看 -ERR_TIMEOUT",
    ],
)
def test_marks_that_make_another_name_block(words: QueryWords, query: str) -> None:
    rest = left(query, words)

    assert rest.other
    assert not accounts_for(rest)


@pytest.mark.parametrize(
    "query",
    ["ERR_TIMEOUT = ?", "ERR_TIMEOUT 😭", "ERR_TIMEOUTとは", "ERR_TIMEOUT 란", "$ERR_TIMEOUT", "ERR_TIMEOUT\ud800"],
)
def test_symbols_and_other_scripts_block(words: QueryWords, query: str) -> None:
    rest = left(query, words)

    assert rest.other
    assert not accounts_for(rest)


@pytest.mark.parametrize(
    "query",
    [
        "【ERR_TIMEOUT】怎么办",
        "`ERR_TIMEOUT`, how to fix",
        "ERR_TIMEOUT. What is it?",
        "ERR_TIMEOUT——怎么处理",
        "怎么处理:“ERR_TIMEOUT”",
    ],
)
def test_punctuation_is_dropped(words: QueryWords, query: str) -> None:
    assert left(query, words) == Rest(text="", has_token=False, has_negation=False, cjk_count=0, other=False)


def test_overlapping_spans_leave_what_none_of_them_covers(words: QueryWords) -> None:
    rest = what_is_left("支付网关超时重试", [(0, 4), (2, 6)], words)

    assert rest.text == "重试"


def test_words_given_by_the_caller_replace_the_packages_lists() -> None:
    none = QueryWords(
        question_words=[], general_words=[], topic_words=[], negations=[], negation_lookalikes=[], question_idioms=[]
    )
    some = QueryWords(
        question_words=["干嘛", "quid est"],
        general_words=[],
        topic_words=[],
        negations=["nix"],
        negation_lookalikes=[],
        question_idioms=[],
    )

    assert left("ERR_TIMEOUT 怎么处理", none).text == "怎么处理"
    assert left("ERR_TIMEOUT 干嘛", some).text == ""
    assert left("quid est ERR_TIMEOUT", some).text == ""
    assert left("quid ERR_TIMEOUT", some).text == "quid"
    assert left("nix ERR_TIMEOUT", some).has_negation
    assert not left("phoenix ERR_TIMEOUT", some).has_negation


@pytest.mark.parametrize("name", [f"{name}.{language}" for name in LISTS for language in ("zh", "en")])
def test_word_lists_are_in_normal_form_and_hold_each_word_once(name: str) -> None:
    listed = read(name)

    assert listed
    assert len(listed) == len(set(listed))
    assert [word for word in listed if word.lstrip("'") != normal_form(word)] == []


def test_no_question_word_or_general_word_negates(words: QueryWords) -> None:
    listed = itertools.chain.from_iterable(
        read(f"{name}.{language}") for name in ("question_words", "general_words") for language in ("zh", "en")
    )

    assert [word for word in listed if words.negates(words.without_idioms(word))] == []


def test_every_question_idiom_contains_a_negation_and_is_taken_out_whole(words: QueryWords) -> None:
    for idiom in read("question_idioms.zh") + read("question_idioms.en"):
        assert words.negates(idiom), idiom
        assert words.without_idioms(idiom) == " ", idiom


def test_every_negation_is_found_in_a_rest(words: QueryWords) -> None:
    for negation in read("negations.zh") + read("negations.en"):
        assert left(f"ERR_TIMEOUT {negation}", words).has_negation or negation == "'t", negation


PIECES = [
    "怎么处理",
    "的",
    "报",
    "how to",
    "is",
    "不",
    "not",
    "重试",
    "x1",
    "+",
    "，",
    ".",
    "'s",
    " ",
    "😭",
    "か",
    TERM,
]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_the_rest_names_exactly_what_keeps_a_match_from_being_decisive(pieces: list[str]) -> None:
    rest = left("".join(pieces), QueryWords.load())

    assert bool(rest.text) == (rest.has_token or rest.other or rest.cjk_count > 0)
    assert not (rest.has_negation and not rest.text)


@pytest.mark.parametrize(
    ("query", "term"),
    [
        ("redis集群 a", "redis集群"),
        ("us 区 redis集群", "redis集群"),
        ("redis it", "redis"),
        ("redis us", "redis"),
        ("跳过 err_timeout", "err_timeout"),
        ("err_timeout 后面的错误码", "err_timeout"),
        ("忽略 err_timeout", "err_timeout"),
        ("!err_timeout", "err_timeout"),
        ("--err_timeout", "err_timeout"),
        ("连接超时怎么办", "超时"),
        ("锁超时", "超时"),
        ("止血钳", "止血"),
        ("支付网关团建", "支付网关"),
        ("支付宝怎么接入", "支付"),
    ],
)
def test_what_names_something_else_or_turns_away_is_not_accounted_for(words: QueryWords, query: str, term: str) -> None:
    start = query.index(term)
    assert not accounts_for(what_is_left(query, [(start, start + len(term))], words))
