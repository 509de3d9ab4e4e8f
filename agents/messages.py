"""The sentences that a look-up says, to the LLM and to the log, in both languages."""

from collections.abc import Mapping
from dataclasses import dataclass

from knowledge_lookup.postprocessors.completeness_hints import Locale


@dataclass(frozen=True, slots=True)
class Messages:
    """All sentences of one language; ``{...}`` are filled in by ``str.format``.

    Document texts and queries are only ever filled *into* these templates, so braces in them do no harm.
    """

    already_retrieved: str
    given_at: str
    given_sections: str
    rest_only: str
    between: str
    same_question: str
    nothing_stronger: str
    section_given: str
    section_unknown: str
    section_ambiguous: str
    section_unfinished: str
    lookup_limit: str
    domain_limit: str
    character_limit: str
    last_text: str
    not_found: str
    not_found_again: str
    not_found_still: str
    empty_query: str
    outage_only_exact: str
    outage_may_be_more: str
    outage_nothing: str
    passage_label: str
    passage_label_without_section: str
    lookup_description: str
    search_description: str
    log_received: str
    log_matched: str
    log_confidence: str
    log_unique: str
    log_ambiguous: str
    log_nothing_matched: str
    log_unaccounted: str
    log_skipped: str
    log_semantic: str
    log_done: str
    log_outage: str
    log_failed: str


MESSAGES: Mapping[Locale, Messages] = {
    "zh": Messages(
        already_retrieved="以下文档已在本会话中检索过：[{documents}]，无需重复召回",
        given_at="；第{number}次检索给出：{what}",
        given_sections="{document}（{sections}）",
        rest_only="该文档的部分内容已在第{numbers}次检索中给出，这里只有其余部分",
        between="；",
        same_question="与第{number}次检索是同一问题，这里只有新内容",
        nothing_stronger="与第{number}次检索是同一问题，没有比已给出的内容更相关的新内容，请直接作答",
        section_given="{document} 的章节“{title}”已在第{number}次检索中给出，请使用上文内容",
        section_unknown="{document} 没有章节“{title}”，可选章节见 availableSections",
        section_ambiguous="“{title}”对应 {document} 的多个章节，请从 availableSections 中选择",
        section_unfinished="章节“{title}”较长，再次请求可取得其余部分",
        lookup_limit="检索次数已达上限（{limit}次），请用已有内容作答",
        domain_limit="域 {domains} 已达检索上限（{limit}次），请用已有内容作答",
        character_limit="检索内容已达上限（{limit}字符），请用已有内容作答",
        last_text="检索内容已达上限（{limit}字符），这里可能被截断，不会再有新内容，请用已有内容作答",
        not_found="知识库中没有找到与该查询相关的内容",
        not_found_again="知识库没有收录该内容（已连续2次未找到）。不要再检索，请在回答中说明知识库没有收录",
        not_found_still="知识库没有收录，请直接作答并说明",
        empty_query="查询为空，请给出要查找的关键词或问题",
        outage_only_exact="语义检索暂不可用，这里只有关键词精确匹配的内容，可能不完整",
        outage_may_be_more="语义检索暂不可用，可能还有其他相关内容",
        outage_nothing=(
            "语义检索暂不可用，关键词也没有匹配到文档。这不代表知识库没有收录，请在回答中说明检索暂不可用，或稍后再试"
        ),
        passage_label="【来源：{source}｜章节：{section}】",
        passage_label_without_section="【来源：{source}】",
        lookup_description=(
            "查询知识库文档。优先精确匹配关键词，未命中或多个匹配时自动补充语义相关片段。"
            "参数 query: 查询关键词，例如 'ERR_TIMEOUT'、'支付网关超时'"
        ),
        search_description=(
            "按语义检索知识库文档片段，适合没有明确关键词的模糊描述。"
            "已知错误码、配置项等精确关键词时请用 lookup_knowledge。参数 query: 用自然语言描述要找的内容"
        ),
        log_received="收到知识库查询请求: query={query}",
        log_matched="L0精确匹配完成: matches={matches}, time={time:.1f}ms",
        log_confidence="置信度判断: highConfidence={high}, reason={reason}",
        log_unique="唯一匹配",
        log_ambiguous="多个匹配",
        log_nothing_matched="无匹配",
        log_unaccounted="匹配词未覆盖整个查询",
        log_skipped="L0唯一匹配，跳过L1检索",
        log_semantic="L1语义检索完成: topSimilarity={similarity}, time={time:.1f}ms",
        log_done=(
            "查询完成: found={found}, confidence={confidence}, level={level}, dedup={dedup}, totalTime={time:.1f}ms"
        ),
        log_outage="L1语义检索失败: error={error}, time={time:.1f}ms",
        log_failed="查询失败: {error}",
    ),
    "en": Messages(
        already_retrieved=(
            "These documents have already been retrieved in this session: [{documents}]; "
            "there is no need to retrieve them again"
        ),
        given_at="; look-up {number} gave {what}",
        given_sections="{document} ({sections})",
        rest_only="Part of this document was given by look-up {numbers}; this is the rest",
        between="; ",
        same_question="The same question as look-up {number}; only what is new is here",
        nothing_stronger="The same question as look-up {number}; nothing new is more relevant than that: answer now",
        section_given="Section '{title}' of {document} was given by look-up {number}; use what is above",
        section_unknown="{document} has no section '{title}'; choose one of availableSections",
        section_ambiguous="'{title}' means several sections of {document}; choose one of availableSections",
        section_unfinished="Section '{title}' is long; ask again for the rest of it",
        lookup_limit="The limit of {limit} look-ups is reached; answer with what you have",
        domain_limit="The limit of {limit} look-ups in {domains} is reached; answer with what you have",
        character_limit="The limit of {limit} characters is reached; answer with what you have",
        last_text="The limit of {limit} characters is reached: this may be cut, and nothing more comes; answer",
        not_found="The knowledge base holds nothing relevant to this query",
        not_found_again=(
            "The knowledge base doesn't hold this (nothing found twice in a row). "
            "Don't search again; say in the answer that the knowledge base doesn't hold it"
        ),
        not_found_still="The knowledge base doesn't hold this; answer, and say so",
        empty_query="The query is empty; give the keywords or the question to look up",
        outage_only_exact="Semantic search is unavailable: this is what keywords match exactly, and may be incomplete",
        outage_may_be_more="Semantic search is unavailable: there may be more",
        outage_nothing=(
            "Semantic search is unavailable and no keyword matches. The knowledge base may well hold this: "
            "say in the answer that the search is unavailable, or try again later"
        ),
        passage_label="[Source: {source} | Section: {section}]",
        passage_label_without_section="[Source: {source}]",
        lookup_description=(
            "Look up the knowledge base. Exact keywords are matched first; when none or several documents match, "
            "semantically related passages are added. "
            "Parameter query: the keywords, for example 'ERR_TIMEOUT' or 'payment gateway timeout'"
        ),
        search_description=(
            "Search passages of the knowledge base by meaning, for vague descriptions without a definite keyword. "
            "With an error code, a configuration item or another exact keyword use lookup_knowledge instead. "
            "Parameter query: what to look for, in natural language"
        ),
        log_received="knowledge look-up received: query={query}",
        log_matched="L0 exact match done: matches={matches}, time={time:.1f}ms",
        log_confidence="confidence judged: highConfidence={high}, reason={reason}",
        log_unique="one document matches",
        log_ambiguous="several documents match",
        log_nothing_matched="nothing matches",
        log_unaccounted="the matched terms don't account for the whole query",
        log_skipped="L0 is decisive, L1 is skipped",
        log_semantic="L1 semantic search done: topSimilarity={similarity}, time={time:.1f}ms",
        log_done=(
            "look-up done: found={found}, confidence={confidence}, level={level}, dedup={dedup}, totalTime={time:.1f}ms"
        ),
        log_outage="L1 semantic search failed: error={error}, time={time:.1f}ms",
        log_failed="look-up failed: {error}",
    ),
}
