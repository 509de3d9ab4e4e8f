"""The rows of tool calls, on both databases."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Row, text

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage import Database, InvocationRepository, UnstorableValueError

EXAMPLE = ToolInvocation(
    request_id="0a1b2c3d",
    session_id="s1",
    tool_name="lookup_knowledge",
    query="支付网关返回 ERR_TIMEOUT 🙂",
    found=True,
    confidence="high",
    latency_ms=3.125,
    relevance_level="PRECISE",
    dedup_reason=None,
    retrieval_details={"l0_match_count": 1, "l1_top_l2": None, "sources": ["knowledge_base/支付.md"]},
    created_at=datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=8))),
)


def example(**changes: Any) -> ToolInvocation:
    fields = {field.name: getattr(EXAMPLE, field.name) for field in dataclasses.fields(EXAMPLE) if field.name != "id"}
    return ToolInvocation(**(fields | changes))


def stored(database: Database) -> list[Row[Any]]:
    query = text("SELECT * FROM tool_invocation ORDER BY id")
    return list(database.read(lambda connection: connection.execute(query).all()))


def test_an_invocation_is_stored_field_by_field(database: Database) -> None:
    InvocationRepository(database).insert_many([EXAMPLE])
    [row] = stored(database)
    assert (row.id, row.request_id, row.session_id) == (EXAMPLE.id, "0a1b2c3d", "s1")
    assert (row.tool_name, row.query) == ("lookup_knowledge", "支付网关返回 ERR_TIMEOUT 🙂")
    assert (bool(row.found), row.confidence, row.latency_ms) == (True, "high", 3.125)
    assert (row.relevance_level, row.dedup_reason) == ("PRECISE", None)
    assert json.loads(row.retrieval_details) == EXAMPLE.retrieval_details
    assert "支付" in row.retrieval_details
    # In UTC, to the microsecond.
    assert str(row.created_at) == "2025-01-01 19:04:05.678901"


def test_what_is_absent_is_null(database: Database) -> None:
    InvocationRepository(database).insert_many(
        [example(session_id=None, confidence=None, relevance_level=None, dedup_reason=None, found=False)]
    )
    [row] = stored(database)
    assert (row.session_id, row.confidence, row.relevance_level, row.dedup_reason) == (None, None, None, None)
    assert not row.found


def test_writing_an_invocation_again_leaves_the_first_row_and_writes_the_others(database: Database) -> None:
    repository = InvocationRepository(database)
    first = example(query="first")
    repository.insert_many([first])
    other = example(query="other")
    repository.insert_many([dataclasses.replace(first, query="again"), other, other])
    assert {row.query for row in stored(database)} == {"first", "other"}
    assert len(stored(database)) == 2


def test_no_invocations_are_no_work(database: Database) -> None:
    InvocationRepository(database).insert_many([])
    assert stored(database) == []


def test_text_that_cannot_be_stored_is_mended_and_cut(database: Database) -> None:
    InvocationRepository(database).insert_many(
        [
            example(
                query="a\ud800b\0c" + "长" * 3000,
                tool_name="t" * 1000,
                request_id="r" * 1000,
                relevance_level="L" * 1000,
                dedup_reason="D" * 1000,
                confidence="c" * 1000,
                retrieval_details=MappingProxyType({"sources": ["x\ud800"], "at": datetime(2025, 1, 2, tzinfo=UTC)}),
            )
        ]
    )
    [row] = stored(database)
    assert row.query == "a\ufffdb\ufffdc" + "长" * 1995
    assert (row.tool_name, row.request_id) == ("t" * 128, "r" * 64)
    assert (row.relevance_level, row.dedup_reason, row.confidence) == ("L" * 20, "D" * 32, "c" * 16)
    assert json.loads(row.retrieval_details) == {"sources": ["x\ufffd"], "at": "2025-01-02 00:00:00+00:00"}


def test_retrieval_details_beyond_64_kib_are_stored_whole(database: Database) -> None:
    sources = ["长" * 1000] * 40
    InvocationRepository(database).insert_many([example(retrieval_details={"sources": sources})])
    [row] = stored(database)
    assert json.loads(row.retrieval_details) == {"sources": sources}


def test_sessions_whose_ids_must_be_changed_stay_apart(database: Database) -> None:
    sessions = ["s" * 255, "s" * 256, "s" * 257, "s1", "s1 ", "s\0", "s\ud800", "s\ufffd"]
    InvocationRepository(database).insert_many([example(session_id=session) for session in sessions])
    ids = {row.session_id for row in stored(database)}
    assert len(ids) == len(sessions)
    assert {"s" * 255, "s1", "s\ufffd"} < ids
    assert all(len(id_) <= 255 for id_ in ids)


def test_details_without_a_json_form_are_refused_with_the_invocation_named(database: Database) -> None:
    details: dict[Any, Any] = {("a", "tuple"): 1}
    broken = example(retrieval_details=details)
    with pytest.raises(UnstorableValueError, match=f"^invocation {broken.id}: retrieval_details can't be written"):
        InvocationRepository(database).insert_many([EXAMPLE, broken])
    assert stored(database) == []


def test_a_time_without_a_zone_is_refused_by_the_invocation_itself() -> None:
    with pytest.raises(ValueError, match=r"created_at is 2025-01-02T00:00:00 without a time zone"):
        example(created_at=datetime(2025, 1, 2))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters(codec=None), max_size=50), session=st.text(st.characters(codec=None), max_size=300))
def test_any_text_is_stored_on_both_databases(database: Database, query: str, session: str) -> None:
    invocation = example(query=query, session_id=session)
    InvocationRepository(database).insert_many([invocation])
    row = next(row for row in stored(database) if row.id == invocation.id)
    assert row.query == "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in query)
