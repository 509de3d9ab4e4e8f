"""Queries made of documents."""

from collections.abc import Mapping
from typing import Any

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import LabelledQuery
from knowledge_lookup.pipeline.tuning import CorpusDocument
from knowledge_lookup.pipeline.tuning.pseudo_queries import OUTSIDE, SENTENCE, pseudo_queries
from knowledge_lookup.retrievers.search_terms import query_terms

TITLE = "支付网关错误码的完整定义手册"
BODY = f"""开头一段说明网关位于业务和渠道之间。

# {TITLE}

调用方等满三十秒仍没有收到应答，订单保持处理中。

## 超时之后首先查询订单的真实状态

| 字段 | 渠道返回的原始错误描述 |
|---|---|

执行 `jstack pid` 保留现场线程栈。
短句。

对账文件迟到之后的补救办法
--------------------------

渠道回执丢失时以对账文件为准。
"""


def made(metadata: Mapping[str, Any], body: str = "", *, most: int = 100) -> list[LabelledQuery]:
    return pseudo_queries([CorpusDocument("api/pay.md", "api", metadata, body)], most=most)


def texts(queries: list[LabelledQuery], kind: str) -> set[str]:
    return {query.query for query in queries if query.kind == kind}


def texts_of(queries: list[LabelledQuery], file_path: str) -> list[str]:
    return sorted(query.query for query in queries if query.gold == frozenset({file_path}))


def test_front_matter_gives_the_first_clause_of_a_questions_length_of_each_field() -> None:
    metadata = {
        "title": TITLE,
        "keywords": ["支付网关错误码大全"],
        "covers": ["网关返回的错误码及状态码"],
        "summary": "总览：全部核心错误码的含义、常见原因。每个错误码能不能重试。",
        "whenToRetrieve": "支付接口返回错误码时，需要判断能否重试。",
        "description": ["渠道侧回执的核对方法"],
    }
    assert texts(made(metadata), OUTSIDE) == {
        # "总览" says too little to be a question.
        "全部核心错误码的含义、常见原因",
        "支付接口返回错误码时",
        "渠道侧回执的核对方法",
    }


def test_a_copy_of_the_summary_is_asked_once() -> None:
    summary = "全部核心错误码的含义与常见原因"
    assert made({"summary": summary, "whenToRetrieve": summary}) == [
        LabelledQuery(summary, frozenset({"api/pay.md"}), OUTSIDE)
    ]


@pytest.mark.parametrize("value", [None, "", "短句", 42, [], {"zh": "全部核心错误码的含义与常见原因"}, [1, None]])
def test_front_matter_that_says_nothing_usable_gives_no_query(value: Any) -> None:
    assert made({"summary": value}) == []


def test_the_text_gives_clauses_without_titles_headings_tables_and_code() -> None:
    clauses = {
        "开头一段说明网关位于业务和渠道之间",
        "调用方等满三十秒仍没有收到应答",
        "订单保持处理中",
        "渠道回执丢失时以对账文件为准",
    }
    assert len(texts(made({}, BODY), SENTENCE)) == 2
    # Two of each document; which ones depends on the document alone.
    documents = [CorpusDocument(f"{number}.md", "api", {}, BODY) for number in range(20)]
    queries = pseudo_queries(documents, most=1000)
    assert {query.query for query in queries} == clauses
    assert {query.kind for query in queries} == {SENTENCE}
    alone = pseudo_queries(documents[7:8], most=1000)
    assert set(alone) == {query for query in queries if query.gold == frozenset({"7.md"})}


@pytest.mark.parametrize(
    ("clause", "is_asked"),
    [
        ("valve pump gauge", False),
        ("valve pump gauge crank", True),
        (" ".join(f"part{number}" for number in range(16)), True),
        (" ".join(f"part{number}" for number in range(17)), False),
        ("how do I set the valve", False),
        ("see https://example.org for valve pump gauge crank", False),
    ],
)
def test_a_query_says_as_much_as_a_question_does(clause: str, is_asked: bool) -> None:
    assert bool(made({}, clause)) is is_asked
    assert bool(made({"summary": clause})) is is_asked


def test_a_point_inside_a_number_or_name_does_not_end_a_clause() -> None:
    assert texts(made({"summary": "Upgrade Flyway 9.22 before flyway.repair works. Then migrate."}), OUTSIDE) == {
        "Upgrade Flyway 9.22 before flyway.repair works"
    }


def test_the_same_documents_always_give_the_same_queries_and_a_smaller_number_is_a_sample_of_all() -> None:
    documents = [
        CorpusDocument(f"{number}.md", "api", {"summary": f"第{number}号手册的核心内容"}, BODY) for number in range(30)
    ]
    every = pseudo_queries(documents, most=1000)
    assert len(every) == 90
    assert pseudo_queries(documents, most=1000) == every
    some = pseudo_queries(documents, most=20)
    assert some == every[:20]
    # A sample, not the first documents.
    assert len({query.gold for query in some}) > 10


def test_the_bundled_documents_give_queries_of_their_summaries_and_of_when_to_retrieve_them(
    bundle: KnowledgePipeline,
) -> None:
    documents = [
        CorpusDocument(record.file_path, record.category, record.metadata, "") for record in bundle.documents.list()
    ]
    queries = pseudo_queries(documents, most=100)
    # The first clause of the note on when to retrieve it is longer than a question.
    assert texts_of(queries, "infrastructure/mysql-connection-pool.md") == [
        "HikariCP 连接 MySQL 的参数取值、池大小估算",
        "或者要确定连接池开多大时",
    ]
    assert all(4 <= len(query_terms(query.query)) <= 16 for query in queries)
    # A document without a note of its own on when to retrieve it has its summary there as well.
    assert texts_of(queries, "domain/spring-ai-tool-best-practices.md") == ["用 Spring AI 写工具的规范"]
