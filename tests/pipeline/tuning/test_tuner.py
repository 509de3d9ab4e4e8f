"""Tuning with labels and without, over a real search."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import log

import pytest

from knowledge_lookup.pipeline.evaluation import LabelledQuery, Share
from knowledge_lookup.pipeline.tuning import (
    CorpusDocument,
    EvidenceTuner,
    Sample,
    SampleCollector,
    TooFewLabelsError,
    TuningFigures,
    TuningGoal,
    TuningReport,
)
from knowledge_lookup.pipeline.tuning.fitting import cross_validate
from knowledge_lookup.pipeline.tuning.thresholds import Judged, reference_threshold
from knowledge_lookup.pipeline.tuning.tuner import LEAST_ANSWERABLE, LEAST_PSEUDO_QUERIES
from knowledge_lookup.postprocessors import EvidenceProfile, EvidenceWeights

from .corpus import Corpus, document, words

BASE = EvidenceProfile(
    EvidenceWeights(intercept=-6.0, lift=20.0, coverage=6.0, unknown=0.0, information=0.0),
    EvidenceWeights(intercept=-6.0, lift=20.0, coverage=6.0, unknown=0.0, information=0.0),
    highly_relevant_threshold=0.9,
    reference_threshold=0.3,
)
LOOSE_GOAL = TuningGoal(most_answered=0.2)
ACROSS_DOMAINS = words("shared", "valve", "pump", "gauge", "crank", number=99)
WITHIN_A_DOMAIN = words("common", "valve", "pump", "gauge", "crank", number=98)


def manual(number: int) -> CorpusDocument:
    """Sixteen manuals are in the domain "plant", which is more than a third of all; the others two by two."""
    first = {16: ACROSS_DOMAINS, 18: ACROSS_DOMAINS, 20: WITHIN_A_DOMAIN, 21: WITHIN_A_DOMAIN}
    return document(
        f"{number:02}.md",
        [
            first.get(number, words("valve", "pump", "gauge", "crank", "rotor", number=number)),
            words("bolt", "screw", "lever", "wheel", "chain", number=number),
        ],
        domain="plant" if number < 16 else f"shop {number // 2}",
        summary=words("bolt", "screw", "lever", "wheel", "belt", number=number),
    )


MANUALS = [manual(number) for number in range(40)]


class RememberingCollector(SampleCollector):
    """The real collector, keeping what it collected."""

    samples: Sequence[Sample] = ()

    def collect(
        self,
        queries: Sequence[LabelledQuery],
        *,
        leave_out: Callable[[LabelledQuery], Collection[str]] | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> list[Sample]:
        self.samples = super().collect(queries, leave_out=leave_out, progress=progress)
        return list(self.samples)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    corpus = Corpus.of(MANUALS, tmp_path_factory.mktemp("manuals"))
    yield corpus
    corpus.store.close()


@pytest.fixture
def collector(corpus: Corpus) -> RememberingCollector:
    return RememberingCollector(corpus.retriever, corpus.bm25_index, max_l2_distance=2.0)


def tuner(
    collector: SampleCollector, *, base: EvidenceProfile | None = BASE, settled: Collection[str] = ()
) -> EvidenceTuner:
    return EvidenceTuner(collector, is_settled=lambda query: query in settled, base=base)


def labelled(count: int, *, prefix: str = "") -> list[LabelledQuery]:
    return [
        LabelledQuery(words("bolt", "lever", "chain", number=number % 40), frozenset({f"{prefix}{number % 40:02}.md"}))
        for number in range(count)
    ]


def log_odds(probability: float) -> float:
    return log(probability / (1.0 - probability))


# With labels


def test_labels_give_a_profile_and_figures_before_and_after(collector: RememberingCollector) -> None:
    settled = ["ORA-12541", "ORA-12514"]
    queries = [
        *labelled(40),
        LabelledQuery("holiday calendar of next spring", frozenset()),
        *(LabelledQuery(code, frozenset({"03.md"})) for code in settled),
    ]
    told: list[int] = []
    report = tuner(collector, settled=settled).tune(queries, TuningGoal(), progress=lambda done, *_: told.append(done))
    # What an exact match settles is neither asked nor counted.
    assert (report.method, report.answerable, report.unanswerable, report.left_aside) == ("labels", 40, 41, 2)
    assert told == list(range(41))
    assert {one.query.query for one in collector.samples}.isdisjoint(settled)
    assert report.before is not None
    assert (report.before.hit.total, report.before.not_found.total) == (40, 41)
    # Cross-validated: figures on what the profile was fitted to would be better than those on others.
    assert report.after == cross_validate(collector.samples, TuningGoal(), base=BASE)
    # Forty samples of each kind are enough for weights of their own; there's none in another script.
    assert report.profile.weights != BASE.weights
    assert report.profile.other_script_weights == BASE.other_script_weights
    assert list(report.to_dict()) == [
        "method",
        "answerable",
        "unanswerable",
        "leftAside",
        "before",
        "after",
        "shortcomings",
        "profile",
    ]
    assert report.to_dict()["profile"] == report.profile.to_dict()


def test_too_few_answerable_queries_are_refused_before_any_is_asked(collector: RememberingCollector) -> None:
    queries = [*labelled(LEAST_ANSWERABLE), *(LabelledQuery(f"holiday {number}", frozenset()) for number in range(60))]
    with pytest.raises(TooFewLabelsError) as raised:
        tuner(collector, settled=[queries[0].query]).tune(queries, TuningGoal())
    assert str(raised.value) == (
        "39 answerable queries that no exact match settles are too few, at least 40 are needed: label more queries, or "
        "tune without labels with --auto"
    )
    assert collector.samples == ()


def test_queries_about_fewer_documents_than_there_are_folds_are_refused(collector: RememberingCollector) -> None:
    queries = [replace(query, gold=frozenset({f"{number % 4:02}.md"})) for number, query in enumerate(labelled(40))]
    with pytest.raises(TooFewLabelsError, match=r"answered by 4 documents, at least 5 are needed .*: label queries on"):
        tuner(collector).tune(queries, TuningGoal())
    assert collector.samples == ()


def test_without_a_profile_labels_make_one(collector: RememberingCollector) -> None:
    report = tuner(collector, base=None).tune(labelled(40), TuningGoal())
    assert report.before is None
    assert report.to_dict()["before"] is None
    assert report.profile.weights == report.profile.other_script_weights
    assert report.after.first_right == Share(40, 40)


def test_paths_that_no_document_has_are_pointed_out_where_nothing_can_be_fitted(
    collector: RememberingCollector,
) -> None:
    with pytest.raises(TooFewLabelsError, match="documents list") as raised:
        tuner(collector, base=None).tune(labelled(40, prefix="knowledge_base/"), TuningGoal())
    assert "\n" not in str(raised.value)


# Without labels


@pytest.fixture(scope="module")
def automatic(corpus: Corpus) -> tuple[TuningReport, Sequence[Sample]]:
    """One run without labels, and what was asked in it; a keyword settles five of the summaries."""
    collector = RememberingCollector(corpus.retriever, corpus.bm25_index, max_l2_distance=2.0)
    settled = [str(one.metadata["summary"]) for one in MANUALS[:5]]
    report = tuner(collector, settled=settled).tune_without_labels(MANUALS, LOOSE_GOAL)
    return report, collector.samples


def test_without_labels_each_query_is_asked_without_its_domain_or_alone_where_the_domain_is_most_of_all(
    automatic: tuple[TuningReport, Sequence[Sample]],
) -> None:
    left_out = {min(one.query.gold): one.left_out for one in automatic[1] if one.left_out}
    assert len(left_out) == 40
    assert left_out["03.md"] == {"03.md"}
    assert left_out["15.md"] == {"15.md"}
    assert left_out["16.md"] == left_out["17.md"] == {"16.md", "17.md"}


def test_a_sentence_that_stands_in_another_domain_is_not_counted_as_unanswerable(
    automatic: tuple[TuningReport, Sequence[Sample]],
) -> None:
    report, _ = automatic
    # Three queries a manual, less the five settled. The sentence that two domains share has an answer in the other one,
    # both times; the one that two manuals of one domain share has none once the domain is left out.
    assert report.unanswerable == 3 * 40 - 5 - 2
    # Only summaries are asked with their document: a sentence of its text would find itself.
    assert report.answerable == 40 - 5
    assert (report.method, report.left_aside) == ("auto", 5)
    assert report.after.hit.total == report.answerable
    assert report.after.not_found.total == report.unanswerable


def test_without_labels_thresholds_go_half_the_way_and_the_rest_of_the_profile_stays(
    automatic: tuple[TuningReport, Sequence[Sample]],
) -> None:
    report, samples = automatic
    honest = [one for one in samples if one.left_out and all(found.evidence.coverage < 0.7 for found in one.candidates)]
    measured = reference_threshold([Judged.by(BASE, one) for one in honest], LOOSE_GOAL)
    assert 0.0 < measured < 0.2
    profile = report.profile
    assert log_odds(profile.reference_threshold) == pytest.approx((log_odds(0.3) + log_odds(measured)) / 2)
    assert log_odds(profile.highly_relevant_threshold) - log_odds(profile.reference_threshold) == pytest.approx(
        log_odds(0.9) - log_odds(0.3)
    )
    assert replace(profile, reference_threshold=0.3, highly_relevant_threshold=0.9) == BASE


def test_a_corpus_that_gives_too_few_queries_is_refused(collector: RememberingCollector) -> None:
    with pytest.raises(TooFewLabelsError) as raised:
        tuner(collector).tune_without_labels(MANUALS[:10], TuningGoal())
    assert str(raised.value) == (
        f"the documents give 30 queries, at least {LEAST_PSEUDO_QUERIES} are needed to tune without labels: keep the "
        "built-in profile, or label queries and tune with --queries"
    )


def test_without_labels_and_without_a_profile_there_is_nothing_to_move(collector: RememberingCollector) -> None:
    with pytest.raises(TooFewLabelsError, match=r"no profile is known for this embedding model.*: tune with --queries"):
        tuner(collector, base=None).tune_without_labels(MANUALS, TuningGoal())
    assert collector.samples == ()


def figures(hit: int, not_found: int, right: int) -> TuningFigures:
    return TuningFigures(
        hit=Share(hit, 100),
        not_found=Share(not_found, 100),
        highly_relevant_right=Share(right, 100),
        first_right=Share(90, 100),
    )


def test_a_profile_that_keeps_less_than_its_goal_or_finds_less_for_nothing_says_so() -> None:
    def shortcomings(before: TuningFigures | None, after: TuningFigures) -> list[str]:
        return TuningReport(BASE, before, after, "labels", 100, 100, 0, TuningGoal()).shortcomings()

    assert shortcomings(figures(70, 95, 96), figures(72, 94, 95)) == []
    assert shortcomings(None, figures(72, 85, 95)) == [
        "only 0.850 (0.767-0.907, n=100) of the unanswerable queries get nothing, 0.95 was the goal"
    ]
    assert shortcomings(None, figures(72, 95, 85)) == [
        "only 0.850 (0.767-0.907, n=100) of the HIGHLY_RELEVANT results are right, 0.95 was the goal"
    ]
    [worse] = shortcomings(figures(80, 95, 96), figures(50, 96, 96))
    assert worse.startswith("0.500 (0.404-0.596, n=100) of the answerable queries are found, 0.800")
    # finding less is the price of letting fewer unanswerable queries through
    assert shortcomings(figures(80, 60, 96), figures(50, 96, 96)) == []
