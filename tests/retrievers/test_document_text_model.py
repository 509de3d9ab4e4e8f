"""Random documents, asked for part by part: no character comes twice, and all of them come."""

from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.markdown_sections import split_sections
from knowledge_lookup.retrievers.text_span import TextSpan
from tests.retrievers.delivered_text import assert_is_new, visible

headings = st.sampled_from(["安装", "升级", "示例", "Install", "install guide", "示例", "`code` **x**", "空"])
paragraphs = st.sampled_from(
    [
        "一段话。",
        "Two sentences. In one paragraph.",
        "- 项目一\n- 项目二\n\n  # 不是标题",
        "```bash\n# not a heading\n\nmake all\n```",
        "> 引用一行\n> # 也不是标题",
        "| 键 | 值 |\n|---|---|\n| a | b |",
        "很长的一段，" * 30 + "完。",
        "word " * 40 + "end",
        "~~~\n" + "code line\n" * 12 + "~~~",
        "   \n\t",
        "",
    ]
)
blocks = st.one_of(
    st.tuples(st.integers(1, 4), headings).map(lambda heading: f"{'#' * heading[0]} {heading[1]}"),
    headings.map(lambda heading: f"{heading}\n==="),
    st.tuples(paragraphs, st.integers(0, 99)).map(lambda numbered: f"{numbered[0]} {numbered[1]}".strip(" ")),
    paragraphs,
)
bodies = st.lists(blocks, max_size=14).map("\n\n".join)
limits = st.integers(80, 600)
terms = st.lists(
    st.sampled_from(["install", "make", "项目二", "完", "two", "引用一行", "code line", "nowhere"]), max_size=3
)


def headings_and_gone(document: DocumentText) -> set[int]:
    sections = split_sections(document.body)
    return visible(document.body, [TextSpan(section.start, section.text_start) for section in sections])


@given(body=bodies, data=st.data())
def test_whatever_is_asked_for_nothing_comes_twice_and_all_text_comes_in_the_end(
    body: str, data: st.DataObject
) -> None:
    document = DocumentText(body, "手册")
    sections = split_sections(body)
    given_so_far: list[TextSpan] = []
    for _ in range(data.draw(st.integers(0, 6), label="requests")):
        limit = data.draw(limits, label="limit")
        by_section: bool = data.draw(st.booleans(), label="by section")
        if sections and by_section:
            at = data.draw(st.integers(0, len(sections) - 1), label="section")
            part = document.section(at, given_so_far, limit=limit)
        else:
            part = document.rest(data.draw(terms, label="terms"), given_so_far, limit=limit)
        assert_is_new(document, part, given_so_far, limit)
        given_so_far += part.spans
    for _ in range(200):
        part = document.rest([], given_so_far)
        if not part.text:
            break
        assert_is_new(document, part, given_so_far, 2000)
        given_so_far += part.spans
    assert visible(body, [TextSpan(0, len(body))]) - visible(body, given_so_far) <= headings_and_gone(document)
    assert document.titles_left(given_so_far) == ()


@given(body=bodies, limit=limits)
def test_each_section_that_is_listed_can_be_had_until_none_is_listed(body: str, limit: int) -> None:
    document = DocumentText(body, "手册")
    given_so_far: list[TextSpan] = []
    for _ in range(200):
        left = document.titles_left(given_so_far)
        if not left:
            break
        parts = (document.section(at, given_so_far, limit=limit) for at in document.sections_named(left[0]))
        part = next((part for part in parts if part.text), None)
        assert part is not None, left[0]
        assert_is_new(document, part, given_so_far, limit)
        given_so_far += part.spans
    assert document.titles_left(given_so_far) == ()
    assert visible(body, [TextSpan(0, len(body))]) - visible(body, given_so_far) <= headings_and_gone(document)


@given(body=bodies, data=st.data())
def test_every_passage_of_a_section_is_found_there(body: str, data: st.DataObject) -> None:
    document = DocumentText(body, "手册")
    for section in split_sections(body):
        passage = body[section.text_start : section.end].strip()
        if not passage:
            continue
        span = document.locate(passage, " > ".join(section.path))
        assert span is not None
        assert body[span.start : span.end] == passage
        same = [other for other in split_sections(body) if other.path == section.path]
        assert any(other.text_start <= span.start and span.end <= other.end for other in same)


@given(body=bodies, title=st.sampled_from(["手册", "安装", "Install", "示例", "inst", "code x"]))
def test_a_beginning_finds_all_that_the_whole_title_finds(body: str, title: str) -> None:
    document = DocumentText(body, "手册")
    assert set(document.sections_named(title)) <= set(document.sections_beginning(title))
    assert document.sections_named(title) == document.sections_named(f" {title.upper()} 。")
