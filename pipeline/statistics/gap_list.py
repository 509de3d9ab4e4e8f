"""Gathers what was asked in vain, in bounded memory."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from knowledge_lookup.pipeline.statistics.call_statistics import Gap
from knowledge_lookup.retrievers.normal_form import normal_form

MOST_GAPS = 100
_MOST_GROUPS = 50_000
_SHOWN_CHARACTERS = 200


@dataclass(slots=True)
class _Group:
    query: str
    calls: int
    last_at: datetime


class GapList:
    """Queries grouped by their normal form.

    At most 50,000 groups are kept: when there are more, the half that was asked least and longest ago is given up, so
    that a flood of different queries costs neither memory nor the list of what is asked again and again.

    :param most_groups: Most groups that are kept, at least 2.
    """

    def __init__(self, *, most_groups: int = _MOST_GROUPS) -> None:
        self._most_groups = most_groups
        self._groups: dict[bytes, _Group] = {}
        self._given_up = 0

    @property
    def queries(self) -> int:
        """How many different queries there were; after some were given up, at most so many."""
        return len(self._groups) + self._given_up

    @property
    def is_complete(self) -> bool:
        """Whether nothing was given up."""
        return self._given_up == 0

    def add(self, query: str, at: datetime) -> None:
        """Count a query that found nothing; an empty one isn't counted.

        :param query: The query as it is stored.
        :param at: When it was asked.
        """
        normal = normal_form(query)
        if not normal:
            return
        key = blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = _Group(query[:_SHOWN_CHARACTERS], 1, at)
            if len(self._groups) > self._most_groups:
                self._give_up_half()
            return
        group.calls += 1
        if at >= group.last_at:
            group.query, group.last_at = query[:_SHOWN_CHARACTERS], at

    def gaps(self) -> tuple[Gap, ...]:
        """List the queries asked most often, then latest.

        :returns: At most a hundred.
        """
        groups = sorted(self._groups.values(), key=_rank, reverse=True)[:MOST_GAPS]
        return tuple(Gap(group.query, group.calls, group.last_at) for group in groups)

    def _give_up_half(self) -> None:
        kept = sorted(self._groups.items(), key=lambda item: _rank(item[1]), reverse=True)[: self._most_groups // 2]
        self._given_up += len(self._groups) - len(kept)
        self._groups = dict(kept)


def _rank(group: _Group) -> tuple[int, datetime, str]:
    return group.calls, group.last_at, group.query
