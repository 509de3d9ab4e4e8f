"""Sections of a Markdown body."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_lookup.retrievers.markdown_sections import plain_heading, split_sections, subtree_end

BODY = """Lead text.

# One

First.

## One a

```bash
# no heading
```

Two
===

> # quoted

- # in a list

### Two `b` **bold**
Last.
"""


def test_headings_open_sections_and_comments_in_code_quotations_and_lists_do_not() -> None:
    sections = split_sections(BODY)
    assert [(section.heading, section.level) for section in sections] == [
        (None, 0),
        ("One", 1),
        ("One a", 2),
        ("Two", 1),
        ("Two b bold", 3),
    ]


def test_path_leads_from_the_top_to_the_section() -> None:
    assert [section.path for section in split_sections(BODY)] == [
        (),
        ("One",),
        ("One", "One a"),
        ("Two",),
        ("Two", "Two b bold"),
    ]


def test_text_of_a_section_is_what_stands_below_its_heading() -> None:
    sections = split_sections(BODY)
    texts = [BODY[section.text_start : section.end].strip() for section in sections]
    assert texts[:2] == ["Lead text.", "First."]
    assert texts[2] == "```bash\n# no heading\n```"
    assert texts[4] == "Last."


def test_subtree_ends_before_the_next_heading_of_the_same_or_a_higher_level() -> None:
    sections = split_sections(BODY)
    assert subtree_end(sections, 1) == sections[3].start
    assert subtree_end(sections, 2) == sections[3].start
    assert subtree_end(sections, 3) == len(BODY)


def test_a_body_without_headings_is_one_lead() -> None:
    (section,) = split_sections("just text")
    assert (section.heading, section.start, section.end) == (None, 0, 9)


@pytest.mark.parametrize("body", ["", " \n\n "])
def test_a_body_of_white_space_has_no_section(body: str) -> None:
    assert split_sections(body) == []


@given(st.lists(st.sampled_from(["# a", "## b", "text", "", "```", "===", "- # x", "正文。", "\t# code"])))
def test_sections_are_in_order_and_cover_the_body(lines: list[str]) -> None:
    body = "\n".join(lines)
    sections = split_sections(body)
    assert all(one.end == other.start for one, other in itertools.pairwise(sections))
    assert all(section.start <= section.text_start <= section.end for section in sections)
    covered = body[sections[0].start : sections[-1].end] if sections else ""
    assert covered.strip() == body.strip()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("ERR_TIMEOUT  和 a_b_c", "ERR_TIMEOUT 和 a_b_c"),
        ("_强调_ 与 `max_idle`", "强调 与 max_idle"),
        ("**Time-outs** of [HikariCP](x.md)", "Time-outs of HikariCP"),
        ("AT&amp;T \\* 1 * 2", "AT&T * 1 * 2"),
        ("a <b>c</b> !d", "a c !d"),
        ("snake_ case_", "snake_ case_"),
    ],
)
def test_a_heading_is_plain_as_commonmark_reads_it(written: str, text: str) -> None:
    assert plain_heading(written) == text
    assert split_sections(f"# {written}\n\ntext\n")[0].heading == text
