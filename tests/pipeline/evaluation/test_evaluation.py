"""Figures of labelled queries, by hand and on the bundled documents."""

from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import (
    EvaluationReport,
    LabelledQuery,
    LabelledQueryError,
    Outcome,
    Share,
    read_queries,
    require_documents,
)
from knowledge_lookup.postprocessors import RelevanceLevel


def outcome(gold: str, ranked: str, level: RelevanceLevel | None, delivered: str | None = None) -> Outcome:
    query = LabelledQuery("q", frozenset(gold), "keyword" if level is RelevanceLevel.PRECISE else "natural")
    return Outcome(query, tuple(ranked), tuple(ranked[:1] if delivered is None else delivered), level, 1.0)


REPORT = EvaluationReport(
    (
        outcome("a", "abc", RelevanceLevel.PRECISE),
        outcome("b", "abc", RelevanceLevel.PRECISE),
        outcome("c", "abdec", RelevanceLevel.REFERENCE, "ac"),
        outcome("x", "abcde", RelevanceLevel.HIGHLY_RELEVANT),
        outcome("", "a", RelevanceLevel.REFERENCE),
        outcome("", "", None, ""),
    )
)


def test_figures_equal_those_computed_by_hand() -> None:
    assert [REPORT.recall_at(k) for k in (1, 3, 5)] == [Share(1, 4), Share(2, 4), Share(3, 4)]
    assert REPORT.mrr == pytest.approx((1 + 1 / 2 + 1 / 5 + 0) / 4)
    assert REPORT.hit_rate == Share(2, 4)
    assert REPORT.not_found_rate == Share(1, 2)
    assert REPORT.right_at(RelevanceLevel.PRECISE) == Share(1, 2)
    assert REPORT.right_at(RelevanceLevel.REFERENCE) == Share(1, 2)
    assert REPORT.right_at(RelevanceLevel.HIGHLY_RELEVANT) == Share(0, 1)


def test_the_worst_error_is_a_wrong_precise() -> None:
    assert [wrong.level for wrong in REPORT.worst] == [
        RelevanceLevel.PRECISE,
        RelevanceLevel.HIGHLY_RELEVANT,
        RelevanceLevel.REFERENCE,
    ]


def test_figures_are_given_by_kind() -> None:
    kinds = REPORT.by_kind
    assert list(kinds) == ["keyword", "natural"]
    assert kinds["keyword"].hit_rate == Share(1, 2)


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433), (10, 10, 0.7225, 1.0)]
)
def test_intervals_are_wilsons(count: int, total: int, low: float, high: float) -> None:
    interval = Share(count, total).interval
    assert interval is not None
    assert interval == pytest.approx((low, high), abs=1e-4)


def test_a_share_of_nothing_is_none() -> None:
    assert Share(0, 0).value is None
    assert Share(0, 0).interval is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no queries"),
        ('{"query": "a", "gold": []}\nnot json', r"q\.jsonl:2: not JSON"),
        ('{"gold": []}', r'q\.jsonl:1: an object with a text "query"'),
        ('{"query": "a"}', r'q\.jsonl:1: "gold" must be a list'),
        ('{"query": "a", "gold": "a.md"}', r'q\.jsonl:1: "gold" must be a list'),
    ],
)
def test_a_file_that_is_no_list_of_labelled_queries_is_refused_with_the_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "q.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(LabelledQueryError, match=message):
        read_queries(tmp_path / "q.jsonl")


def test_the_bundled_documents_are_measured_without_a_trace(bundle: KnowledgePipeline) -> None:
    queries = [
        LabelledQuery("ERR_TIMEOUT 怎么处理", frozenset({"api/payment-errors.md"}), "keyword"),
        LabelledQuery(
            "数据库连接被耗尽，应用拿不到连接", frozenset({"infrastructure/mysql-connection-pool.md"}), "natural"
        ),
        LabelledQuery("今天中午吃什么", frozenset(), "unanswerable"),
    ]
    report = bundle.evaluate(queries)
    assert report.recall_at(1) == Share(2, 2)
    assert report.hit_rate == Share(2, 2)
    assert report.not_found_rate == Share(1, 1)
    assert [one.level for one in report.outcomes][::2] == [RelevanceLevel.PRECISE, None]
    assert len(report.outcomes[1].ranked) > 1
    assert bundle.recorder.flush(timeout=5)
    with bundle.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM tool_invocation").scalar_one() == 0


def test_a_byte_order_mark_before_the_first_query_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"query": "Redis", "gold": []}\n', encoding="utf-8-sig")
    assert [query.query for query in read_queries(file)] == ["Redis"]


def test_a_label_that_names_no_document_is_refused_with_what_to_write_instead() -> None:
    queries = [
        LabelledQuery("Redis", frozenset({"infrastructure/redis-config.md"})),
        LabelledQuery("ERR_TIMEOUT", frozenset({"knowledge_base/api/payment-errors.md"})),
    ]
    known = ["infrastructure/redis-config.md", "api/payment-errors.md"]
    require_documents(queries[:1], known)
    with pytest.raises(
        LabelledQueryError, match=r"'knowledge_base/api/payment-errors\.md', gold of 'ERR_TIMEOUT'"
    ) as caught:
        require_documents(queries, known)
    assert "relative to the base path" in str(caught.value)
