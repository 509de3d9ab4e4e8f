"""Tuning the evidence profile to a model and a corpus, with labelled queries or with what the corpus itself gives."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.pipeline.evaluation.report import Share
from knowledge_lookup.pipeline.tuning.errors import TooFewLabelsError
from knowledge_lookup.pipeline.tuning.fitting import FOLDS, cross_validate, fit_profile
from knowledge_lookup.pipeline.tuning.pseudo_queries import OUTSIDE, CorpusDocument, pseudo_queries
from knowledge_lookup.pipeline.tuning.samples import Sample, SampleCollector
from knowledge_lookup.pipeline.tuning.thresholds import Judged, TuningFigures, TuningGoal, reference_threshold
from knowledge_lookup.postprocessors import EvidenceProfile

LEAST_ANSWERABLE = 40
"""So many answerable queries are needed: each is asked a second time without its documents, and 5 % of 40 are two."""
LEAST_PSEUDO_QUERIES = 100
_MOST_PSEUDO_QUERIES = 400
_ANSWERED_ELSEWHERE = 0.7
"""A sentence whose words stand together in another document to this share isn't unanswerable without its own."""
_LARGEST_DOMAIN = 1 / 3
"""A domain that holds more of the documents than this isn't left out as a whole: too little would be left."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class TuningReport:
    """A fitted profile and what it comes to.

    :param profile: The profile.
    :param before: What the profile in use came to on the same samples; None without one.
    :param after: What the new one comes to: by cross-validation with labels, on the pseudo-queries without.
    :param method: ``labels`` or ``auto``.
    :param answerable: Number of answerable samples.
    :param unanswerable: Number of unanswerable samples.
    :param left_aside: Queries that an exact match settles, so that the evidence is never asked.
    :param goal: What the thresholds were to keep.
    """

    profile: EvidenceProfile
    before: TuningFigures | None
    after: TuningFigures
    method: str
    answerable: int
    unanswerable: int
    left_aside: int
    goal: TuningGoal

    def shortcomings(self) -> list[str]:
        """Say where the new profile keeps less than its goal, or is worse than the one in use.

        :returns: One sentence each; none when it's better and keeps the goal.
        """
        found = []
        for name, figure, least in (
            ("of the unanswerable queries get nothing", self.after.not_found, 1.0 - self.goal.most_answered),
            ("of the HIGHLY_RELEVANT results are right", self.after.highly_relevant_right, self.goal.least_right),
        ):
            if figure.interval is not None and figure.interval[1] < least:
                found.append(f"only {figure} {name}, {least:g} was the goal")
        before = self.before
        if (
            before is not None
            and _is_worse(self.after.hit, before.hit)
            and not _is_worse(before.not_found, self.after.not_found)
        ):
            found.append(f"{self.after.hit} of the answerable queries are found, {before.hit} with the profile in use")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "method": self.method,
            "answerable": self.answerable,
            "unanswerable": self.unanswerable,
            "leftAside": self.left_aside,
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
            "shortcomings": self.shortcomings(),
            "profile": self.profile.to_dict(),
        }


class EvidenceTuner:
    """Fits evidence profiles.

    :param collector: Asks the queries.
    :param is_settled: Tells whether an exact match settles a query.
    :param base: The profile in use; where there's too little to fit, its weights stay. None if none is known for the
        embedding model.
    """

    def __init__(
        self, collector: SampleCollector, *, is_settled: Callable[[str], bool], base: EvidenceProfile | None
    ) -> None:
        self.collector = collector
        self._is_settled = is_settled
        self._base = base

    def tune(
        self, queries: Sequence[LabelledQuery], goal: TuningGoal, *, progress: Progress | None = None
    ) -> TuningReport:
        """Fit a profile to labelled queries.

        Each answerable query is asked as it is, and once more with the documents that answer it left out: then it is
        unanswerable, and as close to the corpus as an unanswerable query can be.

        :param queries: Labelled queries, at least 40 of them answerable and not settled by an exact match, on at least
            5 documents.
        :param goal: What the thresholds must keep.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The profile, with cross-validated figures.
        :raises TooFewLabelsError: If there are too few labels.
        :raises KnowledgeLookupError: If the model or Milvus can't be used.
        """
        open_queries = [query for query in queries if not self._is_settled(query.query)]
        answerable = sum(bool(query.gold) for query in open_queries)
        if answerable < LEAST_ANSWERABLE:
            raise TooFewLabelsError(
                f"{answerable} answerable queries that no exact match settles are too few, at least {LEAST_ANSWERABLE} "
                "are needed: label more queries, or tune without labels with --auto"
            )
        documents = {min(query.gold) for query in open_queries if query.gold}
        if len(documents) < FOLDS:
            raise TooFewLabelsError(
                f"the queries are answered by {len(documents)} documents, at least {FOLDS} are needed so that what is "
                "fitted to some can be tested on others: label queries on more documents"
            )
        samples = self.collector.collect(open_queries, progress=progress)
        try:
            profile = fit_profile(samples, goal, base=self._base)
            after = cross_validate(samples, goal, base=self._base)
        except ValueError as error:
            raise TooFewLabelsError(
                "no profile is known for this embedding model, and too few queries find a document that is labelled as "
                'right to fit one: check that "gold" has paths as `knowledge-lookup documents list` shows them'
            ) from error
        return self._report(
            "labels", samples, profile=profile, after=after, left_aside=len(queries) - len(open_queries), goal=goal
        )

    def tune_without_labels(
        self, documents: Iterable[CorpusDocument], goal: TuningGoal, *, progress: Progress | None = None
    ) -> TuningReport:
        """Move the thresholds of the profile in use to a corpus, by queries made of the corpus itself.

        Sentences and summaries are asked with their document and its whole domain left out. How strong the evidence for
        other documents then still is, tells how strong it must be here to mean something. Weights stay as they are, and
        the upper threshold keeps its distance. Because such queries are not what people ask, the thresholds go half
        the way, in log odds, from those of the profile in use.

        :param documents: All documents.
        :param goal: What the thresholds must keep.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The profile, with figures on the pseudo-queries.
        :raises TooFewLabelsError: If the corpus gives too few queries.
        :raises KnowledgeLookupError: If the model or Milvus can't be used.
        """
        base = self._base
        if base is None:
            raise TooFewLabelsError(
                "no profile is known for this embedding model, and without labels none can be made: tune with --queries"
            )
        corpus = list(documents)
        made = pseudo_queries(corpus, most=_MOST_PSEUDO_QUERIES)
        queries = [query for query in made if not self._is_settled(query.query)]
        domains = _without_largest(corpus)
        samples = self.collector.collect(
            queries, leave_out=lambda query: domains[next(iter(query.gold))], progress=progress
        )
        samples = [one for one in samples if _is_honest(one)]
        unanswerable = sum(not one.is_answerable for one in samples)
        if unanswerable < LEAST_PSEUDO_QUERIES:
            raise TooFewLabelsError(
                f"the documents give {unanswerable} queries, at least {LEAST_PSEUDO_QUERIES} are needed to tune "
                "without labels: keep the built-in profile, or label queries and tune with --queries"
            )
        judged = [Judged.by(base, one) for one in samples]
        profile = _moved(base, reference_threshold(judged, goal))
        return self._report(
            "auto",
            samples,
            profile=profile,
            after=TuningFigures.of([(one, profile) for one in judged]),
            left_aside=len(made) - len(queries),
            goal=goal,
        )

    def _report(
        self,
        method: str,
        samples: Sequence[Sample],
        *,
        profile: EvidenceProfile,
        after: TuningFigures,
        left_aside: int,
        goal: TuningGoal,
    ) -> TuningReport:
        answerable = sum(one.is_answerable for one in samples)
        before = None
        if self._base is not None:
            before = TuningFigures.of([(Judged.by(self._base, one), self._base) for one in samples])
        return TuningReport(
            profile=profile,
            before=before,
            after=after,
            method=method,
            answerable=answerable,
            unanswerable=len(samples) - answerable,
            left_aside=left_aside,
            goal=goal,
        )


def _is_worse(first: Share, second: Share) -> bool:
    return first.interval is not None and second.value is not None and first.interval[1] < second.value


def _is_honest(sample: Sample) -> bool:
    """Tell whether a pseudo-query asked so says something.

    With its document, only a query from outside the searched text does. Without, one that no other document answers.
    """
    if sample.is_answerable:
        return sample.query.kind == OUTSIDE
    return all(found.evidence.coverage < _ANSWERED_ELSEWHERE for found in sample.candidates)


def _without_largest(corpus: Sequence[CorpusDocument]) -> dict[str, frozenset[str]]:
    """What is left out with each document: its domain, or the document alone where the domain is most of the corpus."""
    domains: dict[str, set[str]] = {}
    for document in corpus:
        domains.setdefault(document.domain, set()).add(document.file_path)
    most = len(corpus) * _LARGEST_DOMAIN
    return {
        document.file_path: (
            frozenset(domains[document.domain])
            if len(domains[document.domain]) <= most
            else frozenset({document.file_path})
        )
        for document in corpus
    }


def _moved(base: EvidenceProfile, reference: float) -> EvidenceProfile:
    lower = (_log_odds(base.reference_threshold) + _log_odds(reference)) / 2
    gap = _log_odds(base.highly_relevant_threshold) - _log_odds(base.reference_threshold)
    return replace(
        base, reference_threshold=_probability(lower), highly_relevant_threshold=_probability(lower + max(gap, 0.0))
    )


_CERTAIN = 1e-6


def _log_odds(probability: float) -> float:
    inside = min(max(probability, _CERTAIN), 1.0 - _CERTAIN)
    return math.log(inside / (1.0 - inside))


def _probability(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))
