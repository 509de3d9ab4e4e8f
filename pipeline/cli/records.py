"""The commands about what was recorded: figures, alerts and retention."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from knowledge_lookup.pipeline.cli import rendering, statistics_rendering
from knowledge_lookup.pipeline.cli.options import JsonOption, open_pipeline
from knowledge_lookup.pipeline.errors import KnowledgeBaseError

ALERT_EXIT_CODE = 3
"""Of ``stats --check`` when an alert fires; 1 is an error and 2 wrong usage."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST_DAYS = 36_500

records = typer.Typer(
    name="records",
    help="Keep the records of look-ups as long as they are wanted.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def stats(
    context: typer.Context,
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back: a number with s, m, h, d or w, as 30m or 7d.")
    ] = "24h",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the figures as one self-contained page.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Print only the alerts that fire, one a line, and exit with code 3 if there is one; for cron.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show latencies, levels, sessions, domains and what found nothing, of the look-ups since some time."""
    window = duration(since, option="--since")
    with open_pipeline(context) as pipeline:
        figures = pipeline.stats(window)
        alerts = pipeline.alerts(figures)
        locale = pipeline.settings.locale
    if html is not None:
        from knowledge_lookup.pipeline.statistics import render_page

        _write(html, render_page(figures, alerts, locale=locale))
    if as_json:
        rendering.json_object({**figures.to_dict(), "alerts": [alert.to_dict() for alert in alerts]})
    elif check:
        rendering.lines([f"alert: {alert.message}" for alert in alerts])
    elif html is None:
        statistics_rendering.statistics(figures, alerts)
    else:
        rendering.raw(f"wrote {html}")
    if check and alerts:
        raise typer.Exit(ALERT_EXIT_CODE)


@records.command()
def prune(
    context: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Age, as 30d or 12h. Default: records.keep-days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old records, a few at a time beside running look-ups; nothing else ever removes any."""
    age = None if older_than is None else duration(older_than, option="--older-than")
    with open_pipeline(context) as pipeline:
        report = pipeline.prune_records(age, dry_run=dry_run)
        is_file = pipeline.database.is_sqlite
    if as_json:
        rendering.json_object(report.to_dict())
        return
    rendering.raw(
        f"{'would remove' if dry_run else 'removed'} {report.removed:,} records from before "
        f"{statistics_rendering.moment(report.before)}; {report.kept:,} are kept"
    )
    if is_file and report.removed and not dry_run:
        rendering.remark("the database file keeps its size; new records use the room")


def duration(text: str, *, option: str) -> timedelta:
    """Read a length of time.

    :param text: A whole number and ``s``, ``m``, ``h``, ``d`` or ``w``, above 0 and at most 36,500 days.
    :param option: The option that gave it, for the message.
    :returns: The length.
    :raises typer.BadParameter: If it is something else.
    """
    match = re.fullmatch(r"([0-9]{1,7})([smhdw])", text.strip())
    length = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match is not None else timedelta(0)
    if not timedelta(0) < length <= timedelta(days=_MOST_DAYS):
        raise typer.BadParameter(
            f"{text!a} is not allowed, allowed: a number with s, m, h, d or w, as 30m, 24h or 7d", param_hint=option
        )
    return length


def _write(path: Path, text: str) -> None:
    target = path.resolve()
    draft = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe is written to, and stays what it is
            path.write_text(text, encoding="utf-8")
            return
        # Who reads the page at this moment, through a web server perhaps, gets the old one or the new one.
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise KnowledgeBaseError(
            f"'{path}' can't be written ({error.strerror}): check the folder, its permissions and free space"
        ) from error
