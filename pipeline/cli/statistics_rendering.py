"""What ``stats`` prints for people."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING

from knowledge_lookup.pipeline.cli.rendering import raw
from knowledge_lookup.pipeline.visible_text import visible

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.statistics import Alert, CallStatistics, Percentiles

_WIDTH_WITHOUT_TERMINAL = 120
_MOST_GAPS = 20
_NOTHING = "-"
_GUTTER = 3
_LEAST_TEXT_WIDTH = 16


def statistics(figures: "CallStatistics", alerts: Sequence["Alert"]) -> None:
    """Print the figures of a window.

    :param figures: The figures.
    :param alerts: The alerts that fire.
    """
    for alert in alerts:
        raw(f"alert: {alert.message}")
    outcomes, sessions = figures.outcomes, figures.sessions
    raw(f"{figures.calls:,} calls from {moment(figures.since)} to {moment(figures.until)}")
    if not figures.calls:
        return
    raw(
        f"  found {outcomes.found:,}, held back {outcomes.held_back:,}, nothing found {outcomes.nothing_found:,}, "
        f"undecided {outcomes.undecided:,}, failed {outcomes.failed:,}"
    )
    raw(
        f"  without semantic search because it was down {figures.without_semantic_search:,}, "
        f"keyword index not loaded {figures.without_keyword_index:,}"
    )
    if figures.unreadable:
        raw(f"  {figures.unreadable:,} records have unreadable details and count by their other columns")
    raw(f"needed semantic search  {figures.needed_semantic_search}")
    raw(f"high confidence         {figures.high_confidence}")
    steps = {"L0 exact match": figures.l0_ms, "L1 semantic search": figures.l1_ms, "total": figures.total_ms}
    _table(
        ["latency in ms", "calls", "P50", "P95", "P99", "max"],
        [[name, f"{values.count:,}", *_times(values)] for name, values in steps.items()],
    )
    _counts("relevance level", "calls", figures.levels)
    _counts("held back because of", "calls", figures.dedup_reasons)
    _counts("domain", "calls that delivered of it", figures.domains)
    if sessions.count:
        _counts("calls of a session", "sessions", sessions.distribution)
    raw(f"\n{sessions.count:,} sessions; {sessions.calls_without_session:,} calls outside any")
    _table(
        ["sessions with most calls", "calls", "found", "held back", "last"],
        [
            [worst.session_id, f"{worst.calls:,}", f"{worst.found:,}", f"{worst.held_back:,}", moment(worst.last_at)]
            for worst in sessions.worst
        ],
    )
    _gaps(figures)


def moment(at: datetime) -> str:
    """Write a moment in this machine's time zone.

    :param at: The moment.
    :returns: Such as ``2025-01-02 11:04 +0800``.
    """
    return f"{at.astimezone():%Y-%m-%d %H:%M %z}"


def _gaps(figures: "CallStatistics") -> None:
    shown = figures.gaps[:_MOST_GAPS]
    _table(
        ["asked in vain", "calls", "last"],
        [[gap.query, f"{gap.calls:,}", moment(gap.last_at)] for gap in shown],
    )
    more = figures.gap_queries - len(shown)
    if more > 0:
        raw(f"and {more:,} more; --json lists the {len(figures.gaps)} asked most")
    if any(gap.is_hashed for gap in shown):
        raw("hmac-sha256: marks the hash of a question (records.hash-queries); its text was not recorded")


def _counts(name: str, counted: str, counts: Mapping[str, int]) -> None:
    _table([name, counted], [[label, f"{count:,}"] for label, count in counts.items()])


def _times(values: "Percentiles") -> list[str]:
    figures = (values.p50, values.p95, values.p99, values.largest)
    return [_NOTHING if value is None else f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in figures]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column as wide as there is room, the others to the right; nothing without rows."""
    if not rows:
        return
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    shown = [[visible(cell) for cell in row] for row in rows]
    # Rich would narrow all columns alike, and cut the numbers too.
    others = sum(max(map(cell_len, column)) + _GUTTER for column in list(zip(head, *shown, strict=True))[1:])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(head[0], no_wrap=True, overflow="ellipsis", max_width=max(width - others, _LEAST_TEXT_WIDTH))
    for name in head[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in shown:
        # As Text, in which brackets are no markup.
        table.add_row(*map(Text, row))
    # Not straight to the terminal, whose encoding may lack what the table is made of.
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    raw("\n" + "\n".join(line.rstrip() for line in captured.get().splitlines()))
