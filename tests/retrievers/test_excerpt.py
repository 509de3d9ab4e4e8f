"""What an exact match delivers of its document."""

from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.excerpt import excerpt
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.term_occurrence import contains_term

FILLER = "这一段只是背景说明，与错误码无关。"


def long_document(*sections: tuple[str, str]) -> str:
    return "本文的开头。\n\n" + "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections)


def test_a_short_document_is_delivered_whole() -> None:
    assert excerpt("# 标题\n\n正文。\n", ["err_timeout"]).text == "# 标题\n\n正文。"


def test_the_beginning_is_delivered_when_the_term_is_in_it() -> None:
    body = long_document(("ERR_TIMEOUT", "超时。"), ("背景", FILLER * 300))
    piece = excerpt(body, ["err_timeout"]).text
    assert body.startswith(piece)
    assert 1000 <= len(piece) <= 2000
    assert piece.endswith("。")


def test_lead_and_section_are_delivered_when_the_term_is_further_down() -> None:
    body = long_document(("背景", FILLER * 300), ("ERR_TIMEOUT", "检查网关。"), ("其他", FILLER * 10))
    piece = excerpt(body, ["err_timeout"]).text
    assert piece.startswith("本文的开头。")
    assert piece.endswith("## ERR_TIMEOUT\n\n检查网关。")


def test_a_section_is_delivered_with_the_sections_below_it() -> None:
    body = long_document(("背景", FILLER * 300), ("ERR_TIMEOUT", "含义。\n\n### 排查\n\n看日志。"))
    assert "### 排查\n\n看日志。" in excerpt(body, ["err_timeout"]).text


def test_the_section_named_after_the_term_wins_over_one_that_mentions_it() -> None:
    body = long_document(("背景", FILLER * 300), ("概览", "参见 ERR_TIMEOUT。"), ("ERR_TIMEOUT", "检查网关。"))
    piece = excerpt(body, ["err_timeout"]).text
    assert "检查网关" in piece
    assert "概览" not in piece


def test_a_longer_code_is_not_taken_for_the_term() -> None:
    body = long_document(("背景", FILLER * 300), ("ERR_TIMEOUT_READ", "读。"), ("ERR_TIMEOUT", "检查网关。"))
    assert "检查网关" in excerpt(body, ["err_timeout"]).text


def test_each_of_several_terms_gets_its_section() -> None:
    body = long_document(
        ("背景", FILLER * 300),
        ("ERR_A", "甲。" + FILLER * 100),
        ("中间", FILLER * 300),
        ("ERR_B", "乙。" + FILLER * 100),
    )
    piece = excerpt(body, ["err_a", "err_b"]).text
    assert "甲。" in piece
    assert "乙。" in piece
    assert len(piece) <= 2000


def test_a_term_of_the_beginning_is_kept_when_another_is_further_down() -> None:
    body = long_document(("概述", FILLER * 40), ("ERR_A", "甲。"), ("背景", FILLER * 300), ("ERR_B", "乙。"))
    piece = excerpt(body, ["err_a", "err_b"]).text
    assert "甲。" in piece
    assert "乙。" in piece


def test_a_term_deep_in_a_long_section_is_delivered_with_the_section_heading() -> None:
    body = long_document(("背景", FILLER * 300), ("排查", FILLER * 200 + "\n\n最后检查 ERR_TIMEOUT 的次数。"))
    piece = excerpt(body, ["err_timeout"]).text
    assert "## 排查" in piece
    assert "最后检查 ERR_TIMEOUT 的次数。" in piece
    assert len(piece) <= 2000


def test_a_term_deep_in_one_endless_paragraph_is_delivered() -> None:
    body = long_document(
        ("背景", FILLER * 300), ("排查", FILLER * 300 + "最后检查 ERR_TIMEOUT 的次数。" + FILLER * 300)
    )
    piece = excerpt(body, ["err_timeout"]).text
    assert "ERR_TIMEOUT" in piece
    assert len(piece) <= 2000


def test_a_keyword_that_the_body_does_not_contain_delivers_the_beginning() -> None:
    body = long_document(("背景", FILLER * 300))
    assert body.startswith(excerpt(body, ["err_timeout"]).text)


@given(
    st.lists(
        st.sampled_from(["# h", "## ERR_X", "### ERR_Y", FILLER * 40, "text ERR_X.", "词ERR_Y词", ""]), min_size=1
    ),
    st.sampled_from([["err_x"], ["err_y"], ["err_x", "err_y"]]),
)
def test_the_excerpt_fits_and_holds_a_term_that_the_document_holds(parts: list[str], terms: list[str]) -> None:
    body = "\n\n".join(parts)
    piece = excerpt(body, terms).text
    assert len(piece) <= 2000
    for term in terms:
        if contains_term(normal_form(body), term):
            assert contains_term(normal_form(piece), term)
