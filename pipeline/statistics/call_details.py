"""Reads ``retrieval_details`` of one record, trusting nothing in it.

Rows may be of an older version, of another program or damaged; a value that isn't what it should be counts as absent.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Self

_LONGEST_SOURCE = 2_000
_MOST_SOURCES = 20


@dataclass(frozen=True, slots=True)
class CallDetails:
    """What the statistics need of ``retrieval_details``.

    :param l0_ms: Milliseconds of the exact match, 0 or more; None when it wasn't asked.
    :param l1_ms: Milliseconds of semantic search, 0 or more; None when it wasn't asked.
    :param level: The relevance level; None for none.
    :param sources: Sources of what was delivered, such as ``knowledge_base/api/errors.md``.
    :param error: Why the call failed altogether; None if it didn't.
    :param l1_error: Why semantic search was unavailable; None if it wasn't.
    :param l0_error: Why the keyword index could not be loaded; None if it could.
    :param by_section: Whether a section was asked for, of a document that the query finds.
    :param is_readable: False when it isn't a JSON object; everything else is absent then.
    """

    l0_ms: float | None = None
    l1_ms: float | None = None
    level: str | None = None
    sources: tuple[str, ...] = ()
    error: str | None = None
    l1_error: str | None = None
    l0_error: str | None = None
    by_section: bool = False
    is_readable: bool = True

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read the column.

        :param text: What it holds.
        :returns: What is in it; never raises.
        """
        try:
            values = json.loads(text or "")
        except (ValueError, RecursionError):
            return cls(is_readable=False)
        if not isinstance(values, dict):
            return cls(is_readable=False)
        sources = values.get("sources")
        return cls(
            l0_ms=milliseconds(values.get("l0_ms")),
            l1_ms=milliseconds(values.get("l1_ms")),
            level=_text(values.get("relevance_level")),
            sources=tuple(s[:_LONGEST_SOURCE] for s in sources[:_MOST_SOURCES] if isinstance(s, str))
            if isinstance(sources, list)
            else (),
            error=_text(values.get("error")),
            l1_error=_text(values.get("l1_error")),
            l0_error=_text(values.get("l0_error")),
            by_section=values.get("by_section") is True,
        )


def milliseconds(value: Any) -> float | None:
    """Read a duration.

    :param value: What stands where a duration should.
    :returns: Milliseconds, finite and 0 or more; None for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
