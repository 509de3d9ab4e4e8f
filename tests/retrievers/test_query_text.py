from knowledge_lookup.retrievers import KeywordEntry, KeywordIndex
from knowledge_lookup.retrievers.query_text import MOST_QUERY_CHARACTERS, readable_query
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle


def test_a_query_is_read_as_it_is_up_to_its_limit() -> None:
    query = " a\n b" * (MOST_QUERY_CHARACTERS // 5)
    assert readable_query(query) == query


def test_of_a_longer_query_the_beginning_is_read_without_the_white_space_that_fills_it() -> None:
    assert readable_query("a" * 1_000_000) == "a" * MOST_QUERY_CHARACTERS
    assert readable_query("ERR_TIMEOUT" + " " * 1_000_000 + "E17") == "ERR_TIMEOUT E17"
    assert ScopedQueryBundle("a" * 1_000_000).query_str == "a" * MOST_QUERY_CHARACTERS


def test_a_cut_never_makes_a_query_decisive() -> None:
    index = KeywordIndex()
    index.add(KeywordEntry("a.md", "t", "d", ("ERR_TIMEOUT",)))
    for filler in (" ", "\u200b", "\0", "?", "\u3000", "\n"):
        query = "ERR_TIMEOUT" + filler * 20_000 + "E17"
        assert not index.match(readable_query(query)).decisive, repr(filler)
