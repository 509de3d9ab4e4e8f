import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.compatibility_form import compatibility_form


@given(st.text())
def test_a_short_text_is_normalized_as_unicode_says(text: str) -> None:
    assert compatibility_form(text) == unicodedata.normalize("NFKC", text)


@given(st.text(st.sampled_from("aé中ﬁ①\u0301\u3099가각ｶﾞ"), min_size=1, max_size=30))
def test_a_long_text_of_natural_letters_is_normalized_as_unicode_says(text: str) -> None:
    natural = (text + "a") * 300
    if max(map(len, natural.split("a"))) < 20:
        assert compatibility_form(natural) == unicodedata.normalize("NFKC", natural)


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\uff9e\u0f73", "\u0344\u0316", "\u0301\u0316\u0323"])
def test_a_megabyte_of_marks_on_one_letter_takes_no_time(marks: str) -> None:
    started = time.process_time()
    form = compatibility_form("a" + marks * 300_000 + "b")
    assert time.process_time() - started < 2.0
    assert len(form) < 70
    assert form.endswith("b")
    assert compatibility_form(form * 40) == form * 40
