"""The arguments of a tool in what a model wrote as its input: JSON, nearly JSON, code, or a bare text."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llama_index.core.tools import BaseTool

from knowledge_lookup.agents.json_answer import read_json_answer, text_of

_MOST_CHARACTERS = 4_000
_STRICT = json.JSONDecoder(strict=False)
_KEY = re.compile(r"([\w-]{1,40})[\"'”’]?\s*[:：]")
_FENCE = re.compile(r"^[ \t]*```\w*[ \t]*$|```", re.MULTILINE)
_ALIASES = ("input", "keyword", "keywords", "question", "text", "search", "q", "关键词", "问题", "查询")
_SAYS_NONE = ("none", "null", "n/a", "无")


def read_tool_input(text: str, tool: BaseTool) -> dict[str, Any] | None:
    """Read the arguments of a tool.

    The first object counts. What the tool doesn't have is dropped. A tool with one required parameter also gets a
    bare text, and a text under another name, such as ``{"input": "..."}``. LlamaIndex's own reader is not used: it
    takes everything up to the last bracket, and what it can't read is an empty input.

    :param text: What was written as input; what comes after 4,000 characters is not read.
    :param tool: The tool.
    :returns: The arguments by parameter; None if a required one is missing.
    """
    parameters = tool.metadata.get_parameters_dict()
    required = required_parameters(tool)
    text = _FENCE.sub(" ", text[:_MOST_CHARACTERS]).strip()
    given = _object_in(text)
    if given is None:
        given = _keyed(text, parameters["properties"]) or _bare(text, required)
    arguments = _fitting(given, parameters["properties"], required)
    return None if any(name not in arguments for name in required) else arguments


def required_parameters(tool: BaseTool) -> list[str]:
    """Name the parameters that a tool can't do without.

    :param tool: The tool.
    :returns: Their names, in the order of its schema.
    """
    return list(tool.metadata.get_parameters_dict().get("required", []))


def takes_text(schema: Mapping[str, Any]) -> bool:
    """Tell whether a parameter is a text.

    :param schema: Its JSON schema.
    :returns: True if a string is allowed.
    """
    return any(option.get("type") == "string" for option in (schema, *schema.get("anyOf", ())))


def _object_in(text: str) -> dict[str, Any] | None:
    if text.startswith('"'):
        # A string with the JSON in it.
        try:
            inner, _ = _STRICT.raw_decode(text)
        except ValueError:
            inner = ""
        text = inner if "{" in inner else text
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError):
        keys = list(dict.fromkeys(_KEY.findall(text, start)))
        return read_json_answer(text[start:], keys=keys) if keys else None
    return value if isinstance(value, dict) else None


def _keyed(text: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``query="..."`` and ``query: ...``, whatever brackets and quotes are missing."""
    given = {}
    for name in properties:
        match = re.search(rf"(?<![\w-]){re.escape(name)}[\"'”’]?[ \t]*[:：=][ \t]*([^\n]+)", text, re.IGNORECASE)
        if match is not None:
            given[name] = _unquoted(match[1])
    return given


def _bare(text: str, required: list[str]) -> dict[str, Any]:
    first_line = next((line for line in text.split("\n") if line.strip()), "")
    return {required[0]: _unquoted(first_line)} if len(required) == 1 else {}


def _unquoted(text: str) -> str:
    quoted = re.match(r"[\s({\[]*(?:\"([^\"]*)\"|'([^']*)'|“([^”]*)”|`([^`]*)`)", text)
    if quoted is not None:
        return next(group for group in quoted.groups() if group is not None)
    return text.strip().strip("(){}[]\"'“”` ,;")


def _fitting(given: Mapping[str, Any], properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    names = {_squeezed(name): name for name in properties}
    arguments: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in given.items():
        name = names.get(_squeezed(key))
        if name is None:
            others[key] = value
            continue
        fitted = _fitted(value, properties[name])
        if fitted is not None:
            arguments.setdefault(name, fitted)
    if len(required) == 1 and required[0] not in arguments:
        nested = next((value for value in others.values() if isinstance(value, dict)), None)
        if nested is not None:
            return (
                _fitting(
                    {key: value for key, value in nested.items() if not isinstance(value, dict)}, properties, required
                )
                | arguments
            )
        text = _text_by_another_name(others)
        if text is not None and takes_text(properties[required[0]]):
            arguments[required[0]] = text
    return arguments


def _text_by_another_name(others: Mapping[str, Any]) -> str | None:
    texts = {
        key.casefold(): _fitted(value, {"type": "string"})
        for key, value in others.items()
        if isinstance(value, str | list)
    }
    said = {key: text for key, text in texts.items() if text is not None}
    if len(said) == 1:
        return str(next(iter(said.values())))
    return next((said[alias] for alias in _ALIASES if alias in said), None)


def _fitted(value: Any, schema: Mapping[str, Any]) -> Any:
    if not takes_text(schema):
        return value
    text = value.strip() if isinstance(value, str) else text_of(value, limit=_MOST_CHARACTERS)
    # Escapes can make half an emoji, which can't be sent or stored.
    text = text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text if any(char.isalnum() for char in text) and text.casefold() not in _SAYS_NONE else None


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
