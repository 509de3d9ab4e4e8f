"""The JSON in a model's answer: found whatever stands around it, and never half a value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.agents.json_answer import read_json_answer, text_of, texts_of

KEYS = ("covers", "whenToRetrieve")
WANTED = {"covers": ["错误码", "幂等"], "whenToRetrieve": "支付超时时"}
VALID = json.dumps(WANTED, ensure_ascii=False)


@pytest.mark.parametrize(
    "answer",
    [
        VALID,
        json.dumps(WANTED),
        json.dumps(WANTED, ensure_ascii=False, indent=2),
        f"```json\n{VALID}\n```",
        f"```\n{VALID}\n```",
        f"好的，结果如下 [1]：\n\n```json\n{VALID}\n```\n希望有帮助 {{:}}",
        f'先看格式 {{"a": 1}}，再写：{VALID}',
        f'<think>草稿 {{"covers": ["不要"]}}</think>{VALID}',
        f'<think>草稿 {{"covers": ["不要", </think>\n\n{VALID}',
        json.dumps({"result": WANTED}, ensure_ascii=False),
        json.dumps([WANTED], ensure_ascii=False),
        str(WANTED),
        '{"covers": ["错误码", "幂等",], "whenToRetrieve": "支付超时时",}',
        '{covers: ["错误码", "幂等"], whenToRetrieve: "支付超时时"}',
        '{"covers": ["错误码"\n"幂等"]\n"whenToRetrieve": "支付超时时"}',
        "{“covers”：[“错误码”，“幂等”]，“whenToRetrieve”：“支付超时时”}",
        '{"Covers": ["错误码", "幂等"], "when_to_retrieve": "支付超时时"}',
        '{"covers": ["错误码", "幂等"], "whenToRetrieve": "支付超时时"',
        '{"covers": ["错误码", "幂等"], "whenToRetrieve": "支付超时时", "note": "没有写',
    ],
)
def test_the_object_is_read_whatever_stands_around_it(answer: str) -> None:
    assert read_json_answer(answer, keys=KEYS) == WANTED


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"covers": ["错误码", "幂', {"covers": ["错误码"]}),
        ('{"covers": ["错误码"', {"covers": ["错误码"]}),
        ('{"covers": ["错误码"], "whenToRetr', {"covers": ["错误码"]}),
        ('{"covers": ["错误码"], "whenToRetrieve": "支付超', {"covers": ["错误码"]}),
        ('{"covers": [', {"covers": []}),
        ('{"cov', None),
        ("", None),
        ("抱歉，我不能完成。", None),
        ('{"error": ["bad request"]}', None),
        ("见 [1] 和 [2]", None),
        ("{tool_desc} {{ x }}", None),
        ('["错误码", "幂等"]', {"covers": ["错误码", "幂等"]}),
        ('{"whenToRetrieve": "返回"超时"错误时"}', {"whenToRetrieve": '返回"超时"错误时'}),
        ("{'whenToRetrieve': 'when it's slow'}", {"whenToRetrieve": "when it's slow"}),
        ("{'whenToRetrieve': 'a\\'b\\n\\u4e2d', 'covers': None}", {"covers": None, "whenToRetrieve": "a'b\n中"}),
        ('{"covers": [1.5, true], x}', None),
        ('{"covers": ["a"]} {"covers": ["b"]}', {"covers": ["b"]}),
        ('{"covers": ["a"]} {"covers": ["b', {"covers": ["a"]}),
    ],
)
def test_what_can_be_trusted_of_a_broken_answer(answer: str, expected: dict[str, Any] | None) -> None:
    assert read_json_answer(answer, keys=KEYS) == expected


scalars = st.none() | st.booleans() | st.integers(-999, 999) | st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)
objects = st.fixed_dictionaries({"covers": values, "whenToRetrieve": values})


@given(wanted=objects, ascii_only=st.booleans())
def test_any_valid_json_is_read_as_it_is(wanted: dict[str, Any], ascii_only: bool) -> None:
    answer = f"```json\n{json.dumps(wanted, ensure_ascii=ascii_only)}\n```"
    assert read_json_answer(answer, keys=KEYS) == wanted


# Without inner quotes, brackets and separators, about which a reader of broken JSON can only guess.
plain = st.text("支付 abZ9_.\\\n", max_size=8)
plain_objects = st.fixed_dictionaries({"covers": st.lists(plain, max_size=4), "whenToRetrieve": plain})


@given(wanted=plain_objects)
def test_what_python_writes_is_read_as_it_is(wanted: dict[str, Any]) -> None:
    assert read_json_answer(f"Sure: {wanted}.", keys=KEYS) == wanted


@given(wanted=plain_objects, data=st.data())
def test_a_cut_never_leaves_half_a_text(wanted: dict[str, Any], data: st.DataObject) -> None:
    answer = json.dumps(wanted, ensure_ascii=False)
    part = read_json_answer(answer[: data.draw(st.integers(0, len(answer)))], keys=KEYS) or {}
    covers = part.get("covers", [])
    assert covers == wanted["covers"][: len(covers)]
    assert part.get("whenToRetrieve", wanted["whenToRetrieve"]) == wanted["whenToRetrieve"]


@settings(max_examples=200)
@given(answer=st.text("{}[]\"':,\\ a1\n", max_size=60))
def test_no_answer_is_too_broken(answer: str) -> None:
    read_json_answer(answer, keys=KEYS)


@pytest.mark.parametrize("answer", ["[" * 50_000, '{"a' * 20_000, '{"a":' * 20_000, '{"a":"x' * 20_000])
@pytest.mark.timeout(3)
def test_an_answer_that_opens_brackets_without_end_is_given_up(answer: str) -> None:
    assert read_json_answer(answer, keys=KEYS) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("  支付\n 超时 ", "支付 超时"),
        (["支付", "超时", 3], "支付 超时"),
        (429, "429"),
        (None, ""),
        (True, ""),
        ({"a": "b"}, ""),
        ("…", ""),
        ("\ud83d\ude42 a\ud800\0", "🙂 a\ufffd"),
        ("第一句。第二句很长很长。", "第一句。"),
    ],
)
def test_a_value_that_should_be_a_text(value: object, expected: str) -> None:
    assert text_of(value, limit=7) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("一个主题", ("一个主题",)),
        (["a", "b", "a", "", None, ["x"], {"y": 1}, 7, "d", "e"], ("a", "b", "7", "d")),
        (None, ()),
        ({"a": "b"}, ()),
        (["很长的主题，需要截断"], ("很长的主题，",)),
    ],
)
def test_a_value_that_should_be_a_list_of_texts(value: object, expected: tuple[str, ...]) -> None:
    assert texts_of(value, count=4, limit=8) == expected
