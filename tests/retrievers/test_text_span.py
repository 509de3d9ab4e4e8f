"""Ranges of characters, and texts made of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.text_span import JoinedText, TextSpan, stripped, subtract

SOURCE = "0123456789" * 4
spans = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda ends: TextSpan(min(ends), max(ends)))


def characters(ranges: list[TextSpan]) -> list[int]:
    return [position for start, end in ranges for position in range(start, end)]


@given(span=spans, taken=st.lists(spans.filter(lambda span: span.start < span.end), max_size=6))
def test_what_is_left_is_what_was_not_taken_in_order_and_in_as_few_ranges_as_possible(
    span: TextSpan, taken: list[TextSpan]
) -> None:
    left = subtract(span, taken)
    gone = set(characters(taken))
    assert characters(left) == [position for position in characters([span]) if position not in gone]
    assert all(start < end for start, end in left)
    assert all(before.end < after.start for before, after in pairwise(left))


@given(text=st.text(alphabet="a 中\n\t\u3000", max_size=20), span=spans)
def test_white_space_at_the_ends_is_left_out(text: str, span: TextSpan) -> None:
    inner = stripped(text, span)
    assert text[inner.start : inner.end] == text[span.start : span.end].strip()
    assert span.start <= inner.start <= inner.end


@given(st.lists(spans, max_size=5), spans)
def test_a_joined_text_knows_where_each_of_its_characters_comes_from(parts: list[TextSpan], asked: TextSpan) -> None:
    joined = JoinedText(SOURCE, parts)
    assert joined.text == "".join(SOURCE[start:end] for start, end in parts)
    origins = joined.origin(asked)
    assert characters(origins) == characters(parts)[asked.start : asked.end]
    assert all(start < end for start, end in origins)
