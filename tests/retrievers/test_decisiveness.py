"""What matched terms leave of a query, and the word lists by which it is judged."""

from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers import KeywordEntry, KeywordIndex
from knowledge_lookup.retrievers.decisiveness import QueryWords, what_is_left
from knowledge_lookup.retrievers.normal_form import normal_form

LISTS = ("question_words", "general_words", "action_words", "dependent_words", "topic_words")
TERM = "err_timeout"


def read(name: str) -> list[str]:
    text = files("knowledge_lookup.retrievers.words").joinpath(f"{name}.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def words() -> QueryWords:
    return QueryWords.load()


def left(query: str, words: QueryWords) -> str:
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
        "错误码：ERR_TIMEOUT",
        "【求助】ERR_TIMEOUT！",
        "有没有人知道 ERR_TIMEOUT 怎么解决",
        "ERR_TIMEOUT 能不能解决",
        "ERR_TIMEOUT 要不要处理",
        "ERR_TIMEOUT 有哪些原因",
        "知道 ERR_TIMEOUT 是什么意思吗",
        "我们遇到了 ERR_TIMEOUT，该怎么办",
        "ERR_TIMEOUT 为什么会出现",
        "线上又报 ERR_TIMEOUT 了，怎么处理",
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
        "What should I do when I get ERR_TIMEOUT?",
        "why does ERR_TIMEOUT happen",
        "can you help me fix ERR_TIMEOUT",
        "any idea how to get rid of 'ERR_TIMEOUT'?",
        "ERR_TIMEOUT error 怎么 fix",
        "fix ERR_TIMEOUT, 'how to'?!",
        "error: handling ERR_TIMEOUT",
    ],
)
def test_asking_reporting_and_handling_words_leave_nothing_to_ask(words: QueryWords, query: str) -> None:
    assert left(query, words) == ""


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
def test_a_negation_or_a_turn_away_is_left(words: QueryWords, query: str) -> None:
    assert left(query, words)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ERR_TIMEOUT 重试", "重试"),
        ("ERR_TIMEOUT 能不能重试", "能不能重试"),
        ("ERR_TIMEOUT 有哪些子码", "有哪些子码"),
        ("ERR_TIMEOUT 昨天出错的原因", "昨天"),
        ("安卓 ERR_TIMEOUT", "安卓"),
        ("弃用 ERR_TIMEOUT", "弃用"),
        ("怎么选 ERR_TIMEOUT", "选"),
        ("怎么下 ERR_TIMEOUT", "下"),
        ("老 ERR_TIMEOUT", "老"),
        ("重试 ERR_TIMEOUT 幂等", "重试 幂等"),
        ("怎么做主从 ERR_TIMEOUT", "主从"),
    ],
)
def test_a_word_that_is_not_listed_is_left_however_short(words: QueryWords, query: str, text: str) -> None:
    assert left(query, words) == text


@pytest.mark.parametrize(
    ("with_action", "without"),
    [
        ("为什么报 ERR_TIMEOUT", "为什么 ERR_TIMEOUT"),
        ("为什么我们一直返回 ERR_TIMEOUT", "为什么我们一直 ERR_TIMEOUT"),
        ("我们遇到一个 ERR_TIMEOUT", "我们有一个 ERR_TIMEOUT"),
        ("什么情况下会报 ERR_TIMEOUT", "ERR_TIMEOUT 什么情况"),
        ("有人知道 ERR_TIMEOUT 怎么处理", "有人知道 ERR_TIMEOUT"),
        ("why am I getting ERR_TIMEOUT", "why ERR_TIMEOUT"),
        ("why does ERR_TIMEOUT occur", "why does ERR_TIMEOUT"),
        ("we are seeing our ERR_TIMEOUT again", "our ERR_TIMEOUT"),
        ("how to fix: when ERR_TIMEOUT", "when ERR_TIMEOUT"),
    ],
)
def test_a_dependent_word_is_taken_out_only_beside_a_word_that_reports_or_handles(
    words: QueryWords, with_action: str, without: str
) -> None:
    assert left(with_action, words) == ""
    assert left(without, words)


@pytest.mark.parametrize(
    "query",
    [
        "为什么选 ERR_TIMEOUT",
        "为什么我们用 ERR_TIMEOUT",
        "哪些在用 ERR_TIMEOUT",
        "帮我搞一个 ERR_TIMEOUT",
        "给我一个 ERR_TIMEOUT",
        "ERR_TIMEOUT 在哪里",
        "ERR_TIMEOUT 怎么样",
        "ERR_TIMEOUT 怎么用",
        "ERR_TIMEOUT 有什么问题",
        "ERR_TIMEOUT 解决了吗",
        "是不是 ERR_TIMEOUT 报错了",
        "谁知道 ERR_TIMEOUT",
        "Where is our ERR_TIMEOUT?",
        "Why do we have ERR_TIMEOUT?",
        "When will we have ERR_TIMEOUT?",
        "When do we get ERR_TIMEOUT?",
        "Is ERR_TIMEOUT fixed?",
        "Did it return ERR_TIMEOUT?",
        "Which ERR_TIMEOUT",
        "How is ERR_TIMEOUT?",
        "How about ERR_TIMEOUT?",
        "What happened to ERR_TIMEOUT",
        "Do we have ERR_TIMEOUT?",
    ],
)
def test_asking_for_a_choice_a_place_a_date_a_state_or_the_thing_itself_is_left(words: QueryWords, query: str) -> None:
    assert left(query, words)


@pytest.mark.parametrize(
    "topic",
    [
        "监控",
        "配置",
        "性能",
        "升级",
        "部署",
        "安装",
        "备份",
        "集群",
        "连接",
        "日志",
        "数据",
        "恢复",
        "使用",
        "官网",
        "源码",
        "培训",
    ],
)
def test_a_word_with_a_topic_of_its_own_is_left(words: QueryWords, topic: str) -> None:
    assert left(f"ERR_TIMEOUT 的{topic}怎么处理", words) == topic


@pytest.mark.parametrize("topic", ["解决什么", "发生了什么", "导致什么", "报修", "error handling", "what is returning"])
def test_a_topic_made_of_listed_words_is_left_whole(words: QueryWords, topic: str) -> None:
    assert left(f"{topic} ERR_TIMEOUT", words) == topic


@pytest.mark.parametrize(
    "topic",
    [
        "批处理",
        "处理能力",
        "返回值",
        "错误率",
        "提示词",
        "显示器",
        "问题单",
        "相关性",
        "说明书",
        "报表",
        "申请",
        "这个月",
        "return code",
    ],
)
def test_a_topic_that_contains_listed_words_is_left_in_part(words: QueryWords, topic: str) -> None:
    assert left(f"ERR_TIMEOUT {topic} 怎么办", words)


@pytest.mark.parametrize("token", ["retry", "e17", "2", "config", "log", "explain", "get", "v1.2", "naïve", "тест"])
def test_any_unknown_latin_word_or_number_is_left(words: QueryWords, token: str) -> None:
    assert left(f"how to fix {token} ERR_TIMEOUT", words) == token


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
def test_a_mark_that_makes_another_name_is_left(words: QueryWords, query: str) -> None:
    assert left(query, words)


@pytest.mark.parametrize(
    "query",
    ["ERR_TIMEOUT = ?", "ERR_TIMEOUT 😭", "ERR_TIMEOUTとは", "ERR_TIMEOUT 란", "$ERR_TIMEOUT", "ERR_TIMEOUT\ud800"],
)
def test_symbols_and_other_scripts_are_left(words: QueryWords, query: str) -> None:
    assert left(query, words)


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
    assert left(query, words) == ""


def test_overlapping_spans_leave_what_none_of_them_covers(words: QueryWords) -> None:
    assert what_is_left("支付网关超时重试", [(0, 4), (2, 6)], words) == "重试"


def test_words_given_by_the_caller_replace_the_packages_lists() -> None:
    none = QueryWords(question_words=[], general_words=[], action_words=[], dependent_words=[], topic_words=[])
    some = QueryWords(
        question_words=["干嘛", "quid est"],
        general_words=["amice"],
        action_words=["accidit"],
        dependent_words=["cur"],
        topic_words=["amice accidit"],
    )

    assert left("ERR_TIMEOUT 怎么处理", none) == "怎么处理"
    assert left("ERR_TIMEOUT 干嘛", some) == ""
    assert left("quid est ERR_TIMEOUT, amice", some) == ""
    assert left("quid ERR_TIMEOUT", some) == "quid"
    assert left("cur ERR_TIMEOUT accidit", some) == ""
    assert left("cur ERR_TIMEOUT", some) == "cur"
    assert left("cur ERR_TIMEOUT, amice accidit", some) == "cur amice accidit"


@pytest.mark.parametrize("name", [f"{name}.{language}" for name in LISTS for language in ("zh", "en")])
def test_word_lists_are_in_normal_form_and_hold_each_word_once(name: str) -> None:
    listed = read(name)

    assert listed
    assert len(listed) == len(set(listed))
    assert [word for word in listed if word.lstrip("'") != normal_form(word)] == []


def test_a_word_stands_in_one_list_only() -> None:
    listed = [word for name in LISTS for language in ("zh", "en") for word in read(f"{name}.{language}")]

    assert sorted(listed) == sorted(set(listed))


NEGATIONS = [
    *"不没無无沒非未勿莫毋否除外",
    *[
        "别的",
        "其他",
        "其它",
        "其余",
        "另一",
        "还有",
        "而是",
        "类似",
        "相似",
        "同类",
        "之类",
        "等错误",
        "替代",
        "代替",
        "跳过",
        "忽略",
    ],
    *["去掉", "绕开", "后面", "前面", "下一个", "上一个", "一样", "停用", "不再", "除了", "以外", "拒绝"],
    *[
        "not",
        "no",
        "non",
        "nor",
        "never",
        "none",
        "nothing",
        "cannot",
        "don't",
        "isn't",
        "doesn't",
        "can't",
        "without",
        "w/o",
    ],
    *[
        "except",
        "excluding",
        "besides",
        "beyond",
        "unless",
        "instead",
        "rather",
        "other",
        "another",
        "else",
        "than",
        "apart",
    ],
    *["aside", "unlike", "like", "similar", "alternative"],
]


@pytest.mark.parametrize("negation", NEGATIONS)
@pytest.mark.parametrize(
    "query", ["{} ERR_TIMEOUT", "ERR_TIMEOUT {}", "怎么处理{} ERR_TIMEOUT", "why am I getting {} ERR_TIMEOUT"]
)
def test_no_negation_is_taken_out_with_the_listed_words_around_it(words: QueryWords, negation: str, query: str) -> None:
    assert left(query.format(negation), words)


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
def test_nothing_is_left_only_of_queries_of_terms_listed_words_and_punctuation(pieces: list[str]) -> None:
    unlisted = {"不", "not", "重试", "x1", "+", "😭", "か"}

    rest = left("".join(pieces), QueryWords.load())

    assert rest or not unlisted.intersection(pieces)


@pytest.mark.parametrize(
    ("query", "term"),
    [
        ("redis集群 a", "redis集群"),
        ("us 区 redis集群", "redis集群"),
        ("redis it", "redis"),
        ("怎么处理 it error: redis", "redis"),
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
def test_of_a_query_that_names_something_else_or_turns_away_something_is_left(
    words: QueryWords, query: str, term: str
) -> None:
    start = query.index(term)
    assert what_is_left(query, [(start, start + len(term))], words)


@pytest.mark.parametrize("query", ["!redis", "！redis", "!redis 是什么", '"!redis"', "! redis", "!!redis"])
def test_an_exclamation_mark_before_a_term_excludes_it(query: str) -> None:
    index = KeywordIndex()
    index.add(KeywordEntry("a.md", "t", "d", ("redis",)))
    matches = index.match(query)
    assert matches.match_count == 1
    assert not matches.decisive
    assert matches.rest == "!"


@pytest.mark.parametrize("query", ["redis!", "redis 是什么！", "(redis)", "redis?!"])
def test_an_exclamation_mark_behind_a_term_excludes_nothing(query: str) -> None:
    index = KeywordIndex()
    index.add(KeywordEntry("a.md", "t", "d", ("redis",)))
    assert index.match(query).decisive
