"""Values in Milvus expressions; that Milvus reads them as meant is tested with the chunk store."""

import re

from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.milvus_expression import all_of, is_in, is_not_in, string_literal

TEXTS = st.text(alphabet=st.one_of(st.sampled_from("\"'\\\n\r\t\0% {}[]()"), st.characters()), max_size=40)


@given(TEXTS)
def test_a_literal_holds_the_text_and_ends_only_at_its_end(text: str) -> None:
    literal = string_literal(text)
    escapes = {"n": "\n", "r": "\r"}
    inside = re.fullmatch(r'"((?:[^"\\\n\r]|\\["\\nr])*)"', literal)
    assert inside is not None
    assert re.sub(r"\\(.)", lambda escape: escapes.get(escape[1], escape[1]), inside[1]) == text


def test_chinese_stays_readable_in_a_literal() -> None:
    assert string_literal('支付/"超时".md') == '"支付/\\"超时\\".md"'


def test_lists_are_sorted_so_that_the_same_question_is_the_same_expression() -> None:
    assert is_in("doc_id", {"b.md", "a.md"}) == 'doc_id in ["a.md", "b.md"]'
    assert is_not_in("doc_id", ["b.md", "a.md"]) == 'doc_id not in ["a.md", "b.md"]'


def test_conditions_are_joined_so_that_none_reaches_into_another() -> None:
    assert all_of("a == 1 or b == 2", "", "c == 3") == "(a == 1 or b == 2) and (c == 3)"
    assert all_of("", "") == ""
