"""What a run shows the model instead of an output that can't be followed, and the steps that stand for it.

The sentences hold no example of their own: the form that is shown calls the tool with the user's question, since small
models copy what they see.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.agent.react.types import ActionReasoningStep, BaseReasoningStep, ObservationReasoningStep
from llama_index.core.tools import BaseTool

from knowledge_lookup.agents.language_model import LanguageModelError, LanguageModelTimeoutError, one_line
from knowledge_lookup.agents.prompts import executor_prompt
from knowledge_lookup.agents.react_output_parser import Problem, ReactOutput
from knowledge_lookup.agents.react_tool_input import required_parameters
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.text_cut import cut

_MOST_OF_THE_QUESTION = 100
_FORM_LINE = re.compile(r"^(?:Thought|Answer):[ \t]*(.+)$", re.MULTILINE)
_CLAUSE_ENDS = re.compile(r"[，,。.；;：:、“”\"'`<>()（）]+")
_OTHER_TEMPLATES = "Answer: [your answer here]\nAnswer: 给用户的最终回答，注明来源文件\n"
"""What stands in the place of the answer in other ReAct prompts, by which models are trained too."""
_SOURCES = re.compile(r"[^\s：:，,、]+\.md\b|来源|\bsources?\b")


@dataclass(frozen=True, slots=True)
class _Sentences:
    problems: Mapping[Problem, str]
    repeated: str
    to_search: str
    to_answer: str
    search_thought: str
    closing: str
    no_answer: str
    cut_off: str
    model_failed: str
    model_too_slow: str
    retrieved_from: str
    comma: str


_SENTENCES: Mapping[Locale, _Sentences] = {
    "zh": _Sentences(
        problems={
            Problem.EMPTY: "上一条输出是空的。",
            Problem.NO_STEP: "上一条输出既没有调用工具，也没有给出 Answer。",
            Problem.TEMPLATE_WORDS: "上一条输出照抄了格式里的说明或示例，没有实际内容。",
            Problem.UNKNOWN_TOOL: "没有名为“{tool}”的工具，可用的工具：{tools}。",
            Problem.INCOMPLETE_INPUT: "Action Input 缺少参数 {required}。",
        },
        repeated="这个问题已经检索过，结果见上文，不再检索。请直接作答。",
        to_search="检索时这样输出：\nThought: {thought}\nAction: {tool}\nAction Input: {input}",
        to_answer="作答时这样输出：\nThought: 依据上文哪些结果\nAnswer: 写给用户的答案正文",
        search_thought="需要检索知识库。",
        closing=(
            "检索次数已用完，不能再调用工具。请仅根据上文已有的检索结果作答，并说明哪些信息没有查到。"
            "按格式输出：\nThought: 说明依据\nAnswer: 完整的答案"
        ),
        no_answer="在允许的步数内没有得出答案。",
        cut_off="（回答达到模型的长度上限，可能不完整。）",
        model_failed="语言模型调用失败（{reason}），没有得出答案。",
        model_too_slow="语言模型在 {seconds:g} 秒内没有响应，没有得出答案。",
        retrieved_from="检索到的内容来自：{sources}",
        comma="、",
    ),
    "en": _Sentences(
        problems={
            Problem.EMPTY: "The last output was empty.",
            Problem.NO_STEP: "The last output neither called a tool nor gave an Answer.",
            Problem.TEMPLATE_WORDS: "The last output only copied the words or the example of the format.",
            Problem.UNKNOWN_TOOL: 'There is no tool named "{tool}"; the tools are: {tools}.',
            Problem.INCOMPLETE_INPUT: "The Action Input lacks the parameter {required}.",
        },
        repeated="This question has been searched already; the results stand above. Don't search again, answer.",
        to_search="To search, write:\nThought: {thought}\nAction: {tool}\nAction Input: {input}",
        to_answer="To answer, write:\nThought: which results above it rests on\nAnswer: the text of the answer",
        search_thought="The knowledge base has to be searched.",
        closing=(
            "No further tool calls are possible. Answer from the results above alone, and say what was not found. "
            "Use the format:\nThought: what the answer rests on\nAnswer: the complete answer"
        ),
        no_answer="No answer was reached within the allowed number of steps.",
        cut_off="(The answer reached the model's length limit and may be incomplete.)",
        model_failed="The language model failed ({reason}); no answer was reached.",
        model_too_slow="The language model did not respond within {seconds:g} s; no answer was reached.",
        retrieved_from="What was retrieved comes from: {sources}",
        comma=", ",
    ),
}


class ToolCallStep(ActionReasoningStep):
    """A tool call in the form that the prompt asks for; LlamaIndex's own shows the input as a Python dict."""

    def get_content(self) -> str:
        """Return the step as the model should have written it."""
        arguments = json.dumps(self.action_input, ensure_ascii=False, default=str)
        return f"Thought: {self.thought}\nAction: {self.action}\nAction Input: {arguments}"


class RejectedStep(BaseReasoningStep):
    """An output that wasn't followed.

    :param content: What is shown of it.
    """

    content: str

    def get_content(self) -> str:
        """Return what is shown of the output."""
        return self.content

    @property
    def is_done(self) -> bool:
        """Say that the run goes on."""
        return False


class CorrectionStep(ObservationReasoningStep):
    """What the model is told about a rejected output.

    :param problem: What was wrong; None for a look-up that was not made again.
    """

    problem: Problem | None


def tool_call_step(output: ReactOutput, locale: Locale) -> ToolCallStep:
    """Make the step of a tool call.

    :param output: A tool call.
    :param locale: Language of the thought where the model wrote none.
    :returns: The step.
    """
    thought = output.thought or _SENTENCES[locale].search_thought
    return ToolCallStep(thought=thought, action=output.tool, action_input=output.arguments)


def rejection(
    output: ReactOutput, problem: Problem, tools: Sequence[BaseTool], question: str, locale: Locale
) -> list[BaseReasoningStep]:
    """Make the steps for an output that can't be followed.

    :param output: The output.
    :param problem: What is wrong with it.
    :param tools: The tools of the run.
    :param question: The user's question; the form that is shown looks it up.
    :param locale: Language of the correction.
    :returns: What is shown of the output, and the correction: what was wrong and the right form.
    """
    sentences = _SENTENCES[locale]
    named = next((tool for tool in tools if tool.metadata.get_name() == output.tool), None) or next(iter(tools), None)
    said = sentences.problems[problem].format(
        tool=output.tool,
        tools=sentences.comma.join(tool.metadata.get_name() for tool in tools),
        required=sentences.comma.join(required_parameters(named)) if named is not None else "",
    )
    forms = []
    if named is not None:
        example = dict.fromkeys(required_parameters(named), cut(question, _MOST_OF_THE_QUESTION))
        forms.append(
            sentences.to_search.format(
                thought=sentences.search_thought,
                tool=named.metadata.get_name(),
                input=json.dumps(example, ensure_ascii=False),
            )
        )
    if problem not in (Problem.UNKNOWN_TOOL, Problem.INCOMPLETE_INPUT) or not forms:
        forms.append(sentences.to_answer)
    correction = CorrectionStep(observation="\n".join([said, *forms]), problem=problem)
    return [RejectedStep(content=_shown(output)), correction]


def repetition(output: ReactOutput, locale: Locale) -> list[BaseReasoningStep]:
    """Make the steps for a look-up that is not made again.

    :param output: The tool call.
    :param locale: Language of what the model is told.
    :returns: The call, and where its result stands.
    """
    sentences = _SENTENCES[locale]
    told = f"{sentences.repeated}{'' if locale == 'zh' else ' '}{sentences.to_answer}"
    return [
        RejectedStep(content=tool_call_step(output, locale).get_content()),
        CorrectionStep(observation=told, problem=None),
    ]


def closing_request(locale: Locale) -> str:
    """Ask for an answer without further tool calls.

    :param locale: Language.
    :returns: The text of the request.
    """
    return _SENTENCES[locale].closing


def no_answer(sources: Sequence[str], locale: Locale) -> str:
    """Say that a run reached no answer.

    :param sources: Where the content comes from that its look-ups delivered.
    :param locale: Language.
    :returns: One sentence, and a line with the sources if there are any.
    """
    return _with_sources(_SENTENCES[locale].no_answer, sources, locale)


def marked_cut_off(answer: str, locale: Locale) -> str:
    """Say below an answer that the model was stopped in the middle of it.

    :param answer: What there is of it.
    :param locale: Language.
    :returns: The answer and one sentence.
    """
    return f"{answer}\n{_SENTENCES[locale].cut_off}"


def model_failed(error: LanguageModelError, sources: Sequence[str], locale: Locale) -> str:
    """Say that the language model failed before it answered.

    :param error: Its failure.
    :param sources: Where the content comes from that the run's look-ups delivered.
    :param locale: Language.
    :returns: One sentence, and a line with the sources if there are any.
    """
    sentences = _SENTENCES[locale]
    if isinstance(error, LanguageModelTimeoutError):
        return _with_sources(sentences.model_too_slow.format(seconds=error.seconds), sources, locale)
    reason = str(error) if error.__cause__ is None else one_line(error.__cause__)
    return _with_sources(sentences.model_failed.format(reason=reason), sources, locale)


def _with_sources(sentence: str, sources: Sequence[str], locale: Locale) -> str:
    sentences = _SENTENCES[locale]
    named = [sentences.retrieved_from.format(sources=sentences.comma.join(sources))] if sources else []
    return "\n".join([sentence, *named])


def is_template(text: str, header: str) -> bool:
    """Tell whether a text is only the template's own words.

    The words are taken from the prompts and the sentences themselves, in both languages, so that they can't drift
    apart.

    :param text: An answer or a thought.
    :param header: The system prompt in use; the bundled ones always count.
    :returns: True if nothing but descriptions of the format is in it, with or without sources.
    """
    texts = [header, executor_prompt("zh"), executor_prompt("en"), _OTHER_TEMPLATES]
    for sentences in _SENTENCES.values():
        texts += [sentences.to_answer, sentences.closing]
    said = left = _SOURCES.sub(" ", normal_form(text))
    for phrase in _phrases(texts):
        left = left.replace(phrase, " ")
    return left != said and not any(char.isalnum() for char in left)


def _phrases(texts: Iterable[str]) -> list[str]:
    lines = {line for text in texts for line in _FORM_LINE.findall(text)}
    clauses = {clause for line in lines for clause in _CLAUSE_ENDS.split(line)}
    phrases = {_SOURCES.sub(" ", normal_form(phrase)).strip() for phrase in lines | clauses}
    return sorted(phrases - {""}, key=lambda phrase: (-len(phrase), phrase))


def _shown(output: ReactOutput) -> str:
    lines = [f"Thought: {output.thought}".rstrip()]
    if output.tool:
        lines += [f"Action: {output.tool}", f"Action Input: {output.input}".rstrip()]
    elif output.answer:
        lines.append(f"Answer: {output.answer}")
    return "\n".join(lines)
