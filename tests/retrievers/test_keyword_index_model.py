"""The keyword index compared with a slow, obvious one that tries every term at every position."""

from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry
from knowledge_lookup.retrievers.normal_form import normal_form

CJK = "支付网关"
ALPHABET = CJK + "aB1_.-/:+ "

Span = tuple[int, int]
Expected = list[tuple[str, tuple[str, ...], frozenset[Span], bool, int]]


def is_word(char: str) -> bool:
    return char not in CJK and (char.isalnum() or char == "_")


def splits_a_token(text: str, position: int) -> bool:
    """Whether a token of the text goes on across this position."""
    before, after = text[:position], text[position:]
    if not before or not after:
        return False
    if is_word(before[-1]):
        return is_word(after[0]) or (after[0] in ".-/:" and is_word(after[1:2] or " "))
    return before[-1] in ".-/:" and is_word(after[0]) and is_word(before[-2:-1] or " ")


def stands_at(text: str, term: str, start: int) -> bool:
    end = start + len(term)
    if text[start:end] != term:
        return False
    if is_word(term[0]) and splits_a_token(text, start):
        return False
    return not (is_word(term[-1]) and splits_a_token(text, end))


def inside(inner: Span, outer: Span) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def expected_matches(documents: dict[str, KeywordEntry], query: str) -> Expected:
    text = normal_form(query)
    found: dict[str, set[Span]] = {}
    for path, document in documents.items():
        for raw in (*document.keywords, document.title):
            term = normal_form(raw)
            for start in range(len(text)):
                if term and stands_at(text, term, start):
                    found.setdefault(path, set()).add((start, start + len(term)))
    every = {span for spans in found.values() for span in spans}
    longest = {span for span in every if not any(inside(span, other) for other in every)}
    counted = {path: spans & longest for path, spans in found.items() if spans & longest}
    best = {path: spans for path, spans in counted.items() if not any(spans < other for other in counted.values())}
    matches = [
        (
            path,
            tuple(dict.fromkeys(text[start:end] for start, end in sorted(spans))),
            frozenset(spans),
            normal_form(documents[path].title) == text,
            max(end - start for start, end in spans),
        )
        for path, spans in best.items()
    ]
    return sorted(matches, key=lambda match: (not match[3], -match[4], match[0]))


terms = st.text(ALPHABET, min_size=1, max_size=5).filter(normal_form)
queries = st.one_of(
    st.text(ALPHABET, max_size=20),
    st.lists(st.one_of(terms, st.sampled_from(["", " ", "-", "."])), max_size=6).map("".join),
)
paths = st.sampled_from(["a.md", "b.md", "c.md", "d.md", "e.md"])
entries = st.builds(
    KeywordEntry,
    file_path=paths,
    title=terms,
    domain=st.just("general"),
    keywords=st.lists(terms, max_size=4).map(tuple),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(entries, paths), max_size=12), st.lists(queries, min_size=1, max_size=4), st.data())
def test_the_index_finds_what_trying_every_term_at_every_position_finds(
    changes: list[KeywordEntry | str], asked: list[str], data: st.DataObject
) -> None:
    index = KeywordIndex()
    documents: dict[str, KeywordEntry] = {}
    for change in changes:
        if isinstance(change, str):
            assert index.remove(change) == (documents.pop(change, None) is not None)
        else:
            index.add(change)
            documents[change.file_path] = change
    known = [term for document in documents.values() for term in (*document.keywords, document.title)]
    if known:  # queries made of what is indexed, so that most examples match something
        parts = data.draw(st.lists(st.sampled_from([*known, " ", "", "付", "a"]), min_size=1, max_size=5))
        asked = [*asked, "".join(parts)]

    assert {document.file_path: document for document in index} == documents
    for query in asked:
        matches = index.match(query)
        found = [
            (match.entry.file_path, match.terms, match.spans, match.equals_title, match.longest_span)
            for match in matches.matches
        ]
        assert found == expected_matches(documents, query)
        assert matches.match_count == 1 or not matches.decisive
