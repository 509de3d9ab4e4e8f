"""Figures of what was recorded, the alerts on them, and the page that shows them."""

from knowledge_lookup.pipeline.statistics.alerts import Alert, check_alerts
from knowledge_lookup.pipeline.statistics.call_statistics import (
    CallStatistics,
    Gap,
    Outcomes,
    SessionCalls,
    Sessions,
    TimeSlice,
)
from knowledge_lookup.pipeline.statistics.html_page import render_page
from knowledge_lookup.pipeline.statistics.percentiles import Percentiles
from knowledge_lookup.pipeline.statistics.statistics_reader import StatisticsReader

__all__ = [
    "Alert",
    "CallStatistics",
    "Gap",
    "Outcomes",
    "Percentiles",
    "SessionCalls",
    "Sessions",
    "StatisticsReader",
    "TimeSlice",
    "check_alerts",
    "render_page",
]
