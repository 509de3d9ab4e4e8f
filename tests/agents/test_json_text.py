import json
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.agents.json_text import json_text

_WORDS_AND_EMOJI_NEED = "\u200c\u200d"


@given(st.dictionaries(st.text(st.characters()), st.one_of(st.text(st.characters()), st.none(), st.integers())))
def test_the_json_gives_the_same_texts_back(value: dict[str, str | int | None]) -> None:
    # Two surrogates side by side are one character to every reader of JSON.
    joined = json.loads(json.dumps(value))
    text = json_text(value)
    assert json.loads(text) == joined
    text.encode("utf-8")


def test_nothing_in_it_ends_a_line_turns_it_or_hides() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    text = json_text({"content": every})
    assert len(text.splitlines()) == 1
    hidden = {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    arabic_and_notation = {
        char for char in hidden if unicodedata.name(char, "").startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN"))
    }
    named = ("MUSICAL", "SHORTHAND")
    notation = {char for char in hidden if unicodedata.name(char, "").startswith(named)}
    assert hidden - arabic_and_notation - notation == set(_WORDS_AND_EMOJI_NEED)
