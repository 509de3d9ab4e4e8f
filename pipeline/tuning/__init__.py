"""Tuning what evidence means: with labelled queries, or with queries made of the corpus itself."""

from knowledge_lookup.pipeline.tuning.errors import ProfileFileError, TooFewLabelsError
from knowledge_lookup.pipeline.tuning.fitting import cross_validate, fit_profile, fit_weights
from knowledge_lookup.pipeline.tuning.profile_store import ProfileStore, SavedProfile
from knowledge_lookup.pipeline.tuning.pseudo_queries import CorpusDocument
from knowledge_lookup.pipeline.tuning.samples import Candidate, Sample, SampleCollector, StatisticsWithout
from knowledge_lookup.pipeline.tuning.thresholds import Judged, TuningFigures, TuningGoal
from knowledge_lookup.pipeline.tuning.tuner import EvidenceTuner, TuningReport

__all__ = [
    "Candidate",
    "CorpusDocument",
    "EvidenceTuner",
    "Judged",
    "ProfileFileError",
    "ProfileStore",
    "Sample",
    "SampleCollector",
    "SavedProfile",
    "StatisticsWithout",
    "TooFewLabelsError",
    "TuningFigures",
    "TuningGoal",
    "TuningReport",
    "cross_validate",
    "fit_profile",
    "fit_weights",
]
