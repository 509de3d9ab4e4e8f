"""The embedded responder: follows the ReAct format and quotes the knowledge base; it is no language model.

It lets the executor run anywhere, without a model, a key or a network, and it does the same each time. It
can't reason, rephrase or combine: it looks the question up once and answers with the best passages and their
sources.
"""

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import CustomLLM

from knowledge_lookup.agents.json_text import json_text
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.react_labels import without_react_labels
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.markdown_sections import split_sections
from knowledge_lookup.retrievers.normal_form import is_cjk, normal_form, token_spans
from knowledge_lookup.retrievers.text_cut import cut

_QUOTED_CHARACTERS = 1200
_QUERY_CHARACTERS = 600
"""Escaped, a question may become six times as long, and of a tool's input 4,000 characters are read."""
_CONTEXT_WINDOW = 1_000_000
_OBSERVATION = re.compile(r"^Observation: (\{.*\})\s*$", re.MULTILINE)
_ANSWER = re.compile(r"^Answer:", re.MULTILINE)
_TOOL_NAME = re.compile(r"^> Tool Name: (\S+)$", re.MULTILINE)
_LOOKUP_TOOL = "lookup_knowledge"
_OBSERVATION_PREFIX = "Observation:"


@dataclass(frozen=True, slots=True)
class _Sentences:
    searching: str
    answering: str
    quote: str
    quote_reference: str
    sources: str
    not_found: str
    outage: str
    failed: str
    no_tool: str
    disclaimer: str


_SENTENCES: dict[Locale, _Sentences] = {
    "zh": _Sentences(
        searching="需要先查询知识库。",
        answering="根据检索结果作答。",
        quote="知识库中的相关内容：",
        quote_reference="没有找到完全对应的文档，以下内容仅供参考：",
        sources="来源：",
        not_found="知识库中没有找到与该问题相关的内容。",
        outage="语义检索暂不可用，关键词也没有匹配到文档，暂时无法作答。这不代表知识库没有收录，请稍后再试。",
        failed="知识库检索失败，无法作答：",
        no_tool="没有可用的知识库检索工具，无法作答。",
        disclaimer="（内置摘录应答器：不是语言模型，以上为知识库原文摘录。）",
    ),
    "en": _Sentences(
        searching="The knowledge base has to be looked up first.",
        answering="The answer rests on the results.",
        quote="From the knowledge base:",
        quote_reference="No document matches exactly; this is related material:",
        sources="Sources: ",
        not_found="The knowledge base holds nothing relevant to this question.",
        outage=(
            "Semantic search is unavailable and no keyword matches, so no answer can be given at the moment. "
            "The knowledge base may well hold this: try again later."
        ),
        failed="The look-up failed, so no answer can be given: ",
        no_tool="There is no tool to look up the knowledge base, so no answer can be given.",
        disclaimer="(Embedded extractive responder, no language model: quoted from the knowledge base.)",
    ),
}


class ExtractiveLLM(CustomLLM):
    """A deterministic stand-in where no language model is configured.

    As the LLM of a ReAct agent it calls ``lookup_knowledge`` once with the user's question, then answers with
    the sections of the result that fit the question best, quoted, and their sources. Every answer says that no
    language model wrote it.

    :param locale: Language of the sentences around the quotation.
    """

    locale: Locale = Field(default="zh")

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex serializes."""
        return "ExtractiveLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Describe the responder as LlamaIndex describes a model."""
        return LLMMetadata(
            model_name="extractive",
            # Nothing is ever too long to be quoted from: chat memories must not drop what was retrieved.
            context_window=_CONTEXT_WINDOW,
            is_chat_model=True,
            is_function_calling_model=False,
        )

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Write the next ReAct step of a conversation.

        :param messages: System prompt with the tools, then the conversation with its observations.
        :param kwargs: ignored; LlamaIndex passes model options here.
        :returns: A call of the look-up tool, or an answer.
        """
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=self._next_step(messages)))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Write the next step, in one piece.

        :param messages: See :meth:`chat`.
        :param kwargs: ignored.
        :returns: A generator of one response.
        """

        def generate() -> ChatResponseGen:
            response = self.chat(messages)
            response.delta = response.message.content
            yield response

        return generate()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a bare prompt: nothing can be looked up there, and the responder says so.

        :param prompt: The prompt.
        :param formatted: ignored.
        :param kwargs: ignored.
        :returns: The sentence that no answer can be given.
        """
        sentences = _SENTENCES[self.locale]
        return CompletionResponse(text=f"{sentences.no_tool}\n{sentences.disclaimer}")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Answer a bare prompt, in one piece.

        :param prompt: See :meth:`complete`.
        :param formatted: ignored.
        :param kwargs: ignored.
        :returns: A generator of one response.
        """

        def generate() -> CompletionResponseGen:
            response = self.complete(prompt)
            response.delta = response.text
            yield response

        return generate()

    def _next_step(self, messages: Sequence[ChatMessage]) -> str:
        sentences = _SENTENCES[self.locale]
        texts = [message.content or "" for message in messages]
        question_at = _last_question(messages, texts)
        observed = [result for text in texts[question_at + 1 :] for result in _results_in(text)]
        if observed:
            # What a user says is no result, whatever it looks like.
            said = [message for message in messages[: max(question_at, 0)] if message.role == MessageRole.ASSISTANT]
            earlier = [result for message in said for result in _results_in(message.content or "")]
            return f"Thought: {sentences.answering}\nAnswer: {self._answer(texts[question_at], observed, earlier)}"
        failures = [text for text in texts[question_at + 1 :] if text.startswith(_OBSERVATION_PREFIX)]
        if failures and question_at >= 0:
            reason = failures[-1].removeprefix(_OBSERVATION_PREFIX).strip()
            answer = f"{sentences.failed}{reason}\n{sentences.disclaimer}"
            return f"Thought: {sentences.answering}\nAnswer: {answer}"
        tool = _lookup_tool(texts)
        if tool is None or question_at < 0:
            return f"Thought: {sentences.answering}\nAnswer: {sentences.no_tool}\n{sentences.disclaimer}"
        arguments = json_text({"query": texts[question_at].strip()[:_QUERY_CHARACTERS]})
        return f"Thought: {sentences.searching}\nAction: {tool}\nAction Input: {arguments}"

    def _answer(self, question: str, observed: list[LookupResult], earlier: list[LookupResult]) -> str:
        sentences = _SENTENCES[self.locale]
        found = [result for result in observed if result.found]
        if not found and _is_already_retrieved(observed[-1], self.locale):
            # The session already has what the question is about: it stands further up.
            found = [result for result in earlier if result.found][-1:]
        if not found:
            message = observed[-1].message or sentences.not_found
            is_outage = message == MESSAGES[self.locale].outage_nothing
            return f"{sentences.outage if is_outage else message}\n{sentences.disclaimer}"
        result = found[-1]
        texts = [part.content for part in (result.primary, result.supplement) if part is not None]
        is_reference = result.relevance_level is RelevanceLevel.REFERENCE
        outage = MESSAGES[self.locale].outage_only_exact
        lines = [
            sentences.quote_reference if is_reference else sentences.quote,
            "",
            without_react_labels(best_passages(question, texts)),
            "",
            *([outage] if outage in (result.message or "") else []),
            sentences.sources + ", ".join(result.sources),
            sentences.disclaimer,
        ]
        return "\n".join(lines)


def best_passages(question: str, texts: Sequence[str], *, limit: int = _QUOTED_CHARACTERS) -> str:
    """Choose the sections of some texts that share most with a question.

    Compared by their features: tokens of Latin letters and digits, and pairs of neighbouring CJK characters. A
    feature of the question counts by how rare it is among the sections (the logarithm of their number over the
    number of those that have it), and twice if it stands in the section's headings.

    :param question: The user's question.
    :param texts: Markdown texts, the most important first.
    :param limit: Most characters of the result.
    :returns: The best section, and a second one that is nearly as good, in their order and cut to the limit; the
        texts' beginning if nothing is shared.
    """
    wanted = _features(question)
    sections = [(text, section) for text in texts for section in split_sections(text)]
    bodies = [text[section.start : section.end].strip() for text, section in sections]
    shared = [wanted & _features(body) for body in bodies]
    weights = {
        feature: math.log((1 + len(shared)) / sum(feature in some for some in shared))
        for some in shared
        for feature in some
    }
    scores: list[float] = []
    for (text, section), features in zip(sections, shared, strict=True):
        in_headings = wanted & _features(" ".join(section.path)) & weights.keys()
        has_text = bool(text[section.text_start : section.end].strip())
        scores.append(sum(weights[feature] for feature in [*features, *in_headings]) if has_text else 0.0)
    best = max(scores, default=0.0)
    if best == 0.0:
        return cut("\n\n".join(texts), limit)
    ranked = sorted(range(len(scores)), key=lambda position: -scores[position])
    chosen = [position for position in ranked[:_MOST_SECTIONS] if scores[position] >= best * _NEARLY_AS_GOOD]
    if len(bodies[chosen[0]]) > limit - limit // 4:
        chosen = chosen[:1]
    first = cut(bodies[chosen[0]], limit)
    pieces = {chosen[0]: first} | {position: cut(bodies[position], limit - len(first)) for position in chosen[1:]}
    return "\n\n".join(pieces[position] for position in sorted(pieces))


_NEARLY_AS_GOOD = 0.7
_MOST_SECTIONS = 2


def _features(text: str) -> set[str]:
    normal = normal_form(text)
    tokens = {normal[start:end] for start, end in token_spans(normal)}
    pairs = {first + second for first, second in itertools.pairwise(normal) if is_cjk(first) and is_cjk(second)}
    return tokens | pairs


def _last_question(messages: Sequence[ChatMessage], texts: Sequence[str]) -> int:
    for position in range(len(messages) - 1, -1, -1):
        is_user = messages[position].role == MessageRole.USER
        if is_user and not texts[position].startswith(_OBSERVATION_PREFIX):
            return position
    return -1


def _results_in(text: str) -> list[LookupResult]:
    results = []
    # An answer comes last and quotes documents, which may hold anything.
    for match in _OBSERVATION.finditer(_ANSWER.split(text, maxsplit=1)[0]):
        try:
            results.append(LookupResult.model_validate(json.loads(match.group(1))))
        except ValueError:
            continue  # the observation of another tool
    return results


def _is_already_retrieved(result: LookupResult, locale: Locale) -> bool:
    beginning = MESSAGES[locale].already_retrieved.partition("{")[0]
    return result.message is not None and result.message.startswith(beginning)


def _lookup_tool(texts: Sequence[str]) -> str | None:
    names = [name for text in texts for name in _TOOL_NAME.findall(text)]
    return _LOOKUP_TOOL if _LOOKUP_TOOL in names else None
