import json
import time
from typing import Any

import frontmatter
import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from knowledge_lookup.pipeline.ingestion.front_matter import (
    FrontMatter,
    FrontMatterWarning,
    ParsedDocument,
    UnreadableDocumentError,
    parse_front_matter,
    read_body,
)
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

CHINESE = "---\ntitle: 支付网关错误码\nkeywords: [ERR_TIMEOUT, 支付超时]\n---\n# 处理\n支付网关返回超时，先查日志。\n"


def parse(text: str | bytes) -> ParsedDocument:
    return parse_front_matter(text if isinstance(text, bytes) else text.encode(), file_path="api/a.md")


def parse_block(block: str) -> ParsedDocument:
    document = parse(f"---\n{block}\n---\n正文\n")
    assert document.body == "正文\n"
    return document


def fields(document: ParsedDocument) -> dict[str, Any]:
    """Give the fields that are set."""
    metadata = document.front_matter.to_metadata()
    return {name: value for name, value in metadata.items() if value is not None and value != []}


def warnings(document: ParsedDocument) -> list[str]:
    return [str(warning) for warning in document.warnings]


def warned_lines(document: ParsedDocument) -> list[int | None]:
    return [warning.line for warning in document.warnings]


def test_a_well_formed_document_gives_every_field_and_no_warning() -> None:
    document = parse(
        "---\ntitle: Payment errors\nkeywords: [ERR_TIMEOUT, 8005]\nsummary: |\n  First.\n\n  Second.\ncategory: api\n"
        "covers:\n  - timeouts\n  - 签名错误\nwhen_to_retrieve: when a payment fails\nowner: {team: pay, level: 2}\n"
        "---\n\n# Errors\n"
    )
    assert document == ParsedDocument(
        FrontMatter(
            title="Payment errors",
            keywords=("ERR_TIMEOUT", "8005"),
            summary="First.\n\nSecond.",
            category="api",
            covers=("timeouts", "签名错误"),
            when_to_retrieve="when a payment fails",
            extra={"owner": {"team": "pay", "level": 2}},
        ),
        "\n# Errors\n",
        (),
    )


def test_a_document_without_the_newer_fields_has_them_empty() -> None:
    front_matter = parse_block("title: x").front_matter
    assert (front_matter.covers, front_matter.when_to_retrieve) == ((), None)


def test_metadata_has_all_fields_and_every_other_one_under_its_own_name() -> None:
    assert parse_block("title: x\nwhen_to_retrieve: y\ntags: [a]").front_matter.to_metadata() == {
        "title": "x",
        "keywords": [],
        "summary": None,
        "category": None,
        "covers": [],
        "whenToRetrieve": "y",
        "tags": ["a"],
    }


def test_metadata_loses_nothing_when_names_collide() -> None:
    front_matter = FrontMatter(title="x", extra={"title": "y", "title_2": "z", "whenToRetrieve": "w"})
    assert sorted(map(str, front_matter.to_metadata().values())) == ["None", "None", "None", "[]", "[]", "w", *"xyz"]


@pytest.mark.parametrize("name", ["when_to_retrieve", "when-to-retrieve", "whenToRetrieve"])
def test_when_to_retrieve_is_known_in_three_spellings(name: str) -> None:
    assert parse_block(f"{name}: y").front_matter == FrontMatter(when_to_retrieve="y")


def test_tags_are_not_keywords() -> None:
    assert parse_block("tags: [a, b]").front_matter == FrontMatter(extra={"tags": ["a", "b"]})


# --- where the block is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "# Title\n\ntext\n", "text\n\n---\ntitle: x\n---\n", "---", "---\n", "--- x\n"])
def test_a_document_without_front_matter_is_all_body(text: str) -> None:
    assert parse(text) == ParsedDocument(FrontMatter(), text, ())


@pytest.mark.parametrize(
    ("text", "body"), [("---\n---\nB\n", "B\n"), ("---\n\n  \n---\nB", "B"), ("---\n---", ""), ("---\n---\n", "")]
)
def test_an_empty_block_is_front_matter(text: str, body: str) -> None:
    assert parse(text) == ParsedDocument(FrontMatter(), body, ())


def test_a_file_with_only_front_matter_has_an_empty_body() -> None:
    for end in ("---", "---\n"):
        assert parse(f"---\ntitle: x\n{end}") == ParsedDocument(FrontMatter(title="x"), "", ())


@pytest.mark.parametrize("opening", ["---", "--- ", "-----", "\n\n---"])
@pytest.mark.parametrize("closing", ["---", "---\t", "-----", "..."])
def test_delimiters_as_they_occur(opening: str, closing: str) -> None:
    assert parse(f"{opening}\ntitle: x\n{closing}\nB") == ParsedDocument(FrontMatter(title="x"), "B", ())


def test_a_rule_in_the_body_belongs_to_the_body() -> None:
    body = "a\n\n---\nkey: value\n---\n\nb\n"
    assert parse(f"---\ntitle: x\n---\n{body}") == ParsedDocument(FrontMatter(title="x"), body, ())


@pytest.mark.parametrize("prose", ["Some prose.", "- a\n- b", "# Heading", "Please note that this is prose: indeed"])
def test_a_rule_with_text_below_it_is_no_front_matter(prose: str) -> None:
    text = f"---\n{prose}\n\nMore.\n---\nB\n"
    document = parse(text)
    assert (document.front_matter, document.body) == (FrontMatter(), text)
    assert warnings(document) == [
        f"api/a.md:1: the lines up to --- in line {5 + prose.count(chr(10))} hold no `key: value`, they stay text"
    ]


def test_a_rule_and_no_second_one_is_no_front_matter() -> None:
    text = "---\nSome prose.\n"
    assert parse(text) == ParsedDocument(FrontMatter(), text, ())


@pytest.mark.parametrize(
    "rest", ["\nProse.\n", "# Heading\nkey: value\n", "\n# Heading\n\nProse.\n\n---\n\nMore: prose\n", "Prose.\n"]
)
def test_a_block_that_is_not_closed_ends_where_its_lines_stop_looking_like_one(rest: str) -> None:
    document = parse(f"---\ntitle: a: b\nkeywords:\n- x\n- y\nsummary: c\n  d\n{rest}")
    assert document.front_matter == FrontMatter(title="a: b", keywords=("x", "y"), summary="c d")
    assert document.body == rest
    assert "api/a.md:1: the front matter that begins here isn't closed by ---; it was read up to line 7" in warnings(
        document
    )


def test_an_open_block_without_a_known_field_stays_text_with_a_warning() -> None:
    text = "---\nNote: this may be prose\n\nMore.\n"
    document = parse(text)
    assert (document.front_matter, document.body) == (FrontMatter(), text)
    assert "stays text" in warnings(document)[0]


def test_a_block_over_64_kib_is_unreadable() -> None:
    item = "  - 关键词\n"
    with pytest.raises(UnreadableDocumentError, match=r"^api/a\.md:2: the front matter is longer than 65536 bytes"):
        parse(f"---\nkeywords:\n{item * 6000}---\nB")
    assert parse(f"---\nkeywords:\n{item * 4000}---\nB") == ParsedDocument(FrontMatter(keywords=("关键词",)), "B", ())


def test_an_open_block_is_not_searched_beyond_64_kib_for_its_end() -> None:
    body = "\n" + "正文。\n" * 20_000 + "---\n"
    document = parse(f"---\ntitle: x\n{body}")
    assert (document.front_matter.title, document.body) == ("x", body)
    assert warned_lines(document) == [1]


# --- encodings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_encodings_are_read_alike(encoding: str) -> None:
    assert parse(CHINESE.encode(encoding)) == parse(CHINESE)
    assert parse(CHINESE).warnings == ()


def test_utf_16_big_endian_with_its_mark_is_read() -> None:
    assert parse(b"\xfe\xff" + CHINESE.encode("utf-16-be")) == parse(CHINESE)


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_are_unified(line_end: str) -> None:
    assert parse(CHINESE.replace("\n", line_end)) == parse(CHINESE)


def test_a_byte_order_mark_alone_is_an_empty_file() -> None:
    assert parse(b"\xef\xbb\xbf") == ParsedDocument(FrontMatter(), "", ())


def test_a_byte_order_mark_that_was_written_twice_is_gone() -> None:
    assert parse("\ufeff\ufeff" + CHINESE) == parse(CHINESE)


@pytest.mark.parametrize("encoding", ["gb18030", "gbk", "gb2312"])
def test_chinese_encodings_are_recognized_with_a_warning(encoding: str) -> None:
    document = parse(CHINESE.encode(encoding))
    assert document.front_matter == parse(CHINESE).front_matter
    assert document.body == parse(CHINESE).body
    assert warnings(document) == ["api/a.md: not UTF-8, read as GB18030 (GBK); save it as UTF-8"]


def test_two_chinese_words_in_english_text_are_enough() -> None:
    text = "The gateway returns ERR_TIMEOUT (超时) sometimes. " * 3
    assert parse(text.encode("gbk")).body == text


def test_a_few_damaged_bytes_are_replaced_with_a_warning_that_names_their_lines() -> None:
    document = parse(CHINESE.encode() + b"ok\r\nbad \xff\xfe\r\n" + "好".encode()[:2])
    assert document.front_matter == parse(CHINESE).front_matter
    assert document.body == parse(CHINESE).body + "ok\nbad \ufffd\n\ufffd"
    assert warnings(document) == ["api/a.md:8: not UTF-8 throughout: bytes replaced by U+FFFD: 4, in lines 8, 9"]


def test_one_latin_letter_in_long_english_text_is_damage() -> None:
    document = parse(("plain text\n" * 20 + "naïve\n").encode("latin-1"))
    assert document.body.endswith("na\ufffdve\n")
    assert warned_lines(document) == [21]


@pytest.mark.parametrize(
    "raw",
    [
        "Größenänderung für façade déjà vu".encode("latin-1"),
        "Ошибка тайм-аута платёжного шлюза".encode("cp1251"),
        "支付閘道逾時的處理方式與錯誤代碼說明".encode("big5"),
        "エラーの対処方法について説明します".encode("shift_jis"),
        bytes(range(128, 256)),
    ],
)
def test_other_encodings_are_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableDocumentError, match=r"^api/a\.md: neither UTF-8 nor GB18030 .* save it as UTF-8$"):
        parse(raw)


@pytest.mark.parametrize(
    "raw", [b"\x89PNG\r\n\x1a\n\0\0", b"---\ntitle: a\0b\n---\n", "标题".encode("utf-16-le") + b"a\0"]
)
def test_a_file_with_nul_bytes_is_binary(raw: bytes) -> None:
    with pytest.raises(UnreadableDocumentError, match=r"^api/a\.md: a binary file") as refused:
        parse(raw)
    assert isinstance(refused.value, KnowledgeLookupError)


def test_a_mark_of_utf_16_before_something_else_is_unreadable() -> None:
    with pytest.raises(UnreadableDocumentError, match="begins with the mark of utf-16-le but isn't"):
        parse(b"\xff\xfea")
    with pytest.raises(UnreadableDocumentError, match="a binary file"):
        parse("a\0b".encode("utf-16"))


# --- text values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Foo: bar",
        "a: b: c",
        "Foo: bar # not a comment",
        "支付: 超时处理",
        "Foo:",
        "@mention first",
        "`code` first",
        "%s in a format",
        "*bold* text",
        "*bold",
        "& more",
        "&amp; more",
        "&anchor text",
        "!important text",
        "!! text",
        "[未闭合",
        "[API] timeout",
        "{{ page.title }}",
        "{{ page.title }}: x",
        "{% raw %}",
        '"unbalanced',
        'it\'s "so": yes',
        "'a' and 'b'",
        '"a" and "b"',
        "| table | row |",
        "> quote",
        "- dash: x",
        "? question",
        ", comma",
        "]",
        "a\tb",
        "<<: x",
    ],
)
@pytest.mark.parametrize("name", ["title", "summary", "when_to_retrieve", "category"])
def test_a_value_that_is_no_yaml_is_read_as_the_text_it_is(name: str, text: str) -> None:
    document = parse_block(f"before: [1]\n{name}: {text}\nkeywords: [a, 007]")
    key = "whenToRetrieve" if name == "when_to_retrieve" else name
    expected = text.replace("\t", " ")
    assert fields(document) == {"before": [1], key: expected, "keywords": ["a", "007"]}
    assert warned_lines(document) == [3]
    assert warnings(document)[0].startswith("api/a.md:3: ")


def test_several_such_lines_are_mended_each_for_itself() -> None:
    document = parse_block(
        "title: a: b\nsummary: @c\nkeywords: [x]\ncategory: api\nwhen_to_retrieve: 当出现: 超时\n  或重试"
    )
    assert document.front_matter == FrontMatter(
        title="a: b", keywords=("x",), summary="@c", category="api", when_to_retrieve="当出现: 超时 或重试"
    )
    assert warned_lines(document) == [2, 3, 6]
    assert warnings(document)[0] == (
        "api/a.md:2: title is not valid YAML (mapping values are not allowed here), "
        "read as the text 'a: b'; put it in quotes"
    )


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("支付：超时", "支付：超时"),
        ("'a: b'", "a: b"),
        ('"a\\tb: c"', "a\tb: c"),
        ("a #1", "a"),
        ("404", "404"),
        ("007", "007"),
        ("1.10", "1.10"),
        ("yes", "yes"),
        ("2024-01-01", "2024-01-01"),
        ("!!str 12", "12"),
        ('"null"', "null"),
        (">\n  folded\n  text", "folded text"),
        ("plain\n  goes on", "plain goes on"),
    ],
)
def test_what_yaml_reads_well_is_read_as_written_without_a_warning(written: str, text: str) -> None:
    document = parse_block(f"title: {written}")
    assert (document.front_matter, document.warnings) == (FrontMatter(title=text), ())


@pytest.mark.parametrize("nothing", ["", "''", '""', "~", "null", "'  '", "|\n"])
def test_an_empty_text_is_none(nothing: str) -> None:
    document = parse_block(f"title: {nothing}\nsummary: {nothing}\ncategory: {nothing}\nwhen_to_retrieve: {nothing}")
    assert (document.front_matter, document.warnings) == (FrontMatter(), ())


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("'It's done'", "It's done"),
        ('"a "quoted" word"', 'a "quoted" word'),
        ('"C:\\path\\x"', "C:\\path\\x"),
    ],
)
def test_quotes_around_a_value_that_breaks_them_are_taken_off(written: str, text: str) -> None:
    document = parse_block(f"title: {written}")
    assert document.front_matter.title == text
    assert warned_lines(document) == [2]


def test_a_quote_that_is_not_closed_does_not_swallow_the_next_keys() -> None:
    document = parse_block('title: "Foo\ncategory: api\nsummary: bar"')
    assert document.front_matter == FrontMatter(title='"Foo', category="api", summary='bar"')
    assert warned_lines(document) == [2]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("[a, 1.10]", "a, 1.10"),
        ("\n  - a\n  - b", "a, b"),
        ("\n  zh: 支付\n  en: pay", "zh: 支付, en: pay"),
        ("{a: 1}", "{a: 1}"),
    ],
)
def test_a_list_or_mapping_where_a_text_belongs_is_read_as_text(written: str, text: str) -> None:
    document = parse_block(f"title: {written}")
    assert document.front_matter == FrontMatter(title=text)
    assert warnings(document) == [f"api/a.md:2: title is no text, read as {text!r}; put it in quotes"]


@pytest.mark.parametrize(
    ("written", "text"), [("/api/", "api"), ("' api/v1/ '", "api/v1"), ("' api '", "api"), ("/", None)]
)
def test_a_category_has_no_white_space_or_slashes_around_it(written: str, text: str | None) -> None:
    assert parse_block(f"category: {written}").front_matter == FrontMatter(category=text)


def test_slashes_around_a_category_are_warned_about() -> None:
    assert warnings(parse_block("category: /api/")) == ["api/a.md:2: category has slashes around it, read as 'api'"]


def test_a_title_is_one_line() -> None:
    assert parse_block("title: |\n  a\n   b\nsummary: |\n  a\n  b").front_matter == FrontMatter(
        title="a b", summary="a\nb"
    )


@pytest.mark.parametrize("colon", [":", "：", " ："])
def test_a_known_field_without_a_space_behind_its_colon_is_still_that_field(colon: str) -> None:
    document = parse_block(f"title{colon}支付\nsummary: x")
    assert document.front_matter == FrontMatter(title="支付", summary="x")
    assert warnings(document) == ["api/a.md:2: title is not followed by a colon and a space, read as if it were"]
    assert parse_block(f"title{colon}支付").front_matter == FrontMatter(title="支付")


# --- lists ----------------------------------------------------------------------------------------------------------


def test_keywords_keep_the_spelling_that_yaml_would_change() -> None:
    written = [
        "8005",
        "429",
        "007",
        "1.10",
        "0x1F",
        "1e3",
        "yes",
        "on",
        "null",
        "2024-01-01",
        "12:30",
        "1_000",
        ".5",
        "-0",
    ]
    for block in (f"keywords: [{', '.join(written)}]", "keywords:\n" + "\n".join(f"  - {word}" for word in written)):
        document = parse_block(block)
        assert document.front_matter.keywords == tuple(written)
        assert document.warnings == ()


@pytest.mark.parametrize("name", ["keywords", "covers"])
@pytest.mark.parametrize(
    "written", ["[a, b]", "\n  - a\n  - b", "\n- a\n- 'b'", "[a,\n  b]", "['a', \"b\"]", "[a, b, a, ' b']"]
)
def test_lists_as_they_are_written(name: str, written: str) -> None:
    document = parse_block(f"{name}: {written}\ntitle: x")
    assert fields(document) == {name: ["a", "b"], "title": "x"}
    assert document.warnings == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a, b c, d", ("a", "b c", "d")),
        ("超时，签名、重试；限流;熔断", ("超时", "签名", "重试", "限流", "熔断")),
        ("|\n  a\n  b", ("a", "b")),
        ("'a,,b,'", ("a", "b")),
        ("{a, b}", ("a", "b")),
        ("8005, 429", ("8005", "429")),
    ],
)
def test_keywords_in_one_text_are_split_with_a_warning(written: str, expected: tuple[str, ...]) -> None:
    document = parse_block(f"keywords: {written}")
    assert document.front_matter == FrontMatter(keywords=expected)
    assert warnings(document) == [f"api/a.md:2: keywords is no list, read as {', '.join(expected)!r}; write [a, b]"]


@pytest.mark.parametrize("written", ["8005", "ERR_TIMEOUT", "connection pool", "'007'"])
def test_a_single_keyword_needs_no_list(written: str) -> None:
    document = parse_block(f"keywords: {written}")
    assert (document.front_matter, document.warnings) == (FrontMatter(keywords=(written.strip("'"),)), ())


@pytest.mark.parametrize("nothing", ["", "[]", "~", "null", "''"])
def test_no_keywords_are_no_keywords(nothing: str) -> None:
    assert parse_block(f"keywords: {nothing}\ncovers: {nothing}").front_matter == FrontMatter()


def test_covers_in_one_text_are_one_entry_with_its_commas() -> None:
    document = parse_block("covers: 如何处理超时, 重试与熔断")
    assert document.front_matter == FrontMatter(covers=("如何处理超时, 重试与熔断",))
    assert warned_lines(document) == [2]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[@Tool, redis]", ("@Tool", "redis")),
        ("['x, y', *.md, %d]", ("x, y", "*.md", "%d")),
        ("[a, , b]", ("a", "b")),
        ("[a, b", ("a", "b")),
        ("ERR: timeout, b", ("ERR: timeout", "b")),
        ("\n  - @Tool\n  - ERR: a: b\n  - ok\n  - '007'", ("@Tool", "ERR: a: b", "ok", "007")),
        ("\n- `x`\n-\n- y\n  z", ("`x`", "y z")),
        ("# which\n  - @Tool\n\n  - *x", ("@Tool", "*x")),
        ("\n\t- a\n\t- b", ("a", "b")),
        ("\n  - a: b\n  - [c, [d]]", ("a: b", "c", "d")),
        ("[a, ~, '', b]", ("a", "b")),
    ],
)
@pytest.mark.parametrize("name", ["keywords", "covers"])
def test_lists_that_are_no_yaml_or_no_list_of_texts_are_mended(
    name: str, written: str, expected: tuple[str, ...]
) -> None:
    if name == "covers" and written.startswith("ERR"):
        expected = ("ERR: timeout, b",)
    document = parse_block(f"title: x\n{name}: {written}")
    assert fields(document) == {"title": "x", name: list(expected)}
    assert document.warnings
    assert all(line is not None and 3 <= line <= 7 for line in warned_lines(document))


def test_the_warning_about_an_item_names_its_line() -> None:
    assert warned_lines(parse_block("keywords:\n  - a\n\n  - @b\n  - c\n  - d: e: f")) == [5, 7]


# --- keys -----------------------------------------------------------------------------------------------------------


def test_the_last_of_two_texts_counts_with_a_warning_that_names_both_lines() -> None:
    document = parse_block("title: a\ncategory: api\ntitle: b\nowner: x\nowner: y")
    assert fields(document) == {"title": "b", "category": "api", "owner": "y"}
    assert warnings(document) == [
        "api/a.md:4: title is also on line 2; the last one counts",
        "api/a.md:6: owner is also on line 5; the last one counts",
    ]


def test_two_lists_are_united_with_a_warning_that_names_both_lines() -> None:
    document = parse_block("keywords: [a, b]\ncovers: [x]\nkeywords: [b, c]\ncovers: [y]")
    assert document.front_matter == FrontMatter(keywords=("a", "b", "c"), covers=("x", "y"))
    assert warnings(document) == [
        "api/a.md:4: keywords is also on line 2; both count",
        "api/a.md:5: covers is also on line 3; both count",
    ]


def test_two_spellings_of_a_field_are_one_field() -> None:
    document = parse_block("when_to_retrieve: a\nwhenToRetrieve: b")
    assert document.front_matter == FrontMatter(when_to_retrieve="b")
    assert warned_lines(document) == [3]


def test_a_key_twice_in_a_mapping_is_warned_about_too() -> None:
    document = parse_block("owner:\n  a: 1\n  a: 2")
    assert fields(document) == {"owner": {"a": 2}}
    assert warnings(document) == ["api/a.md:4: a is also on line 3; the last one counts"]


def test_keys_that_are_no_texts_become_texts() -> None:
    assert fields(parse_block("title: x\n404: a\nyes: b\n2024-01-01: c\nnull: d\n1.10: {2: e}")) == {
        "title": "x",
        "404": "a",
        "yes": "b",
        "2024-01-01": "c",
        "null": "d",
        "1.10": {"2": "e"},
    }


def test_lines_that_belong_to_no_key_are_kept() -> None:
    document = parse_block("stray first\ntitle: x\nstray line\n  with more\n# comment\nkeywords: [a]\n_unparsed: mine")
    assert fields(document) == {
        "title": "x",
        "keywords": ["a"],
        "_unparsed": "mine",
        "_unparsed_2": "stray first\nstray line\n  with more",
    }
    assert warnings(document)[0] == "api/a.md:2: 'stray first' is not `key: value`, kept under _unparsed"
    assert warned_lines(document) == [2, 4]


def test_tabs_as_indentation_and_behind_a_colon_are_read_as_spaces() -> None:
    document = parse_block("title:\tFoo\tbar\nkeywords:\n\t- a\n\t- b\nowner:\n\tteam: pay\n\tlead:\n\t\tname: x")
    assert fields(document) == {
        "title": "Foo bar",
        "keywords": ["a", "b"],
        "owner": {"team": "pay", "lead": {"name": "x"}},
    }
    assert warnings(document) == [
        f"api/a.md:{line}: YAML doesn't allow tabs as white space, read as spaces" for line in (2, 4, 7)
    ]


def test_a_stray_line_right_below_a_key_does_not_end_the_block() -> None:
    document = parse_block("title: a: b\nstray\nauthor: y")
    assert fields(document) == {"title": "a: b", "author": "y", "_unparsed": "stray"}


def test_a_stray_line_behind_a_blank_one_does_not_end_the_block_if_a_known_field_follows() -> None:
    document = parse_block("title: a: b\n\nstray\nkeywords: [x]")
    assert fields(document) == {"title": "a: b", "keywords": ["x"], "_unparsed": "stray"}


def test_the_beginning_of_a_second_yaml_document_hides_nothing() -> None:
    document = parse_block("title: a\n--- b\nkeywords: [x]")
    assert fields(document) == {"title": "a", "keywords": ["x"], "_unparsed": "--- b"}


def test_brackets_beyond_any_use_are_text_and_never_reach_the_parser() -> None:
    document = parse_block(f"x: {'[' * 51}\ntitle: a")
    assert fields(document) == {"x": "[" * 51, "title": "a"}
    assert "more than 50 brackets are open" in warnings(document)[0]
    assert parse_block(f"x: {'[' * 49}{']' * 49}").warnings == ()


def test_an_indented_block_is_read() -> None:
    assert parse_block("  title: a: b\n  keywords:\n    - x").front_matter == FrontMatter(title="a: b", keywords=("x",))


def test_a_block_in_braces_is_read() -> None:
    assert parse_block("{title: x, keywords: [a, 007]}").front_matter == FrontMatter(title="x", keywords=("a", "007"))


# --- other fields ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01 10:00:00", "2024-01-01T10:00:00"),
        ("2024-01-01T10:00:00+08:00", "2024-01-01T10:00:00+08:00"),
        ("2024-13-45", "2024-13-45"),
        ("5", 5),
        ("-1.5", -1.5),
        ("true", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("007", "007"),
        ("1.10", "1.10"),
        ("12:30", "12:30"),
        ("0x1F", "0x1F"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("9" * 5000, "9" * 5000),
        ("[1, [a, {b: 2024-01-01}]]", [1, ["a", {"b": "2024-01-01"}]]),
        ("{a: {b: [yes, 'no']}}", {"a": {"b": [True, "no"]}}),
        ("|\n  a: b\n  c", "a: b\nc"),
        ("!!set {a, b}", {"a": None, "b": None}),
    ],
)
def test_every_other_field_is_kept_as_json(written: str, value: Any) -> None:
    document = parse_block(f"title: x\nother: {written}")
    assert document.front_matter.extra == {"other": value}
    assert document.warnings == ()
    json.dumps(document.front_matter.to_metadata(), allow_nan=False)


def test_another_field_that_is_no_yaml_is_kept_as_its_text() -> None:
    document = parse_block("owner:\n  team: a: b\n  lead: c\ndate: 2024-01-01")
    assert fields(document) == {"owner": "team: a: b\nlead: c", "date": "2024-01-01"}
    assert warned_lines(document) == [2]


@pytest.mark.parametrize(
    "written",
    [
        "!!python/object/apply:os.system ['exit 1']",
        "!!python/name:os.system",
        "!!binary aGk=",
        "!custom {a: 1}",
        "!!int x y",
    ],
)
def test_a_tag_is_never_followed(written: str) -> None:
    document = parse_block(f"title: x\nother: {written}")
    kept = written.removeprefix("!!int ")
    assert fields(document) == {"title": "x", "other": kept}
    assert warned_lines(document) == ([3] if kept == written else [])


def test_aliases_are_not_followed_so_that_nothing_can_be_multiplied() -> None:
    levels = [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12)]
    document = parse_block("\n".join(["x0: &x0 [lol]", *levels]))
    assert document.front_matter.extra["x0"] == ["lol"]
    assert document.front_matter.extra["x11"] == ["*x10"] * 9
    assert len(json.dumps(document.front_matter.to_metadata())) < 2000
    assert warnings(document)[0] == "api/a.md:2: &x0 is not an anchor here, left out"
    assert warnings(document)[-1].endswith("more warnings")


def test_a_value_that_contains_itself_is_text() -> None:
    assert fields(parse_block("a: &a [*a]")) == {"a": ["*a"]}


def test_characters_that_no_database_keeps_are_replaced() -> None:
    document = parse_block('title: "a\\0b \\ud800 \\ud83d\\ude00"\nother: ["\\0"]')
    assert fields(document) == {"title": "a\ufffdb \ufffd 😀", "other": ["\ufffd"]}
    assert warnings(document)[0] == "api/a.md:2: characters that can't be stored were replaced"


@pytest.mark.parametrize(
    ("char", "kept"),
    [("\x07", "\ufffd"), ("\x85", " "), ("\u2028", " "), ("\x0c", " "), ("\ufeff", ""), ("\x7f", "\ufffd")],
)
def test_control_characters_that_yaml_refuses_are_replaced_with_a_warning(char: str, kept: str) -> None:
    document = parse_block(f"category: api\ntitle: a{char}keywords: b\nsummary: c")
    assert document.front_matter == FrontMatter(title=f"a{kept}keywords: b", category="api", summary="c")
    assert warnings(document)[0] == "api/a.md:3: control characters that YAML doesn't allow were replaced"


def test_the_body_keeps_its_characters() -> None:
    body = "a\x0bb\x85c\u2028d\ufeff\x07\n"
    assert parse(f"---\ntitle: x\n---\n{body}").body == body


def test_a_warning_is_one_line_with_file_and_line() -> None:
    assert str(FrontMatterWarning("a.md", 3, "m")) == "a.md:3: m"
    assert str(FrontMatterWarning("a.md", None, "m")) == "a.md: m"


def test_warnings_are_bounded() -> None:
    document = parse_block("a: b: c\n" * 4000)
    assert len(document.warnings) == 51
    assert warnings(document)[-1] == "api/a.md: 7949 more warnings"


@pytest.mark.parametrize(
    "block",
    [
        "x: " + "[" * 60_000,
        ("x: " + "[" * 49 + "\n") * 1200,
        ("x: " + "[" * 1000 + "\n") * 60,
        "x: " + "{a: " * 15_000,
        "x:\n  " + "- " * 30_000,
        "x: " + "&a " * 20_000,
        "a: b: c\n" + "x:\n" * 10_000,
        "title: " + ": " * 30_000,
        "keywords: " + ", " * 30_000,
        "keywords: " + " " * 60_000 + "x",
        "keywords:\n" + "  - @x\n" * 9000,
        'x: "y\n' * 10_000,
        " " * 60_000 + "title: x",
    ],
    ids=lambda block: f"{block[:12]!r}",
)
def test_hostile_blocks_take_bounded_time(block: str) -> None:
    started = time.process_time()
    parse(f"---\n{block}\n---\n")
    assert time.process_time() - started < 6  # seconds; measured at up to 1.3


# --- properties -----------------------------------------------------------------------------------------------------

_words_of_yaml = [
    "title",
    "keywords",
    "covers",
    "summary",
    "&a",
    "*a",
    "!x",
    "!!int",
    "!<%ff>",
    "%YAML 1.3",
    "<<",
    "007",
]
_lines_of_yaml = ["---\n", "...\n", "|\n", "- ", ": ", "? ", '"\\ud800"', '"\\Uffffffff"', "2024-01-01", "支付", "007"]
_pieces = st.sampled_from([*_words_of_yaml, *_lines_of_yaml, *"\n \t\r:：[]{}\"'>#@,、\\~=\x85\ufeff\x07é"])
_blocks = st.lists(_pieces, max_size=40).map("".join)
_frames = st.sampled_from(["---\n{}\n---\nB", "---\n{}", "{}"])
_encodings = st.sampled_from(["utf-8", "utf-16", "gb18030"])
_files = st.binary(max_size=200) | st.builds(
    lambda block, frame, encoding: frame.replace("{}", block).encode(encoding), _blocks, _frames, _encodings
)


@settings(deadline=None, max_examples=200)
@given(raw=_files)
def test_any_bytes_give_a_document_or_are_unreadable(raw: bytes) -> None:
    try:
        document = parse(raw)
    except UnreadableDocumentError:
        return
    json.dumps(document.front_matter.to_metadata(), allow_nan=False, ensure_ascii=False).encode()
    document.body.encode()
    assert "\r" not in document.body
    assert not any("\n" in warning for warning in warnings(document))
    assert read_body(raw, file_path="a.md") == document.body


_texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")), max_size=30)
_words = _texts.map(str.strip).filter(bool)
_plain = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _texts
_json = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3), max_leaves=8
)
_well_formed = st.fixed_dictionaries(
    {"title": _words},
    optional={
        "keywords": st.lists(_words, min_size=1, max_size=4, unique=True),
        "covers": st.lists(_words, min_size=1, max_size=4, unique=True),
        "summary": _words,
        "whenToRetrieve": _words,
        "tags": st.lists(_plain, min_size=1, max_size=3),
        "owner": st.dictionaries(_words, _json, min_size=1, max_size=3),
    },
)


@settings(deadline=None, max_examples=200)
@given(written=_well_formed, body=_texts, width=st.sampled_from([20, 80, 1000]), flow=st.booleans())
def test_what_another_program_writes_is_read_back(written: dict[str, Any], body: str, width: int, flow: bool) -> None:
    post = frontmatter.Post(body, **written)
    document = parse(frontmatter.dumps(post, width=width, default_flow_style=flow, sort_keys=False))
    assert fields(document) == written
    assert document.body.strip() == body.strip()
    assert document.warnings == ()


@settings(deadline=None, max_examples=100)
@given(
    written=_well_formed, mistake=st.sampled_from(["a: b", "@a", "[a", "*a b", "'a' b", "%a"]), place=st.integers(0, 5)
)
@example(written={"title": "x", "keywords": ["a"]}, mistake="a: b", place=1)
def test_one_mistake_leaves_all_other_values_as_they_are(written: dict[str, Any], mistake: str, place: int) -> None:
    assume("category" not in written)
    entries = [yaml.safe_dump({key: value}, allow_unicode=True).rstrip("\n") for key, value in written.items()]
    entries.insert(place, f"category: {mistake}")
    document = parse_block("\n".join(entries))
    assert fields(document) == {**written, "category": mistake}
    assert len(document.warnings) == 1


@pytest.mark.parametrize("listed", ["[甲词，乙词、丙词]", "\n- 甲词，乙词\n- 丙词"])
def test_keywords_of_a_list_that_are_separated_by_chinese_commas_are_split_with_a_warning(listed: str) -> None:
    parsed = parse_front_matter(f"---\ntitle: t\nkeywords: {listed}\n---\n\nbody".encode(), file_path="a.md")
    assert parsed.front_matter.keywords == ("甲词", "乙词", "丙词")
    assert [(warning.file_path, warning.line) for warning in parsed.warnings] == [("a.md", 3)]


def test_a_field_in_capitals_is_read_and_its_right_spelling_named() -> None:
    parsed = parse_block("Title: 网关\nKEYWORDS: [ERR_A]\nWhen to retrieve: 报错时")
    assert parsed.front_matter.title == "网关"
    assert parsed.front_matter.keywords == ("ERR_A",)
    assert parsed.front_matter.when_to_retrieve == "报错时"
    assert parsed.front_matter.extra == {}
    assert [warning.message for warning in parsed.warnings] == [
        "Title is read as title; write title",
        "KEYWORDS is read as keywords; write keywords",
        "When to retrieve is read as when_to_retrieve; write when_to_retrieve",
    ]


def test_a_field_in_capitals_beside_the_right_one_stays_a_field_of_its_own() -> None:
    parsed = parse_block("title: 网关\nTitle: 别的")
    assert parsed.front_matter.title == "网关"
    assert parsed.front_matter.extra == {"Title": "别的"}
    assert parsed.warnings == ()
