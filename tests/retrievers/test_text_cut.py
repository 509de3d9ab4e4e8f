"""Cutting a text at a good place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.text_cut import cut


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert cut("连接池。", 4) == "连接池。"


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("第一段。\n\n第二段很长很长很长", 10, "第一段。"),
        ("一句话。第二句话很长很长", 8, "一句话。"),
        ("One sentence. Another one", 20, "One sentence."),
        ("version 2.0 is here now", 15, "version 2.0 is"),
        ("一，二三四五六", 3, "一，"),
        ("abcdefghij", 5, "abcde"),
    ],
)
def test_the_cut_is_at_a_paragraph_else_a_sentence_else_a_word(text: str, limit: int, expected: str) -> None:
    assert cut(text, limit) == expected


def test_a_good_place_in_the_first_half_is_not_worth_the_loss() -> None:
    assert cut("A. " + "b" * 100, 50) == "A. " + "b" * 47


def test_a_code_fence_that_would_stay_open_is_closed() -> None:
    text = "说明\n\n```sql\nSELECT 1;\nSELECT 2;\nSELECT 3;\n```"
    piece = cut(text, 34)
    assert piece.startswith("说明\n\n```sql\nSELECT 1;")
    assert piece.endswith("\n```")
    assert len(piece) <= 34


def test_a_cut_early_in_a_code_fence_falls_before_it() -> None:
    text = "很长的说明文字，" * 4 + "\n\n```sql\nSELECT 1;\nSELECT 2;\n```"
    assert cut(text, 50) == "很长的说明文字，" * 4


@given(st.text(alphabet="ab。. \n`字", max_size=200), st.integers(1, 60))
def test_the_result_never_exceeds_the_limit(text: str, limit: int) -> None:
    assert len(cut(text, limit)) <= limit
