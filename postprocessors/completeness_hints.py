"""The sentence that goes with each level and tells the LLM whether searching on is worth it."""

from collections.abc import Mapping
from typing import Literal

from knowledge_lookup.postprocessors.relevance_level import RelevanceLevel

Locale = Literal["zh", "en"]

_HINTS: Mapping[Locale, Mapping[RelevanceLevel, str]] = {
    "zh": {
        RelevanceLevel.PRECISE: "知识库中不存在比上述结果更精准的文档",
        RelevanceLevel.HIGHLY_RELEVANT: "当前结果已高度相关，继续检索不太可能找到更精准的文档",
        RelevanceLevel.REFERENCE: "当前结果为相关参考，如需更精准信息请明确缺少的具体维度",
    },
    "en": {
        RelevanceLevel.PRECISE: "The knowledge base holds no document more precise than this result.",
        RelevanceLevel.HIGHLY_RELEVANT: (
            "This result is already highly relevant; searching on is unlikely to find a more precise document."
        ),
        RelevanceLevel.REFERENCE: (
            "This result is related reference material; if you need more precise information, "
            "name the specific aspect that is missing."
        ),
    },
}


def completeness_hint(level: RelevanceLevel, locale: Locale = "zh") -> str:
    """Return the hint for a level.

    :param level: The level of a result.
    :param locale: Language of the hint.
    :returns: One sentence for the LLM.
    """
    return _HINTS[locale][level]
