"""The rules, each firing and not firing."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from knowledge_lookup.pipeline.evaluation import Share
from knowledge_lookup.pipeline.observation_settings import AlertSettings
from knowledge_lookup.pipeline.statistics import CallStatistics, Percentiles, check_alerts
from knowledge_lookup.pipeline.storage import DatabaseUnavailableError

QUIET = CallStatistics(datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC), calls=100)


def loads() -> None:
    """Load the keyword index without a problem."""


def messages(statistics: CallStatistics, **rules: object) -> list[str]:
    return [alert.message for alert in check_alerts(statistics, AlertSettings(**rules), load_keyword_index=loads)]


def test_no_calls_are_no_alert() -> None:
    assert messages(QUIET) == []


def test_total_latency_fires_above_its_limit() -> None:
    slow = replace(QUIET, total_ms=Percentiles(100, 10.0, 2000.5, 3000.0, 9000.0))
    assert messages(slow) == ["total latency: P95 of 100 calls is 2,000 ms, above the limit of 2,000 ms"]
    assert messages(replace(QUIET, total_ms=Percentiles(100, 10.0, 2000.0, 3000.0, 9000.0))) == []
    assert messages(slow, total_latency_ms=None) == []


@pytest.mark.parametrize(("percentile", "fires"), [("p50", False), ("p95", False), ("p99", True), ("max", True)])
def test_total_latency_is_judged_at_the_percentile_of_the_settings(percentile: str, fires: bool) -> None:
    slow = replace(QUIET, total_ms=Percentiles(100, 10.0, 20.0, 3000.0, 9000.0))
    assert bool(messages(slow, total_latency_percentile=percentile)) is fires


def test_keyword_index_failures_fire_from_their_number_on() -> None:
    failing = replace(QUIET, without_keyword_index=2)
    assert messages(failing) == ["keyword index: 2 of 100 calls could not load it from the database"]
    assert messages(failing, keyword_index_failures=2) != []
    assert messages(failing, keyword_index_failures=3) == []
    assert messages(failing, keyword_index_failures=None) == []


def test_a_keyword_index_that_cannot_be_loaded_now_fires_in_one_line() -> None:
    def fails() -> None:
        raise DatabaseUnavailableError("database x:\n\x1b[31mgone")

    [alert] = check_alerts(QUIET, AlertSettings(), load_keyword_index=fails)
    assert alert.message == (
        r"keyword index: it can't be loaded now: DatabaseUnavailableError: database x: \x1b[31mgone"
    )
    assert alert.to_dict() == {
        "rule": "keyword-index-load",
        "message": alert.message,
        "value": None,
        "limit": None,
    }
    assert check_alerts(QUIET, AlertSettings(keyword_index_failures=None), load_keyword_index=fails) == []


def test_a_low_share_of_high_confidence_fires_below_its_limit() -> None:
    low = replace(QUIET, high_confidence=Share(19, 100))
    assert messages(low) == [
        "high confidence: 19.0% of 100 look-ups had a decisive exact match, below the limit of 20.0%"
    ]
    assert messages(replace(QUIET, high_confidence=Share(20, 100))) == []
    assert messages(low, high_confidence_share=None) == []
    assert messages(low, high_confidence_share=0.19) == []


def test_a_share_of_few_look_ups_is_not_judged() -> None:
    assert messages(replace(QUIET, high_confidence=Share(0, 49))) == []
    assert len(messages(replace(QUIET, high_confidence=Share(0, 50)))) == 1
    assert len(messages(replace(QUIET, high_confidence=Share(0, 5)), high_confidence_calls=5)) == 1
