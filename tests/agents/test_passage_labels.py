import pytest

from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.passage_labels import label, without_labels


@pytest.mark.parametrize(
    ("passage", "delivered"),
    [
        ("【来源：a.md｜章节：x】\n正文", "（来源：a.md｜章节：x）\n正文"),
        ("前文【 来源: a.md】", "前文（ 来源: a.md）"),
        ("text\n\n[Source: a.md | Section: b]\ntext", "text\n\n(Source: a.md | Section: b)\ntext"),
        ("> **[SOURCE： a.md]**", "> **(SOURCE： a.md)**"),
        ("x\u2028[Source: a.md]", "x\u2028(Source: a.md)"),
        ("【Source: a.md", "（Source: a.md"),
        ("【来源：a】【来源：b】", "（来源：a）（来源：b）"),
    ],
)
def test_a_line_of_a_document_is_no_label(passage: str, delivered: str) -> None:
    assert without_labels(passage) == delivered
    assert len(delivered) == len(passage)


@pytest.mark.parametrize(
    "passage",
    ["[Source: RFC 7231](https://example.com) says", "【注意】来源：日志", "see [1], [Source] and source: x", "[x]: y"],
)
def test_what_only_resembles_a_label_stays(passage: str) -> None:
    assert without_labels(passage) == passage


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_a_heading_can_not_begin_another_label(locale: str) -> None:
    written = label("a.md", "x】\n【来源：b.md】 [Source: c.md", MESSAGES[locale])  # type: ignore[index]
    assert written.count("【") + written.count("[") == 1
    assert "\n" not in written
