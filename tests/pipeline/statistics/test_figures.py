"""The figures of a known set of records, on both databases, against what a person computes by hand."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text, update

from knowledge_lookup.pipeline.evaluation import Share
from knowledge_lookup.pipeline.statistics import Gap, Outcomes, Percentiles, SessionCalls, StatisticsReader
from knowledge_lookup.pipeline.statistics.gap_list import GapList
from knowledge_lookup.pipeline.storage import Database, DocumentRepository, DocumentStatus
from knowledge_lookup.pipeline.storage.tables import tool_invocation

from .calls import DAY, NOW, call, figures, nothing


def test_an_empty_window_has_no_percentile_no_share_and_no_lists(database: Database) -> None:
    found = figures(database, call(minutes_ago=60 * 24 + 1))
    assert (found.calls, found.outcomes) == (0, Outcomes())
    assert found.total_ms == Percentiles(0, None, None, None, None)
    assert found.high_confidence.value is None
    assert found.needed_semantic_search.to_dict() == {"share": None, "count": 0, "n": 0, "interval95": None}
    assert (found.sessions.count, found.sessions.worst, found.gaps, dict(found.domains)) == (0, (), (), {})
    assert (len(found.timeline), {part.calls for part in found.timeline}) == (24, {0})


def test_the_window_begins_with_its_first_moment(database: Database) -> None:
    found = figures(database, call(minutes_ago=60), call(minutes_ago=60.001), window=timedelta(hours=1))
    assert (found.calls, found.since, found.until) == (1, NOW - timedelta(hours=1), NOW)


def test_every_call_has_one_outcome(database: Database) -> None:
    found = figures(
        database,
        call(),
        call(reason="PARTIALLY_FILTERED"),
        call(l1_error="VectorStoreUnavailableError: no answer", l1_ms=None),
        nothing("a", reason="DOC_ALREADY_RETRIEVED"),
        nothing("b", reason="LOOKUP_LIMIT", l0_ms=None, l1_ms=None),
        nothing("c"),
        nothing("d", l1_error="VectorStoreUnavailableError: no answer"),
        nothing("e", l0_error="DatabaseUnavailableError: away"),
        nothing("f", error="EmbeddingError: no vector"),
        nothing("g", error="KnowledgeBaseError: the keyword index can't be made"),
    )
    assert found.outcomes == Outcomes(found=3, held_back=2, nothing_found=1, undecided=2, failed=2)
    assert found.calls == 10
    assert (found.without_semantic_search, found.without_keyword_index) == (2, 2)
    assert found.dedup_reasons == {"DOC_ALREADY_RETRIEVED": 1, "LOOKUP_LIMIT": 1, "PARTIALLY_FILTERED": 1}
    # Only "c": the others say nothing about what the knowledge base holds.
    assert [gap.query for gap in found.gaps] == ["c"]


def test_percentiles_are_measured_values_by_nearest_rank(database: Database) -> None:
    hundred = [call(total_ms=float(n), l0_ms=n / 100, l1_ms=None) for n in range(1, 101)]
    searched = [call(total_ms=1.0, l0_ms=0.5, l1_ms=float(n)) for n in (10, 20, 30)]
    failed_search = call(total_ms=1.0, l0_ms=0.5, l1_ms=9999.0, l1_error="VectorStoreTimeoutError: late")
    by_meaning_only = call(tool="search_doc", total_ms=1.0, l0_ms=0.0001, l1_ms=40.0)
    found = figures(database, *hundred, *searched, failed_search, by_meaning_only)
    # 105 totals: 1 six times, then 2 to 100; position ceil(.5 * 105) = 53 holds 48, 100 holds 95, 104 holds 99.
    assert found.total_ms == Percentiles(105, 48.0, 95.0, 99.0, 100.0)
    # 104 exact matches: 0.01 to 0.49, then 0.50 five times, then up to 1: position 52 holds 0.50, 99 holds 0.95.
    assert found.l0_ms == Percentiles(104, 0.5, 0.95, 0.99, 1.0)
    assert found.l1_ms == Percentiles(4, 20.0, 40.0, 40.0, 40.0)


def test_shares_are_those_of_the_calls_that_asked_the_exact_match(database: Database) -> None:
    found = figures(
        database,
        call(confidence="high", level="PRECISE", l1_ms=None),
        call(confidence="high", level="PRECISE", l1_ms=None),
        call(),
        call(l1_error="VectorStoreUnavailableError: no answer", l1_ms=None),
        nothing("a"),
        # Held back: the exact match was asked, but an agent that repeats itself is no missing keyword.
        nothing("b", reason="DOC_ALREADY_RETRIEVED", l1_ms=None),
        # Neither of these asked it.
        nothing("c", reason="REPEATED_QUESTION", l0_ms=None, l1_ms=None),
        call(tool="search_doc"),
        call(l0_ms=None, l1_ms=None, confidence="high"),
        nothing("d", l0_ms=None, l1_ms=None, error="EmbeddingError: no vector"),
    )
    assert found.high_confidence == Share(2, 5)
    assert found.needed_semantic_search == Share(3, 6)


def test_levels_are_counted_with_those_that_have_none(database: Database) -> None:
    found = figures(
        database,
        call(level="PRECISE"),
        call(level="REFERENCE"),
        call(level="REFERENCE"),
        # Rows from before the column have it in the details only.
        call(level=None, relevance_level="HIGHLY_RELEVANT"),
        nothing("x"),
    )
    assert list(found.levels.items()) == [("PRECISE", 1), ("HIGHLY_RELEVANT", 1), ("REFERENCE", 2), ("none", 1)]


def test_a_domain_counts_the_calls_that_delivered_something_of_it(database: Database) -> None:
    documents = DocumentRepository(database)
    for path, category in {"a.md": "api", "x/b.md": "api", "x/c.md": "infrastructure"}.items():
        documents.ensure_pending(
            file_path=path, title="t", category=category, content_hash="0" * 64, embedding_model="m", metadata={}
        )
        documents.set_status(path, DocumentStatus.READY, chunk_count=1)
    found = figures(
        database,
        call(sources=["knowledge_base/a.md", "knowledge_base/x/b.md"]),
        call(sources=["knowledge_base/a.md", "knowledge_base/x/c.md"]),
        # The base path had another name then, and a document that is gone has the domain of its folder.
        call(sources=["docs/a.md"]),
        call(sources=["knowledge_base/gone/d.md"]),
        call(sources=["knowledge_base/e.md"]),
        # Nothing delivered; what the session has got so far is no sign of it.
        nothing("x", reason="DOC_ALREADY_RETRIEVED", retrieved_domains=["api"], sources=["knowledge_base/a.md"]),
    )
    assert list(found.domains.items()) == [("api", 3), ("general", 1), ("gone", 1), ("infrastructure", 1)]


def test_sessions_are_counted_and_the_worst_named(database: Database) -> None:
    sizes = {f"s{n:02}": n for n in range(1, 13)} | {"big": 30}
    calls = [call(session=name, minutes_ago=index + 1) for name, n in sizes.items() for index in range(n)]
    calls += [nothing("x", session="big", reason="LOOKUP_LIMIT", minutes_ago=100), call(), call()]
    found = figures(database, *calls).sessions
    assert (found.count, found.calls_without_session) == (13, 2)
    # 1 to 12 and 31: position 7 holds 7, 13 holds 31.
    assert found.calls == Percentiles(13, 7.0, 31.0, 31.0, 31.0)
    assert found.distribution == {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6-10": 5, "11-20": 2, "21+": 1}
    assert [worst.session_id for worst in found.worst] == ["big", *(f"s{n:02}" for n in range(12, 3, -1))]
    minute = timedelta(minutes=1)
    assert found.worst[0] == SessionCalls("big", 31, 30, 1, NOW - 100 * minute, NOW - minute)


def test_sessions_that_differ_in_case_only_are_two(database: Database) -> None:
    found = figures(database, call(session="S"), call(session="s"), call(session="s")).sessions
    assert [(worst.session_id, worst.calls) for worst in found.worst] == [("s", 2), ("S", 1)]


def test_what_was_asked_in_vain_is_grouped_by_normal_form(database: Database) -> None:
    found = figures(
        database,
        nothing("Kafka 消费积压", minutes_ago=30),
        nothing("kafka消费积压？", minutes_ago=10),
        nothing("ＫＡＦＫＡ  消费积压", minutes_ago=20),
        nothing("Nacos", minutes_ago=5),
        nothing("  ", minutes_ago=1),
        call("Kafka 消费积压"),
    )
    minute = timedelta(minutes=1)
    assert found.gaps == (Gap("kafka消费积压？", 3, NOW - 10 * minute), Gap("Nacos", 1, NOW - 5 * minute))
    assert (found.gap_queries, found.gaps_are_complete) == (2, True)


def test_a_flood_of_different_questions_does_not_push_out_what_is_asked_again_and_again() -> None:
    gaps = GapList(most_groups=100)
    start = datetime(2025, 1, 1, tzinfo=UTC)
    for n in range(10_000):
        gaps.add("asked often", start)
        gaps.add(f"flood {n}", start + timedelta(seconds=n))
    first, second = gaps.gaps()[:2]
    assert (first.query, first.calls) == ("asked often", 10_000)
    assert (second.query, second.calls) == ("flood 9999", 1)
    assert (gaps.queries, gaps.is_complete) == (10_001, False)


def test_the_timeline_has_the_calls_where_they_began(database: Database) -> None:
    found = figures(
        database,
        call(minutes_ago=24 * 60, total_ms=7.0),
        call(minutes_ago=90, total_ms=1.0, l1_error="VectorStoreUnavailableError: no answer"),
        nothing("x", minutes_ago=61, total_ms=3.0, error="EmbeddingError: no vector"),
        # Another machine's clock is ahead.
        call(minutes_ago=-5, total_ms=2.0),
    ).timeline
    assert [
        (index, p.calls, p.failed, p.without_semantic_search, p.total_p95_ms)
        for index, p in enumerate(found)
        if p.calls
    ] == [
        (0, 1, 0, 0, 7.0),
        (22, 2, 1, 1, 3.0),
        (23, 1, 0, 0, 2.0),
    ]
    assert found[22].start == NOW - timedelta(hours=2)


@pytest.mark.parametrize(
    "details",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"l0_ms": "fast", "l1_ms": [], "sources": "api/a.md", "error": 3, "relevance_level": {}}',
        '{"l0_ms": NaN, "l1_ms": -1, "sources": [1, null, {"a": 1}], "l1_error": false}',
        '{"l0_ms": 1' + "0" * 400 + ', "l1_ms": Infinity, "sources": null}',
    ],
    ids=["empty", "cut", "list", "null", "deep", "kinds", "odd numbers", "huge numbers"],
)
def test_a_row_with_damaged_details_counts_by_its_columns(database: Database, details: str) -> None:
    figures(database, call(level="PRECISE", total_ms=3.0, sources=["knowledge_base/api/a.md"]))
    database.write(lambda connection: connection.execute(update(tool_invocation).values(retrieval_details=details)))
    found = StatisticsReader(database).read(DAY, now=NOW)
    assert (found.calls, found.outcomes.found, found.levels["PRECISE"]) == (1, 1, 1)
    assert (found.total_ms.p50, found.l0_ms.count, found.l1_ms.count, dict(found.domains)) == (3.0, 0, 0, {})
    assert found.unreadable == (0 if details.startswith('{"') else 1)


def test_a_row_that_does_not_tell_why_nothing_was_found_is_no_gap(database: Database) -> None:
    figures(database, nothing("q"))
    database.write(lambda connection: connection.execute(text("UPDATE tool_invocation SET retrieval_details = '{'")))
    found = StatisticsReader(database).read(DAY, now=NOW)
    assert (found.outcomes.undecided, found.gaps) == (1, ())


def test_the_json_has_every_figure_in_camel_case(database: Database) -> None:
    found = figures(database, call(session="s", sources=["kb/api/a.md"]), nothing("x", session="s")).to_dict()
    assert (found["calls"], found["failed"], found["outcomes"]["nothingFound"]) == (2, 0, 1)
    assert found["latencyMs"]["total"] == {"count": 2, "p50": 10.0, "p95": 10.0, "p99": 10.0, "max": 10.0}
    assert found["highConfidence"]["n"] == 2
    assert found["domains"] == [{"domain": "api", "calls": 1}]
    assert found["nothingFound"]["mostAsked"] == [
        {"query": "x", "isHashed": False, "calls": 1, "lastAt": "2025-03-04T11:59:00+00:00"}
    ]
    assert found["sessions"]["worst"][0]["session"] == "s"
    assert found["since"] == "2025-03-03T12:00:00+00:00"
    assert len(found["timeline"]) == 24


@pytest.mark.parametrize("window", [timedelta(0), timedelta(days=-1), timedelta(days=999_999)])
def test_an_impossible_window_is_refused(database: Database, window: timedelta) -> None:
    with pytest.raises(ValueError, match=r"must be above 0|before the year 1"):
        StatisticsReader(database).read(window, now=NOW)
