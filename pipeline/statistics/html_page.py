"""Renders the figures as one self-contained HTML page: no script, nothing fetched, every text escaped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from knowledge_lookup.pipeline.statistics.alerts import Alert
from knowledge_lookup.pipeline.statistics.call_statistics import CallStatistics
from knowledge_lookup.pipeline.statistics.page_texts import PAGE_TEXTS
from knowledge_lookup.pipeline.statistics.percentiles import Percentiles
from knowledge_lookup.pipeline.visible_text import visible
from knowledge_lookup.postprocessors.completeness_hints import Locale

_TEMPLATE = "page.html.j2"
_LEAST_MS = 0.01
"""Where the logarithmic scale of latencies begins."""
_NOTHING = "–"


@dataclass(frozen=True, slots=True)
class _Bar:
    """One row of a bar chart, which is a table too.

    :param label: What is counted.
    :param count: How many.
    :param percent: Length of the bar, 0 to 100.
    :param kind: The bar's colour, as a class of the style sheet.
    """

    label: str
    count: int
    percent: float
    kind: str = "plain"


def render_page(statistics: CallStatistics, alerts: Sequence[Alert], *, locale: Locale) -> str:
    """Render the page.

    :param statistics: The figures.
    :param alerts: The alerts that fire.
    :param locale: ``zh`` or ``en``.
    :returns: The HTML; times are in this machine's time zone, which is named.
    """
    texts = PAGE_TEXTS[locale]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "visible": visible,
        "count": _count,
        "ms": _milliseconds,
        "percent": _percent,
        "moment": lambda at: f"{at.astimezone():%Y-%m-%d %H:%M}",
    }
    # Not by a loader, which would want a folder: the package may lie in a zip file.
    template = environment.from_string(files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    outcomes = statistics.outcomes
    return template.render(
        t=texts,
        s=statistics,
        zone=_zone(statistics.until),
        alerts=[_wording(alert, texts) for alert in alerts],
        latencies=[
            (texts[step], figures, _lengths(figures, statistics))
            for step, figures in (("l0", statistics.l0_ms), ("l1", statistics.l1_ms), ("total", statistics.total_ms))
        ],
        outcomes=_bars(
            {
                texts[name]: getattr(outcomes, name)
                for name in ("found", "held_back", "nothing_found", "undecided", "failed")
            },
            kinds=("good", "plain", "poor", "faint", "bad"),
            of=statistics.calls,
        ),
        levels=_bars(
            {texts["level_none"] if level == "none" else level: n for level, n in statistics.levels.items()},
            kinds=("good", "plain", "poor", "faint"),
            of=statistics.calls,
        ),
        reasons=_bars(statistics.dedup_reasons),
        domains=_bars(statistics.domains),
        distribution=_bars(statistics.sessions.distribution),
        most_calls=max((part.calls for part in statistics.timeline), default=0),
        most_ms=max((part.total_p95_ms or 0.0 for part in statistics.timeline), default=0.0),
    )


def _bars(counts: Mapping[str, int], *, kinds: Sequence[str] = (), of: int | None = None) -> list[_Bar]:
    """Make the rows of a bar chart; without ``of`` the longest bar is as long as the chart."""
    whole = max(counts.values(), default=0) if of is None else of
    return [
        _Bar(label, count, 100 * count / whole if whole else 0.0, kinds[index] if index < len(kinds) else "plain")
        for index, (label, count) in enumerate(counts.items())
    ]


def _lengths(figures: Percentiles, statistics: CallStatistics) -> list[tuple[float | None, float]]:
    """Pair each figure with the length of its bar, 0 to 100."""
    longest = max(figures.largest or 0.0 for figures in (statistics.l0_ms, statistics.l1_ms, statistics.total_ms))
    scale = math.log(max(longest, 10 * _LEAST_MS) / _LEAST_MS)
    values = (figures.p50, figures.p95, figures.p99, figures.largest)
    return [(v, 0.0 if v is None else 100 * math.log(max(v, _LEAST_MS) / _LEAST_MS) / scale) for v in values]


def _wording(alert: Alert, texts: Mapping[str, str]) -> str:
    shown = {"high-confidence": _percent, "total-latency": _milliseconds}.get(alert.rule, _count)
    detail = alert.detail
    if alert.rule == "total-latency":
        detail = texts["alert_max"] if detail == "max" else texts["percentile"].format(name=detail.upper())
    return texts[f"alert_{alert.rule}"].format(
        value=shown(alert.value), limit=shown(alert.limit), calls=_count(alert.calls), detail=detail
    )


def _count(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{share:.1%}"


def _zone(at: datetime) -> str:
    offset = f"{at.astimezone():%z}"
    return f"UTC{offset[:3]}:{offset[3:5]}"
