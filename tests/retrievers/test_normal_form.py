"""The normal form of terms and queries, and the tokens of a text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers.normal_form import character_kinds, is_cjk, normal_form, token_spans

# Characters that have broken normal forms before: composing marks, invisible ones, spaces, both scripts, punctuation.
AWKWARD = (
    "eE\u0301\u0345\u3099\u309bかガ\u1100\u1161支付Aß\u0130\u200d\u200b\ufeff\u00ad \t\n\u3000\u00a0"
    ",.。、…'’\"()（）《》[]`:;!?！？+#@-/*_1９Ⅷ\ud800\udc00"
)

any_text = st.one_of(
    st.text(st.characters(), max_size=30),  # lone surrogates included
    st.text(AWKWARD, max_size=12),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＥＲＲ＿ＴＩＭＥＯＵＴ", "err_timeout"),
        ("ERR_TIMEOUT", "err_timeout"),
        ("Straße", "strasse"),
        ("\u0390", "\u0390"),  # casefold takes it apart
        ("Redis 集群", "redis集群"),
        ("Redis集群", "redis集群"),
        ("集群 Redis 7 版本", "集群redis 7版本"),
        ("HTTP \t 429", "http 429"),
        ("HTTP\u3000429\r\n", "http 429"),
        ("支付 网关", "支付 网关"),
        ("ERR\x00TIMEOUT", "err timeout"),
        ("ERR_\u200bTIME\u00adOUT\ufeff", "err_timeout"),
        ("\u202eERR\u202c", "err"),
        ("e\u200d\u0301", "é"),
        ("怎么排查？", "怎么排查"),
        ("（《支付网关》）。", "支付网关"),
        ("「ERR_TIMEOUT」……", "err_timeout"),
        ("…ERR_TIMEOUT...", "err_timeout"),
        ("`max-pool-size`:", "max-pool-size"),
        ("“ERR_TIMEOUT”！！", "err_timeout"),
        ("don’t", "don't"),
        ("max‑pool‐size", "max-pool-size"),
        (".NET", ".net"),
        ("(.NET).", ".net"),
        ("v2.0.", "v2.0"),
        ("C++", "c++"),
        ("C#", "c#"),
        ("@Transactional", "@transactional"),
        ("-Xmx", "-xmx"),
        ("/api/v1/", "/api/v1/"),
        ("*$%&=~_", "*$%&=~_"),
        ("", ""),
        (" 。，…「」 ", ""),
        ("\u200b", ""),
    ],
)
def test_normal_form_of_examples(text: str, expected: str) -> None:
    assert normal_form(text) == expected


@settings(deadline=None, max_examples=200)
@given(any_text)
def test_normal_form_of_a_normal_form_changes_nothing(text: str) -> None:
    once = normal_form(text)

    assert normal_form(once) == once


@settings(deadline=None, max_examples=200)
@given(any_text)
def test_normal_form_has_no_space_at_its_ends_no_double_space_and_no_control_character(text: str) -> None:
    normal = normal_form(text)

    assert normal == " ".join(normal.split())
    assert not any(char < " " for char in normal)


def test_lone_surrogates_pass_through() -> None:
    assert normal_form("ERR\ud800 \udfff。") == "err\ud800 \udfff"
    assert token_spans("err\ud800x") == [(0, 3), (4, 5)]


@pytest.mark.parametrize("char", "支々〇𠮷かガー한ㄅ")
def test_han_kana_hangul_and_bopomofo_are_cjk(char: str) -> None:
    assert is_cjk(char)


@pytest.mark.parametrize("char", "aZ9_é\u0416α。、・《，+ ก\ud800")
def test_other_letters_and_cjk_punctuation_are_not_cjk(char: str) -> None:
    assert not is_cjk(char)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("err_timeout", ["err_timeout"]),
        ("max-pool-size", ["max-pool-size"]),
        ("v2.0.1", ["v2.0.1"]),
        ("redis.io:6379/0", ["redis.io:6379/0"]),
        ("http 429", ["http", "429"]),
        ("redis集群v2", ["redis", "v2"]),
        (".net", ["net"]),
        ("end. next", ["end", "next"]),
        ("a--b", ["a", "b"]),
        ("-xmx-", ["xmx"]),
        ("c++", ["c"]),
        ("don't", ["don", "t"]),
        ("таймаут größe ποσό", ["таймаут", "größe", "ποσό"]),
        ("q\u0323x", ["q\u0323x"]),
        ("支付网关", []),
        ("", []),
    ],
)
def test_tokens_of_examples(text: str, tokens: list[str]) -> None:
    assert [text[start:end] for start, end in token_spans(text)] == tokens


@settings(deadline=None, max_examples=100)
@given(any_text)
def test_character_kinds_has_one_letter_for_each_character(text: str) -> None:
    kinds = character_kinds(text)

    assert len(kinds) == len(text)
    assert all(is_cjk(char) == (kind in "hk") for char, kind in zip(text, kinds, strict=True))
