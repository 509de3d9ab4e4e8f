"""What ``evaluate`` prints: the figures of one configuration, of two side by side, or of scripted agents."""

from typing import TYPE_CHECKING

from knowledge_lookup.pipeline.cli.rendering import raw

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.evaluation import (
        Comparison,
        Disagreement,
        EvaluationReport,
        Outcome,
        PairedShare,
        SessionReport,
    )

_NOTHING = "-"
_SIGNIFICANT_BELOW = 0.05
_MOST_DISAGREEMENTS = 20


def evaluation(report: "EvaluationReport") -> None:
    """Print the figures of an evaluation, those of each kind of query and the worst errors.

    :param report: The outcomes.
    """
    kinds = report.by_kind
    for name, part in {"all": report, **(kinds if len(kinds) > 1 else {})}.items():
        raw(f"{name}: {len(part.outcomes)} queries")
        for figure, value in _figures(part).items():
            raw(f"  {figure:21} {value}")
    raw(f"latency: {_latency(report)}")
    for outcome in report.worst:
        raw(f"wrong: {_claim(outcome)}: {outcome.query.query} ({_gold(outcome)})")
        if outcome.evidence:
            raw(f"       {outcome.evidence}")


def comparison(compared: "Comparison", *, first: str, second: str) -> None:
    """Print two evaluations side by side, what their differences mean, and the queries on which they differ.

    :param compared: The comparison.
    :param first: Name of the first configuration.
    :param second: Name of the second.
    """
    raw(f"first:  {first}\nsecond: {second}")
    _compared_part("all", compared, with_meaning=True)
    raw(f"  {'latency':21} {_latency(compared.first):28} {_latency(compared.second)}")
    kinds = compared.by_kind
    if len(kinds) > 1:
        raw("\nby kind (many tests: about one in twenty falls below p=0.05 by chance alone)")
        for kind, part in kinds.items():
            _compared_part(kind, part, with_meaning=False)
    _disagreements(compared.disagreements)


def sessions(report: "SessionReport") -> None:
    """Print what each scripted agent was sent.

    :param report: The figures.
    """
    answerable = sum(bool(session.gold) for session in report.sessions)
    raw(f"{len(report.sessions)} sessions, {answerable} with documents that answer; means, and least-most of a session")
    for agent, figures in report.figures.items():
        raw(f"{agent.value}:")
        for name, value in figures.described().items():
            raw(f"  {name:31} {value}")


def _compared_part(name: str, compared: "Comparison", *, with_meaning: bool) -> None:
    raw(f"\n{name}: {len(compared.first.outcomes)} queries")
    raw(f"  {'':21} {'first':28} second")
    second = _figures(compared.second)
    for figure, value in _figures(compared.first).items():
        if (value, second[figure]) != (_NOTHING, _NOTHING):
            raw(f"  {figure:21} {value:28} {second[figure]}")
    raw("  second minus first, query by query:")
    pairs = {
        "recall@1": compared.recall_at_1,
        "hit rate": compared.hit_rate,
        "not found, rightly": compared.not_found_rate,
    }
    for figure, pair in pairs.items():
        p_value = pair.p_value()
        if pair.difference is not None and p_value is not None:
            meaning = f": {_meaning(pair, p_value)}" if with_meaning else ""
            raw(f"    {figure:19} {pair.difference:+.3f}, {_test(pair, p_value)}{meaning}")
    difference, interval = compared.mrr.difference, compared.mrr.interval()
    if difference is not None:
        bounds = "" if interval is None else f" (95 % interval {interval[0]:+.3f} to {interval[1]:+.3f})"
        raw(f"    {'MRR':19} {difference:+.3f}{bounds}")


def _figures(report: "EvaluationReport") -> dict[str, str]:
    from knowledge_lookup.postprocessors import RelevanceLevel

    return {
        **{f"recall@{k}": str(report.recall_at(k)) for k in (1, 3, 5)},
        "MRR": _NOTHING if report.mrr is None else f"{report.mrr:.3f}",
        "hit rate": str(report.hit_rate),
        "not found, rightly": str(report.not_found_rate),
        **{f"{level.value} right": str(report.right_at(level)) for level in RelevanceLevel},
    }


def _test(pair: "PairedShare", p_value: float) -> str:
    shown = f"p={p_value:.3g}" if p_value >= 0.001 else "p<0.001"
    return f"only first right {pair.only_first}, only second {pair.only_second}, {shown}"


def _meaning(pair: "PairedShare", p_value: float) -> str:
    if p_value >= _SIGNIFICANT_BELOW:
        return f"no difference that n={pair.first.total} queries could show"
    better = "second" if pair.only_second > pair.only_first else "first"
    return f"the {better} is better, and chance alone hardly explains it"


def _disagreements(disagreements: list["Disagreement"]) -> None:
    if not disagreements:
        raw("\nboth are right and wrong on the same queries, with the same right documents at rank 1 or not")
        return
    raw(f"\ndifferent on {len(disagreements)} queries")
    for disagreement in disagreements[:_MOST_DISAGREEMENTS]:
        first, second = disagreement.first, disagreement.second
        raw(f"{_who(first, second)}: {disagreement.query.query} ({_gold(first)})")
    more = len(disagreements) - _MOST_DISAGREEMENTS
    if more > 0:
        raw(f"and {more} more; --json lists all")


def _who(first: "Outcome", second: "Outcome") -> str:
    if first.is_right == second.is_right:
        judged = "both right" if first.is_right else "both wrong"
        return f"{judged} (first: {_claim(first)}, {_rank(first)}; second: {_claim(second)}, {_rank(second)})"
    judged = "only first right" if first.is_right else "only second right"
    return f"{judged} (first: {_claim(first)}; second: {_claim(second)})"


def _claim(outcome: "Outcome") -> str:
    return "not found" if outcome.level is None else outcome.level.value


def _rank(outcome: "Outcome") -> str:
    return "unranked" if outcome.rank is None else f"rank {outcome.rank}"


def _gold(outcome: "Outcome") -> str:
    return f"right: {', '.join(sorted(outcome.query.gold)) or 'nothing'}"


def _latency(report: "EvaluationReport") -> str:
    p50, p95 = report.latency_ms()
    return f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"
