"""The action memory as an agent meets it: documents and sections, each text once."""

from typing import Any

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.postprocessors import RelevanceLevel
from tests.agents.manuals import DOCUMENTS, LONG_SENTENCES, SAY, STEPS, contents, reasons, section
from tests.agents.topics import TopicEmbedding
from tests.knowledge_bases import document


def test_every_section_of_a_document_is_got_exactly_once_by_its_title(pipeline: KnowledgePipeline) -> None:
    left = list(STEPS)
    passages: list[Any] = []
    for title, step in STEPS.items():
        result = section(pipeline, "UPGRADE_GUIDE", title)
        left.remove(title)
        assert result.found
        assert result.relevance_level is RelevanceLevel.PRECISE
        assert result.primary is not None
        assert result.primary.source == "docs/ops/steps.md"
        assert [line for line in result.primary.content.splitlines() if line] == [f"## {title}", step]
        assert result.available_sections == (tuple(left) or None)
        passages += result.passages
    for title in STEPS:
        again = section(pipeline, "UPGRADE_GUIDE", title)
        assert (again.found, contents(again), again.available_sections) == (False, "", None)
    assert not pipeline.lookup("UPGRADE_GUIDE", session_id="s1").found
    assert reasons(pipeline) == [None] * 10 + ["DOC_ALREADY_RETRIEVED"] * 11
    body = DOCUMENTS["ops/steps.md"].partition("\n---\n")[2]
    delivered = sorted(at for _, start, end in passages for at in range(start, end) if not body[at].isspace())
    first = body.index("## 准备")
    assert delivered == [at for at in range(first, len(body)) if not body[at].isspace()]


def test_sections_are_remembered_for_each_session_alone(pipeline: KnowledgePipeline) -> None:
    assert section(pipeline, "UPGRADE_GUIDE", "备份", "s1").found
    assert section(pipeline, "UPGRADE_GUIDE", "备份", "s2").found
    for _ in range(2):
        assert pipeline.lookup("UPGRADE_GUIDE", section_title="备份").found


async def test_a_section_can_be_asked_for_asynchronously(pipeline: KnowledgePipeline) -> None:
    first = await pipeline.alookup("UPGRADE_GUIDE", session_id="s1", section_title="备份")
    assert "导出全部数据。" in contents(first)
    assert not (await pipeline.alookup("UPGRADE_GUIDE", session_id="s1", section_title="备份")).found


def test_a_long_section_comes_in_parts_and_says_so(pipeline: KnowledgePipeline) -> None:
    parts: list[str] = []
    while (result := section(pipeline, "RATE_LIMIT", "限流规则")).found:
        assert result.primary is not None
        assert len(result.primary.content) <= 2000
        parts.append(result.primary.content)
        assert (result.available_sections or ())[:2] != ()
        is_last = LONG_SENTENCES[-1] in parts[-1]
        assert result.message == (None if is_last else SAY.section_unfinished.format(title="限流规则"))
    assert len(parts) > 2
    assert "".join(parts).replace("\n", "") == "## 限流规则" + "".join(LONG_SENTENCES)


def test_an_unknown_title_gets_the_list_and_nothing_is_taken_for_given(pipeline: KnowledgePipeline) -> None:
    section(pipeline, "UPGRADE_GUIDE", "备份")
    result = section(pipeline, "UPGRADE_GUIDE", "安装")
    assert result.found is False
    assert result.message == SAY.section_unknown.format(document="ops/steps.md", title="安装")
    assert result.available_sections == tuple(title for title in STEPS if title != "备份")
    assert section(pipeline, "UPGRADE_GUIDE", "收尾").found


def test_a_title_that_means_several_sections_gets_the_list_of_them(pipeline: KnowledgePipeline) -> None:
    result = section(pipeline, "RATE_LIMIT", "配置 > 示")
    assert result.found is False
    assert result.message == SAY.section_ambiguous.format(document="api/limits.md", title="配置 > 示")
    assert result.available_sections == ("配置 > 示例", "示例值")
    assert "配置样例。" in contents(section(pipeline, "RATE_LIMIT", "配置 > 示例"))


def test_of_sections_that_share_a_heading_each_comes_in_its_turn(pipeline: KnowledgePipeline) -> None:
    results = [section(pipeline, "RATE_LIMIT", "示例") for _ in range(3)]
    assert ["请求样例。" in contents(result) for result in results] == [True, False, False]
    assert ["配置样例。" in contents(result) for result in results] == [False, True, False]
    assert results[2].found is False


@pytest.mark.parametrize(
    "title", ["限流规则", " 限流规则？ ", "限流规", "限 流规则".replace(" ", "\u200b"), "接口限制 > 限流"]
)
def test_titles_match_in_normal_form_and_by_an_unambiguous_beginning(pipeline: KnowledgePipeline, title: str) -> None:
    found = section(pipeline, "RATE_LIMIT", title).found
    # The document's title is no heading of it.
    assert found is (">" not in title)


def test_an_empty_title_is_a_look_up_without_one(pipeline: KnowledgePipeline) -> None:
    result = section(pipeline, "SHORT_KEY", " \n")
    assert contents(result) == "只有一句话。"
    assert not section(pipeline, "SHORT_KEY", "").found


def test_the_title_of_a_document_without_a_text_of_its_own_means_its_beginning(pipeline: KnowledgePipeline) -> None:
    result = section(pipeline, "UPGRADE_GUIDE", "升级手册")
    assert result.primary is not None
    assert result.primary.content.startswith("# 升级手册\n\n## 准备\n\n先检查磁盘空间。")
    assert section(pipeline, "UPGRADE_GUIDE", "准备").found is False


def test_without_a_keyword_the_section_is_that_of_the_document_given_last(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup("CACHE_GUIDE", session_id="s1")
    pipeline.lookup("RATE_LIMIT", session_id="s1")
    asked = section(pipeline, "那一节再说说", "配置")
    assert asked.primary is None or "limits" in asked.primary.source
    unknown = section(pipeline, "那一节再说说", "缓存穿透")
    assert unknown.message is not None
    assert "mix/cache.md" in unknown.message


def test_without_keyword_and_earlier_documents_the_section_is_found_by_meaning(pipeline: KnowledgePipeline) -> None:
    result = section(pipeline, "话题丙是怎么回事", "重复")
    assert result.primary is not None
    assert result.primary.source == "docs/mix/queue.md"
    assert "重复消费" in result.primary.content
    assert "积压" not in result.primary.content
    assert section(pipeline, "完全无关的事", "没有的章节", "s2").message == SAY.not_found


def test_after_passages_an_exact_hit_delivers_the_rest_and_says_so(pipeline: KnowledgePipeline) -> None:
    first = pipeline.lookup("话题乙是什么", session_id="s1")
    assert "缓存同时失效" in contents(first)
    assert first.available_sections == ("缓存穿透", "热点")
    second = pipeline.lookup("CACHE_GUIDE", session_id="s1")
    assert second.found
    assert "请求绕过缓存" in contents(second)
    assert "单个键过热" in contents(second)
    assert "缓存同时失效" not in contents(second)
    assert second.message == SAY.rest_only.format(numbers=1)
    assert not pipeline.lookup("CACHE_GUIDE 文档", session_id="s1").found


def test_after_an_exact_hit_semantic_search_leaves_the_document_out(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup("CACHE_GUIDE", session_id="s1")
    result = pipeline.lookup("话题甲是什么", session_id="s1")
    assert result.found
    assert "mix/queue.md" in contents(result)
    assert "mix/cache.md" not in contents(result)
    blocked = pipeline.lookup("话题乙是什么", session_id="s1")
    assert blocked.found is False
    assert blocked.message is not None
    assert "mix/cache.md" in blocked.message
    assert reasons(pipeline) == [None, "PARTIALLY_FILTERED", "DOC_ALREADY_RETRIEVED"]


def test_after_a_passage_semantic_search_leaves_the_document_out_but_its_sections_can_be_asked_for(
    pipeline: KnowledgePipeline,
) -> None:
    pipeline.lookup("话题乙是什么", session_id="s1")
    assert "mix/cache.md" not in contents(pipeline.lookup("话题甲是什么", session_id="s1"))
    assert "请求绕过缓存" in contents(section(pipeline, "CACHE_GUIDE", "缓存穿透"))
    assert not section(pipeline, "CACHE_GUIDE", "缓存雪崩").found


def test_a_short_document_given_whole_is_closed(pipeline: KnowledgePipeline) -> None:
    assert pipeline.lookup("SHORT_KEY", session_id="s1").available_sections is None
    for result in (pipeline.lookup("SHORT_KEY 是什么", session_id="s1"), section(pipeline, "SHORT_KEY", "短文")):
        assert (result.found, result.available_sections) == (False, None)
    assert reasons(pipeline) == [None, "DOC_ALREADY_RETRIEVED", "DOC_ALREADY_RETRIEVED"]


def test_a_document_that_the_application_marked_is_closed_with_all_its_sections(pipeline: KnowledgePipeline) -> None:
    pipeline.memory.mark_retrieved("s1", "infra", "mix/cache.md")
    results = [
        pipeline.lookup("CACHE_GUIDE", session_id="s1"),
        section(pipeline, "CACHE_GUIDE", "热点"),
        pipeline.lookup("话题乙是什么", session_id="s1"),
    ]
    assert [(result.found, result.available_sections) for result in results] == [(False, None)] * 3
    assert all("mix/cache.md" in str(result.message) for result in results)


def test_without_a_session_nothing_is_remembered(pipeline: KnowledgePipeline, model: TopicEmbedding) -> None:
    for query in ("话题乙", "CACHE_GUIDE", "话题己"):
        assert pipeline.lookup(query) == pipeline.lookup(query)
    assert model.asked == 4
    assert section(pipeline, "CACHE_GUIDE", "热点") == pipeline.lookup(
        "CACHE_GUIDE", session_id="s2", section_title="热点"
    )
    assert set(reasons(pipeline)) == {None}


def test_a_session_that_ends_begins_anew(pipeline: KnowledgePipeline) -> None:
    first = pipeline.lookup("话题乙", session_id="s1")
    section(pipeline, "CACHE_GUIDE", "热点")
    pipeline.memory.clear_session("s1")
    assert pipeline.lookup("话题乙", session_id="s1") == first
    assert section(pipeline, "CACHE_GUIDE", "热点").found


def test_a_title_may_be_written_as_the_document_writes_its_heading(pipeline: KnowledgePipeline) -> None:
    assert section(pipeline, "CACHE_GUIDE", "## **缓存穿透**").found
    assert not section(pipeline, "CACHE_GUIDE", "### `缓存穿透` ###").found


def test_of_a_document_that_was_edited_the_new_text_comes_and_the_old_does_not(pipeline: KnowledgePipeline) -> None:
    def upload(*sections: str) -> None:
        text = document("\n\n".join(sections), title="机房", keywords="[ROOM_GUIDE]")
        pipeline.upload(text.encode(), name="room.md", category="mix")

    old, more = "## 断电\n\n柴油发电机在三十秒内接管。", "## 门禁\n\n门禁卡丢失要在当天补办。"
    upload(old)
    assert "柴油发电机" in contents(pipeline.lookup("ROOM_GUIDE", session_id="s1"))
    upload(old, more)
    edited = pipeline.lookup("ROOM_GUIDE", session_id="s1")
    assert contents(edited) == more
    assert not pipeline.lookup("ROOM_GUIDE 是什么", session_id="s1").found
    assert not section(pipeline, "ROOM_GUIDE", "断电").found
    upload("## 空调\n\n冷通道保持二十二度。")
    assert "冷通道" in contents(pipeline.lookup("ROOM_GUIDE", session_id="s1"))


def test_a_section_of_punctuation_alone_is_listed_and_can_be_asked_for(pipeline: KnowledgePipeline) -> None:
    text = document("## 甲\n\n第一段文字。\n\n## ！！\n\n第二段文字。", title="T", keywords="[SIGN_GUIDE]")
    pipeline.upload(text.encode(), name="signs.md", category="mix")
    first = section(pipeline, "SIGN_GUIDE", "甲")
    assert first.available_sections == ("！！",)
    assert contents(section(pipeline, "SIGN_GUIDE", "！！")) == "## ！！\n\n第二段文字。"
    assert not pipeline.lookup("SIGN_GUIDE", session_id="s1").found


def test_of_documents_that_share_keyword_and_title_the_section_that_is_new_comes(pipeline: KnowledgePipeline) -> None:
    for number in (1, 2):
        text = document(f"## 步骤\n\n第 {number} 份文档的步骤。", title=f"T{number}", keywords="[SHARED_GUIDE]")
        pipeline.upload(text.encode(), name=f"shared{number}.md", category="mix")
    given = [contents(section(pipeline, "SHARED_GUIDE", "步骤")) for _ in range(3)]
    assert ["第 1 份" in given[0], "第 2 份" in given[1], given[2]] == [True, True, ""]
