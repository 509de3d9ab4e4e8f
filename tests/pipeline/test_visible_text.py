"""Text of others on one line."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.pipeline.visible_text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Kafka 消费积压 🙂", "Kafka 消费积压 🙂"),
        ("two\nlines\t and  spaces ", "two lines and spaces"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnorw\u200b", r"\u202egnorw\u200b"),
        ("👨\u200d👩", "👨\u200d👩"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_is_cut() -> None:
    assert visible("长" * 11, 10) == "长" * 10 + "…"
    assert visible("长" * 10, 10) == "长" * 10
    assert visible(" " * 1000 + "a", 10) == "…"


@given(st.text(st.characters(codec=None)))
def test_nothing_is_left_that_a_terminal_could_obey(text: str) -> None:
    shown = visible(text)
    assert not [
        char
        for char in shown
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and char not in "\u200c\u200d"
    ]
