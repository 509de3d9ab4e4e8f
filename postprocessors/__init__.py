"""From raw distances to relevance levels, and the filter for what a session already has."""

from knowledge_lookup.postprocessors.completeness_hints import completeness_hint
from knowledge_lookup.postprocessors.evidence import Evidence, EvidenceProfile, EvidenceWeights
from knowledge_lookup.postprocessors.evidence_postprocessor import EvidencePostprocessor, evidence_of
from knowledge_lookup.postprocessors.level_marking import relevance_level_of
from knowledge_lookup.postprocessors.normalization import NormalizationProfile, normalize_l2
from knowledge_lookup.postprocessors.relevance_level import RelevanceLevel
from knowledge_lookup.postprocessors.relevance_postprocessor import RelevancePostprocessor
from knowledge_lookup.postprocessors.session_filter import RetrievedDocuments, SessionFilterPostprocessor

__all__ = [
    "Evidence",
    "EvidencePostprocessor",
    "EvidenceProfile",
    "EvidenceWeights",
    "NormalizationProfile",
    "RelevanceLevel",
    "RelevancePostprocessor",
    "RetrievedDocuments",
    "SessionFilterPostprocessor",
    "completeness_hint",
    "evidence_of",
    "normalize_l2",
    "relevance_level_of",
]
