"""Questions that a session has asked before, and what a block tells the model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.manuals import SAY, contents, reasons, section
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import document, write_documents


def test_a_block_names_what_was_given_when_and_what_is_left(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup("SHORT_KEY", session_id="s1")
    pipeline.lookup("话题乙是什么", session_id="s1")
    block = pipeline.lookup("话题乙到底是什么", session_id="s1")
    assert block.message == (
        SAY.already_retrieved.format(documents="mix/cache.md")
        + SAY.given_at.format(number=2, what=SAY.given_sections.format(document="cache.md", sections="缓存雪崩"))
    )
    assert block.available_sections == ("缓存穿透", "热点")
    assert block.retrieved_domains_this_session == ("api", "infra")
    assert "缓存同时失效" not in str(block)


def test_every_block_names_what_was_given_and_what_is_left(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup("话题乙是什么", session_id="s1")
    for number in (1, 2, 3):
        block = pipeline.lookup(f"话题乙第{number}问", session_id="s1")
        assert block.message is not None
        assert "mix/cache.md" in block.message
        assert "第1次检索给出：cache.md（" in block.message
        assert block.available_sections == ("缓存穿透", "热点")


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_no_block_is_longer_than_300_characters(tmp_path: Path, locale: str) -> None:
    name = "a-rather-long-but-by-no-means-unusual-name-of-a-runbook-for-the-payment-gateway-and-its-retries.md"
    headings = [
        f"第{number}节：支付网关在高峰期间的超时、重试与幂等处理的若干注意事项以及回滚步骤说明" for number in range(30)
    ]
    body = "\n\n".join(f"## {heading}\n\n话题甲的第 {heading} 段。" for heading in headings)
    documents = {f"payments/{at}-{name}": document(body, title=f"T{at}", keywords=f"[KEY_{at}]") for at in range(4)}
    base = write_documents(tmp_path / "docs", documents)
    settings = topic_settings(base, tmp_path / "data", locale=locale, max_lookups=40, same_question_similarity=0.5)
    with KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding()) as pipeline:
        pipeline.sync()
        queries = [
            "话题甲",
            "话题甲",
            "话题甲？",
            "话题甲 吗",
            "话题甲 呢",
            "KEY_0 KEY_1 KEY_2 KEY_3",
            "KEY_0",
            "KEY_0 呢",
        ]
        queries += ["话题己", "话题己", "今天吃什么", "今天吃什么呢", "KEY_0 话题甲", "KEY_0 话题甲", "话题乙话题甲"]
        results = [pipeline.lookup(query, session_id="s1") for query in queries]
        results += [section(pipeline, f"KEY_{at}", headings[3]) for at in range(4) for _ in range(3)]
        results += [pipeline.lookup(f"话题甲 {number}", session_id="s1") for number in range(20)]
        named = set(reasons(pipeline))
    blocks = [result.to_json() for result in results if not result.found]
    assert len(blocks) > 20
    assert {"DOC_ALREADY_RETRIEVED", "REPEATED_QUESTION", "LOOKUP_LIMIT"} <= named
    assert [block for block in blocks if len(block) >= 300] == []


@pytest.mark.parametrize("locale", ["zh", "en"])
def test_a_block_about_a_document_with_a_very_long_name_is_no_longer(tmp_path: Path, locale: str) -> None:
    name = f"payments/{'very-long-' * 15}name.md"
    base = write_documents(tmp_path / "docs", {name: document("## 一\n\n话题甲。", title="T", keywords="[KEY_L]")})
    settings = topic_settings(base, tmp_path / "data", locale=locale)
    with KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding()) as pipeline:
        pipeline.sync()
        assert pipeline.lookup("话题甲", session_id="s1").found
        blocks = [pipeline.lookup(f"话题甲 {number}", session_id="s1") for number in range(2)]
        blocks.append(section(pipeline, "KEY_L", "一"))
    assert [block.found for block in blocks] == [False] * 3
    assert max(len(block.to_json()) for block in blocks) < 300


def test_a_repeated_question_is_answered_without_retrieval(pipeline: KnowledgePipeline, model: TopicEmbedding) -> None:
    first = pipeline.lookup("话题乙 是什么", session_id="s1")
    assert first.found
    model.is_broken = True
    for query in ("话题乙 是什么", "“话题乙 是什么”？", "话题乙 \u200b是什么。"):
        again = pipeline.lookup(query, session_id="s1")
        assert again.found is False
        assert again.message is not None
        assert "mix/cache.md" in again.message
    assert model.asked == 1
    assert reasons(pipeline) == [None, *["DOC_ALREADY_RETRIEVED"] * 3]


def test_a_repeated_question_that_found_nothing_is_answered_without_retrieval(
    pipeline: KnowledgePipeline, model: TopicEmbedding
) -> None:
    pipeline.lookup("话题己", session_id="s1")
    model.is_broken = True
    assert pipeline.lookup("话题己！", session_id="s1").found is False
    assert model.asked == 1
    assert reasons(pipeline) == [None, "REPEATED_QUESTION"]


def test_the_same_question_to_the_other_tool_is_another_question(
    pipeline: KnowledgePipeline, model: TopicEmbedding
) -> None:
    pipeline.lookup("话题己", session_id="s1")
    pipeline.search_doc_tool("s1").call(query="话题己")
    assert model.asked == 2


def test_after_an_upload_or_a_deletion_a_repeated_question_is_retrieved_again(
    pipeline: KnowledgePipeline, model: TopicEmbedding
) -> None:
    assert not pipeline.lookup("话题己", session_id="s1").found
    new = document("话题己：新的内容。", title="新文档", category="infra")
    pipeline.upload(new.encode(), name="new.md")
    assert "新的内容" in contents(pipeline.lookup("话题己", session_id="s1"))
    asked = model.asked
    assert not pipeline.lookup("话题己", session_id="s1").found
    assert model.asked == asked
    pipeline.delete("api/short.md")
    assert not pipeline.lookup("话题己", session_id="s1").found
    assert model.asked == asked + 1


def test_a_document_that_was_uploaded_and_deleted_again_leaves_the_question_as_it_was(
    pipeline: KnowledgePipeline, model: TopicEmbedding
) -> None:
    pipeline.lookup("话题己", session_id="s1")
    pipeline.upload(document("话题己。", title="新文档", category="infra").encode(), name="new.md")
    pipeline.delete("infra/new.md")
    assert not pipeline.lookup("话题己", session_id="s1").found
    assert model.asked == 1


def test_nothing_found_twice_in_a_row_is_said_plainly(pipeline: KnowledgePipeline) -> None:
    queries = ("话题己", "话题己 详情", "话题己 介绍", "话题乙", "话题戊", "话题戊")
    results = [pipeline.lookup(query, session_id="s1") for query in queries]
    assert [result.message for result in results] == [
        SAY.not_found,
        SAY.not_found_again,
        SAY.not_found_still,
        None,
        SAY.not_found,
        SAY.not_found_again,
    ]
    assert "知识库没有收录" in SAY.not_found_again


def test_what_is_weaker_than_what_the_session_has_on_the_question_is_not_delivered(
    pipeline: KnowledgePipeline,
) -> None:
    for query in ("CACHE_GUIDE", "QUEUE_GUIDE"):
        pipeline.lookup(query, session_id="s1")
    block = pipeline.lookup("话题甲", session_id="s1")
    assert block.found is False
    assert reasons(pipeline)[-1] == "DOC_ALREADY_RETRIEVED"
    assert "概览" in contents(pipeline.lookup("话题丁", session_id="s1"))


NEARLY = 0.6
"""Of one topic and two the cosine is 0.71."""


@pytest.fixture
def strict(manuals: Path, model: TopicEmbedding) -> Iterator[KnowledgePipeline]:
    """Give a pipeline that takes questions for the same when they share one topic of two."""
    settings = topic_settings(manuals / "docs", manuals / "data", top_k=2, same_question_similarity=NEARLY)
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        yield pipeline


def test_to_a_nearly_identical_question_nothing_weaker_is_delivered(strict: KnowledgePipeline) -> None:
    first = strict.lookup("话题甲", session_id="s1")
    assert {span.file_path for span in first.passages} == {"mix/cache.md", "mix/queue.md"}
    # Of what it finds the session has nothing better; but on the nearly identical question it has.
    block = strict.lookup("话题甲和话题丙", session_id="s1")
    assert block.found is False
    assert block.message == SAY.nothing_stronger.format(number=1)
    assert not strict.lookup("话题甲和话题丙！", session_id="s1").found
    assert reasons(strict) == [None, "REPEATED_QUESTION", "REPEATED_QUESTION"]
    # A session that has the same documents, but didn't ask for them, gets it.
    for file_path in ("mix/cache.md", "mix/queue.md"):
        strict.memory.mark_retrieved("s2", "infra", file_path)
    assert "概览" in contents(strict.lookup("话题甲和话题丙", session_id="s2"))


def test_to_a_nearly_identical_question_what_is_as_strong_is_delivered_and_said_to_be_all_that_is_new(
    strict: KnowledgePipeline,
) -> None:
    strict.lookup("话题甲", session_id="s1")
    result = strict.lookup("话题甲和话题丁", session_id="s1")
    assert [span.file_path for span in result.passages] == ["mix/both.md"]
    assert result.message == SAY.same_question.format(number=1)


def test_a_question_that_names_another_keyword_is_not_nearly_identical(strict: KnowledgePipeline) -> None:
    strict.lookup("话题甲", session_id="s1")
    result = strict.lookup("RATE_LIMIT 的话题甲和话题丙", session_id="s1")
    assert result.found
    assert result.message is None


def test_without_a_bound_no_question_is_nearly_identical(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup("话题甲", session_id="s1")
    assert pipeline.lookup("话题乙和话题甲", session_id="s1").message != SAY.same_question.format(number=1)


def test_the_embedded_model_has_a_bound_and_an_unknown_one_has_none(manuals: Path, model: TopicEmbedding) -> None:
    settings = topic_settings(manuals / "docs", manuals / "data")
    with KnowledgePipeline.from_settings(settings) as embedded:
        bound = embedded.session_rules.same_question_similarity
    with KnowledgePipeline.from_settings(settings, embed_model=model) as unknown:
        assert unknown.session_rules.same_question_similarity is None
    assert bound is not None
    assert 0.85 < bound < 1
