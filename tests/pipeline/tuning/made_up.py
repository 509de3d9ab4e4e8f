"""Samples whose probabilities are chosen by hand, for the tests of what is computed from them."""

from math import log

from knowledge_lookup.pipeline.evaluation import LabelledQuery
from knowledge_lookup.pipeline.tuning import Candidate, Sample
from knowledge_lookup.postprocessors import Evidence, EvidenceProfile, EvidenceWeights

BY_LIFT = EvidenceWeights(intercept=0.0, lift=1.0, coverage=0.0, unknown=0.0, information=0.0)
"""With these weights a probability is the logistic function of the lift."""
BASE = EvidenceProfile(BY_LIFT, BY_LIFT, highly_relevant_threshold=0.9, reference_threshold=0.3)


def sample(
    group: str, *candidates: Candidate, answerable: bool = True, kind: str = "any", left_out: bool = False
) -> Sample:
    """A query asked once; the document that answers it, if any, gives the group."""
    gold = frozenset({group}) if answerable or left_out else frozenset[str]()
    return Sample(LabelledQuery(group, gold, kind), gold if left_out else frozenset(), candidates)


def probable(probability: float, *, right: bool = False, other_script: bool = False) -> Candidate:
    """A document of which ``BY_LIFT`` says how probable it is."""
    lift = log(probability / (1.0 - probability))
    return Candidate("a.md", Evidence(0.5, lift, 0.0, 0.0, 0.0, other_script=other_script), right)


def candidate(
    *,
    right: bool,
    lift: float = 0.0,
    coverage: float = 0.0,
    unknown: float = 0.0,
    information: float = 0.0,
    other_script: bool = False,
) -> Candidate:
    """A document with features."""
    return Candidate("a.md", Evidence(0.5, lift, coverage, unknown, information, other_script=other_script), right)
