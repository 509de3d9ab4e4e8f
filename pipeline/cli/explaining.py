"""What ``lookup --explain`` and ``tune`` print."""

from pathlib import Path
from typing import TYPE_CHECKING

from knowledge_lookup.pipeline.cli.rendering import raw

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.explanation import ExplainedPassage, Explanation
    from knowledge_lookup.pipeline.tuning import TuningFigures, TuningReport

_MOST_PASSAGES = 8


def explanation(found: "Explanation") -> None:
    """Print by what a query was judged.

    :param found: The explanation.
    """
    raw("\n--- evidence")
    for match in found.matches.matches:
        raw(f"keyword match: {match.entry.file_path} by {', '.join(match.terms)}")
    if found.matches.decisive:
        raw("the matched terms account for the whole query: PRECISE, and semantic search is not asked")
        return
    if found.terms:
        raw("words of the query (passages that have them): " + ", ".join(f"{term} ({n})" for term, n in found.terms))
    raw(
        f"thresholds: HIGHLY_RELEVANT from {found.highly_relevant_threshold:.3f}, "
        f"REFERENCE from {found.reference_threshold:.3f}"
    )
    for passage in found.passages[:_MOST_PASSAGES]:
        raw(_passage(passage, found))
    if not found.passages:
        raw("semantic search found no passage at all")


def tuning(report: "TuningReport", path: Path, *, applied: bool) -> None:
    """Print what tuning came to.

    :param report: The report.
    :param path: Where the profile was saved.
    :param applied: Whether it is used from now on.
    """
    made = "labelled queries" if report.method == "labels" else "queries made of the documents"
    raw(f"{report.answerable} answerable and {report.unanswerable} unanswerable samples from {made}")
    if report.left_aside:
        raw(f"{report.left_aside} queries are settled by an exact match and were left aside")
    if report.before is not None:
        _figures("profile in use", report.before)
    _figures("new profile" + (", cross-validated" if report.method == "labels" else ""), report.after)
    if report.method == "auto":
        raw("what people ask differs from such queries: measure with `evaluate --queries` before you trust the figures")
    for remark in report.shortcomings():
        raw(f"careful: {remark}")
    upper, lower = report.profile.highly_relevant_threshold, report.profile.reference_threshold
    raw(f"thresholds: HIGHLY_RELEVANT {upper:.3f}, REFERENCE {lower:.3f}")
    raw(f"saved in {path}" + (", and used from now on" if applied else "; --apply uses it from now on"))


def _figures(name: str, figures: "TuningFigures") -> None:
    raw(f"{name}:")
    raw(f"  answerable, right document delivered  {figures.hit}")
    raw(f"  unanswerable, nothing delivered       {figures.not_found}")
    raw(f"  HIGHLY_RELEVANT right                 {figures.highly_relevant_right}")


def _passage(passage: "ExplainedPassage", found: "Explanation") -> str:
    level = "below" if passage.score < found.reference_threshold else "REFERENCE"
    if passage.score >= found.highly_relevant_threshold:
        level = "HIGHLY_RELEVANT"
    section = f" > {passage.section}" if passage.section else ""
    ranks = f"rank by meaning {passage.dense_rank or '-'}, by words {passage.sparse_rank or '-'}"
    line = (
        f"{passage.score:.3f} {level:15} {passage.file_path}{section}\n        distance {passage.distance:.3f}, {ranks}"
    )
    if passage.evidence is None:
        return line
    evidence = passage.evidence
    script = ", query in another script" if evidence.other_script else ""
    return (
        f"{line}\n        similarity {evidence.similarity:.3f} (lift {evidence.lift:+.3f}), words covered "
        f"{evidence.coverage:.2f}, unknown to the corpus {evidence.unknown:.2f}, information "
        f"{evidence.information:.1f}{script}"
    )
