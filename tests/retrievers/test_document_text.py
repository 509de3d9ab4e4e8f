"""A document's text by sections: names, places, and what is left of it when parts were given."""

import re

import pytest

from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.excerpt import Excerpt
from knowledge_lookup.retrievers.text_span import TextSpan
from tests.retrievers.delivered_text import assert_is_new, without_space

MANUAL = """# 缓存手册

开头一段。

## 安装

装好软件包。

### 示例

apt install

## 升级

先备份。

### 示例

apt upgrade

## 空标题

## 附录

完。
"""


@pytest.fixture
def manual() -> DocumentText:
    return DocumentText(MANUAL, "缓存手册")


def lines(part: Excerpt) -> list[str]:
    return [line for line in part.text.splitlines() if line]


def only(document: DocumentText, title: str) -> int:
    [position] = document.sections_named(title)
    return position


def test_a_title_is_the_heading_and_a_heading_that_occurs_twice_takes_its_path(manual: DocumentText) -> None:
    assert manual.titles_left([]) == ("缓存手册", "安装", "安装 > 示例", "升级", "升级 > 示例", "附录")


def test_text_before_the_first_heading_has_the_documents_title() -> None:
    document = DocumentText("开头。\n\n## 一\n\n甲。\n", "手册")
    assert document.titles_left([]) == ("手册", "一")
    assert document.section(only(document, "手册"), []).text == "开头。"


def test_a_document_without_headings_is_one_section_with_its_title() -> None:
    document = DocumentText("只有一段。\n", "手册")
    assert document.titles_left([]) == ("手册",)
    assert document.section(0, []) == Excerpt("只有一段。", (TextSpan(0, 5),))
    assert DocumentText(" \n", "空").titles_left([]) == ()


@pytest.mark.parametrize(
    ("title", "found"),
    [
        ("安装", ["安装"]),
        ("  安 装？", ["安装"]),
        ("缓存手册 > 安装", ["安装"]),
        ("升级 > 示例", ["升级 > 示例"]),
        ("示例", ["安装 > 示例", "升级 > 示例"]),
        ("缓存手册", ["缓存手册"]),
        ("装", []),
        ("安装 > 不存在", []),
        ("", []),
        ("？", []),
    ],
)
def test_sections_are_named_by_title_heading_or_path_in_normal_form(
    manual: DocumentText, title: str, found: list[str]
) -> None:
    assert [manual.title_at(at) for at in manual.sections_named(title.replace("安 装", "安装"))] == found


def test_sections_begin_with_any_beginning_of_their_names() -> None:
    document = DocumentText(
        "# Guide\n\nA.\n\n## Install\n\nB.\n\n## Installation on ARM\n\nC.\n\n## Usage\n\nD.\n", "Guide"
    )
    named = {
        beginning: [document.title_at(at) for at in document.sections_beginning(beginning)]
        for beginning in ("INSTALL", "installation", "us", "Guide > U", "", "！", "nstall")
    }
    assert named == {
        "INSTALL": ["Install", "Installation on ARM"],
        "installation": ["Installation on ARM"],
        "us": ["Usage"],
        "Guide > U": ["Usage"],
        "": [],
        "！": [],
        "nstall": [],
    }


def test_a_section_comes_with_the_sections_below_it_and_once(manual: DocumentText) -> None:
    installation = only(manual, "安装")
    first = manual.section(installation, [])
    assert lines(first) == ["## 安装", "装好软件包。", "### 示例", "apt install"]
    assert manual.section(installation, first.spans) == Excerpt("", ())
    assert manual.section(only(manual, "安装 > 示例"), first.spans).text == ""
    assert manual.titles_left(first.spans) == ("缓存手册", "升级", "升级 > 示例", "附录")


def test_a_section_of_which_a_lower_one_was_given_comes_without_it(manual: DocumentText) -> None:
    example = manual.section(only(manual, "升级 > 示例"), [])
    assert lines(example) == ["### 示例", "apt upgrade"]
    assert lines(manual.section(only(manual, "升级"), example.spans)) == ["## 升级", "先备份。"]
    own = MANUAL.index("先备份。")
    rest = manual.section(only(manual, "升级"), [TextSpan(own, own + 4)])
    assert lines(rest) == ["## 升级", "### 示例", "apt upgrade"]


def test_of_a_section_that_is_the_whole_document_only_its_own_text_comes(manual: DocumentText) -> None:
    assert lines(manual.section(only(manual, "缓存手册"), [])) == ["# 缓存手册", "开头一段。"]


def test_a_heading_without_text_is_given_once_and_not_listed(manual: DocumentText) -> None:
    heading = manual.section(only(manual, "空标题"), [])
    assert heading.text == "## 空标题"
    assert manual.section(only(manual, "空标题"), heading.spans).text == ""
    assert "空标题" not in manual.titles_left([])


def test_a_heading_of_punctuation_alone_can_be_asked_for() -> None:
    document = DocumentText("## ？\n\n甲。\n\n## 乙\n\n乙。\n", "手册")
    assert document.titles_left([]) == ("？", "乙")
    assert document.section(only(document, "？"), []).text == "## ？\n\n甲。"


def test_another_version_tells_which_lines_it_has_in_common() -> None:
    old = DocumentText("## 甲\n\n第一行文字。\n\n```\ncommand --flag\n```\n", "手册")
    lines = old.lines_of([TextSpan(0, len(old.body))])
    new = DocumentText(
        "# 新\n\n新的一行。\n\n## 甲\n\n第一行文字。\n\n```\ncommand --flag\n```\n\n最后一行。\n", "手册"
    )
    [common] = new.spans_of_lines(set(lines))
    assert new.body[common.start : common.end] == "## 甲\n\n第一行文字。\n\n```\ncommand --flag"
    assert new.spans_of_lines(set()) == []


def test_a_long_section_comes_in_parts_that_are_cut_at_sentences() -> None:
    sentences = [f"第{number}句说明一件事情。" for number in range(60)]
    document = DocumentText("## 长\n\n" + "".join(sentences) + "\n\n## 短\n\n完。\n", "手册")
    given: list[TextSpan] = []
    parts: list[str] = []
    while part := document.section(only(document, "长"), given, limit=200).text:
        given += document.section(only(document, "长"), given, limit=200).spans
        parts.append(part)
    assert all(len(part) <= 200 and part.endswith("。") for part in parts)
    assert without_space("".join(parts)) == "##长" + "".join(sentences)
    assert document.titles_left(given) == ("短",)


def test_an_exact_match_delivers_what_is_left_around_the_term(manual: DocumentText) -> None:
    given = manual.section(only(manual, "安装"), []).spans
    rest = manual.rest(["upgrade"], given)
    assert "装好软件包" not in rest.text
    assert lines(rest)[:2] == ["# 缓存手册", "开头一段。"]
    assert "apt upgrade" in rest.text
    assert manual.rest(["upgrade"], [*given, *rest.spans]) == Excerpt("", ())


def test_the_lead_and_a_section_that_begins_in_it_do_not_overlap() -> None:
    filler = "这一段只是背景说明，与错误码无关。"
    body = f"开头。\n\n## 甲\n\n{filler * 30}ERR_A。{filler * 150}\n\n## 乙\n\nERR_B。\n"
    document = DocumentText(body, "手册")
    part = document.rest(["err_a", "err_b"], [])
    assert "ERR_A" in part.text
    assert "ERR_B" in part.text
    assert_is_new(document, part, [], 2000)


def test_titles_of_ranges_are_those_of_the_sections_whose_text_is_touched(manual: DocumentText) -> None:
    start = MANUAL.index("apt install")
    assert manual.titles_of([TextSpan(start, start + 3)]) == ("安装 > 示例",)
    assert manual.titles_of([TextSpan(MANUAL.index("装好"), start + 3)]) == ("安装", "安装 > 示例")
    heading = MANUAL.index("## 安装")
    assert manual.titles_of([TextSpan(heading, heading + 5)]) == ()
    assert manual.titles_of([TextSpan(0, len(MANUAL))]) == manual.titles_left([])
    assert manual.titles_of([]) == ()


def test_a_version_belongs_to_a_text() -> None:
    assert DocumentText("甲", "t").version == DocumentText("甲", "another title").version
    assert DocumentText("甲", "t").version != DocumentText("乙", "t").version
    assert DocumentText("\ud800", "t").version


TWICE = "# 超时\n\n## 概述\n\n重试三次。\n\n## 客户端\n\n### 处理\n\n重试三次。\n\n## 端\n\n### 处理\n\n重试三次。\n"


@pytest.mark.parametrize(
    ("section", "occurrence"),
    [("概述", 0), ("客户端 > 处理", 1), ("端 > 处理", 2), ("超时 > 端 > 处理", 2), ("另一个", 0), ("", 0)],
)
def test_a_passage_that_stands_in_several_sections_is_found_in_its_own(section: str, occurrence: int) -> None:
    document = DocumentText(TWICE, "超时")
    start = [match.start() for match in re.finditer("重试三次。", TWICE)][occurrence]
    assert document.locate("重试三次。", section) == TextSpan(start, start + 5)


def test_a_passage_that_this_version_does_not_have_is_not_found() -> None:
    assert DocumentText(TWICE, "超时").locate("重试四次。", "概述") is None
