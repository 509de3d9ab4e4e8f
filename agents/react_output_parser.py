"""What a model means by one ReAct output, however it is written.

LlamaIndex's own parser takes well-formed output only: a full-width colon, a code fence, a missing label or a second
action costs a step or the run, and text after an action, such as a made-up observation, gets into its input.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from llama_index.core.tools import BaseTool

from knowledge_lookup.agents.json_answer import read_json_answer
from knowledge_lookup.agents.react_labels import COLON, LINE_LABEL
from knowledge_lookup.agents.react_tool_input import read_tool_input, required_parameters
from knowledge_lookup.retrievers.text_cut import cut

_MOST_CHARACTERS = 50_000
_MOST_OF_A_NAME = 60
_MOST_OF_A_LINE = 300
_END_OF_REASONING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_START_OF_REASONING = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_FENCE = "```"
_FENCE_LINE = re.compile(r"^[ \t]*```[^\n]*$", re.MULTILINE)
_ONE_FENCE = re.compile(r"\s*```[^\n`]*\n((?:(?!```).)*)```\s*", re.DOTALL)
_INLINE_LABEL = re.compile(rf"(?<![A-Za-z0-9_])(Thought|Action Input|Action|Observation|(?:Final )?Answer){COLON}")
_NO_TOOL = ("none", "null", "na", "no", "noaction", "notool", "无", "没有")
_NO_TOOL_BEGINNINGS = ("无需", "不需要", "不再")
_ANSWERING = ("answer", "finalanswer", "finish", "回答", "答案", "作答", "最终答案")
_TOOL_CALL = re.compile(r".*<tool_call>", re.DOTALL)
_NAME_KEYS = ("name", "tool", "tool_name", "action")
_INPUT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_ANSWER_KEYS = ("answer", "final_answer")


class Problem(StrEnum):
    """Why an output is neither a tool call nor an answer."""

    EMPTY = "empty"
    NO_STEP = "no_step"
    TEMPLATE_WORDS = "template_words"
    UNKNOWN_TOOL = "unknown_tool"
    INCOMPLETE_INPUT = "incomplete_input"


@dataclass(frozen=True, slots=True)
class ReactOutput:
    """One output: a tool call, an answer, or a problem.

    :param thought: The thought, on one line of at most 300 characters; may be empty.
    :param answer: The answer, as written; empty if the output is none.
    :param tool: Name of the tool, or what was written instead of one; empty if no tool is called.
    :param arguments: The tool's arguments, all of them known to the tool; empty with a problem.
    :param input: What was written as the tool's input, cut.
    :param problem: Why the output can't be followed; None if it can.
    """

    thought: str = ""
    answer: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    input: str = ""
    problem: Problem | None = None


def read_react_output(
    text: str, tools: Sequence[BaseTool], *, is_template: Callable[[str], bool] = lambda words: False
) -> ReactOutput:
    """Read what a model put out as one step.

    The first action or answer counts; what follows an action is made up by the model and dropped. Text without any
    label is an answer, unless it is a tool call in JSON or as a function.

    :param text: The output; what comes after 50,000 characters is not read.
    :param tools: The tools that can be called.
    :param is_template: Tells whether words are only those of the prompt's template.
    :returns: Call, answer or problem; nothing raises.
    """
    return _Reader(_cleaned(text[:_MOST_CHARACTERS]), tools, is_template).read()


class _Mark(NamedTuple):
    label: str
    start: int
    end: int


class _Named(NamedTuple):
    tool: BaseTool
    before: str
    after: str


class _Reader:
    def __init__(self, text: str, tools: Sequence[BaseTool], is_template: Callable[[str], bool]) -> None:
        self._text = text
        self._tools = tools
        self._is_template = is_template
        self._marks = _marks_in(text)

    def read(self) -> ReactOutput:
        if not _says_something(self._text):
            return ReactOutput(problem=Problem.EMPTY)
        unusable: ReactOutput | None = None
        for at, mark in enumerate(self._marks):
            output: ReactOutput | None = None
            if mark.label == "answer":
                output = self._answer(at)
            elif mark.label == "action":
                output = self._action(at)
            elif mark.label == "input" and self._label(at - 1) != "action" and len(self._tools) == 1:
                output = self._call(self._tools[0], self._body(at))
            if output is not None and output.problem not in (Problem.NO_STEP, Problem.TEMPLATE_WORDS):
                return replace(output, thought=self._thought())
            # A model that copies the template may well go on with what it means.
            unusable = unusable or output
        return self._unlabelled() if unusable is None else replace(unusable, thought=self._thought())

    def _answer(self, at: int) -> ReactOutput:
        start = self._marks[at].end
        draft = self._answered(self._text[start : self._end_of_answer(at, or_draft=True)])
        if draft.problem is not None:
            return draft
        answer = self._text[start : self._end_of_answer(at)].strip()
        if self._text[:start].count(_FENCE) % 2 and answer.endswith(_FENCE):
            answer = answer.removesuffix(_FENCE)
        return self._answered(answer)

    def _end_of_answer(self, at: int, *, or_draft: bool = False) -> int:
        """Find where another round begins; single labels may belong to the answer, as documents have such lines."""
        for later in range(at + 1, len(self._marks)):
            label = self._label(later)
            is_round = label == "thought" or (label == "action" and self._label(later + 1) == "input")
            if is_round or (or_draft and label == "answer"):
                return self._marks[later].start
        return len(self._text)

    def _answered(self, text: str) -> ReactOutput:
        answer = text.strip()
        if not _says_something(answer):
            return ReactOutput(problem=Problem.NO_STEP)
        return ReactOutput(answer=answer, problem=Problem.TEMPLATE_WORDS if self._is_template(answer) else None)

    def _action(self, at: int) -> ReactOutput | None:
        has_input = self._label(at + 1) == "input"
        given = self._body(at + 1) if has_input else ""
        body = _FENCE_LINE.sub("", self._body(at)).strip()
        written = body.partition("\n")[0].strip(" `*\"'“”<>[]()")
        name = _squeezed(written)
        is_tool = name in [_squeezed(tool.metadata.get_name()) for tool in self._tools]
        if not name and has_input and len(self._tools) == 1:
            return self._call(self._tools[0], given)
        if name in _ANSWERING and not is_tool:
            return self._answered(_text_in(given))
        if not is_tool and (not name or name in _NO_TOOL or name.startswith(_NO_TOOL_BEGINNINGS)):
            return None
        named = _find_tool(body, self._tools)
        if named is not None:
            bracket = re.search(r"[({]", named.after)
            if not has_input and bracket is not None:
                given = named.after[bracket.start() :]
            return self._call(named.tool, given)
        if has_input or any(mark.label == "thought" for mark in self._marks[:at]):
            return ReactOutput(tool=written[:_MOST_OF_A_NAME], input=_line(given), problem=Problem.UNKNOWN_TOOL)
        return None  # a line of a text that happens to begin with the word

    def _call(self, tool: BaseTool, given: str) -> ReactOutput:
        output = ReactOutput(tool=tool.metadata.get_name(), input=_line(given))
        arguments = read_tool_input(given, tool)
        if arguments is None:
            return replace(output, problem=Problem.INCOMPLETE_INPUT)
        return replace(output, arguments=arguments)

    def _unlabelled(self) -> ReactOutput:
        thought, rest = "", self._text
        if self._marks:
            before = _FENCE_LINE.sub("", self._text[: self._marks[0].start])
            thought_at = next((at for at, mark in enumerate(self._marks) if mark.label == "thought"), None)
            if thought_at is None:
                # A text with a line like "Observation: ..." is an answer; an observation alone is made up.
                rest = self._text if _says_something(before) else ""
            else:
                thought, _, after = self._body(thought_at).strip().partition("\n")
                rest = before if _says_something(before) else after
        rest = _without_fence(rest).strip()
        output = self._unlabelled_call(rest) or self._answered(rest)
        return replace(output, thought=_line(thought))

    def _unlabelled_call(self, text: str) -> ReactOutput | None:
        """Read a call written as models do that were trained on function calls, or as code."""
        text = _TOOL_CALL.sub("", text).replace("</tool_call>", "").strip()
        named = _find_tool(text, self._tools)
        if named is not None and not _says_something(named.before):
            code = named.after.strip(" `;\n")
            if code.startswith("(") and code.endswith(")"):
                return self._call(named.tool, code)
        if not text.startswith("{"):
            return None
        members = read_json_answer(text, keys=(*_NAME_KEYS, *_INPUT_KEYS, *_ANSWER_KEYS)) or {}
        for key in _NAME_KEYS:
            named = _find_tool(str(members.get(key, "")), self._tools)
            if named is not None:
                given = next((members[key] for key in _INPUT_KEYS if key in members), text)
                return self._call(named.tool, given if isinstance(given, str) else json.dumps(given))
        for key in _ANSWER_KEYS:
            if isinstance(members.get(key), str):
                return self._answered(members[key])
        required = required_parameters(self._tools[0]) if len(self._tools) == 1 else []
        return self._call(self._tools[0], text) if required and read_json_answer(text, keys=required) else None

    def _thought(self) -> str:
        for at, mark in enumerate(self._marks):
            if mark.label == "thought":
                return _line(self._body(at))
        return _line(self._text[: self._marks[0].start])

    def _label(self, at: int) -> str:
        return self._marks[at].label if 0 <= at < len(self._marks) else ""

    def _body(self, at: int) -> str:
        end = self._marks[at + 1].start if at + 1 < len(self._marks) else len(self._text)
        return self._text[self._marks[at].end : end]


def _cleaned(text: str) -> str:
    # Half an emoji can't be sent back to the model.
    text = text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace").replace("\r\n", "\n")
    # The opening tag may be missing: some chat templates put it into the prompt.
    ends = [match.end() for match in _END_OF_REASONING.finditer(text)]
    text = text[ends[-1] :] if ends else text
    unfinished = _START_OF_REASONING.match(text)
    if unfinished is not None:
        text = text[unfinished.end() :]
        if not any(mark.label in _DECISIVE for mark in _marks_in(text)):
            return ""
    return _without_fence(text)


_DECISIVE = ("action", "input", "answer")


def _marks_in(text: str) -> list[_Mark]:
    marks = [_mark(match) for match in LINE_LABEL.finditer(text)]
    if any(mark.label in _DECISIVE for mark in marks):
        return marks
    return [_mark(match) for match in _INLINE_LABEL.finditer(text)] or marks


def _mark(match: re.Match[str]) -> _Mark:
    label = _squeezed(match[1])
    short = {"actioninput": "input", "finalanswer": "answer"}.get(label, label)
    return _Mark(short, match.start(), match.end())


def _find_tool(text: str, tools: Sequence[BaseTool]) -> _Named | None:
    """Find the first tool that a text names, in whatever case and with whatever between the parts of its name."""
    found: list[tuple[int, int, BaseTool]] = []
    for tool in tools:
        parts = re.findall(r"[^\W_]+", tool.metadata.get_name())
        pattern = r"(?<![A-Za-z0-9_])" + r"[\W_]*".join(map(re.escape, parts)) + r"(?![A-Za-z0-9_])"
        match = re.search(pattern, text, re.IGNORECASE)
        if match is not None:
            found.append((match.start(), -match.end(), tool))
    if not found:
        return None
    start, end, tool = min(found, key=lambda item: item[:2])
    return _Named(tool, text[:start], text[-end:])


def _text_in(given: str) -> str:
    """Take the text out of the input of an action that is no tool: ``{"answer": "..."}`` or the text itself."""
    members = read_json_answer(given, keys=(*_ANSWER_KEYS, *_INPUT_KEYS, "text", "content")) or {}
    return next((value for value in members.values() if isinstance(value, str)), given.strip().strip('"“”'))


def _without_fence(text: str) -> str:
    fence = _ONE_FENCE.fullmatch(text)
    return text if fence is None else fence[1]


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _line(text: str) -> str:
    return cut(" ".join(_FENCE_LINE.sub("", text).split()), _MOST_OF_A_LINE)


def _says_something(text: str) -> bool:
    return any(char.isalnum() for char in text)
