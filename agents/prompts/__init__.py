"""The prompts, one Markdown file each, read as package resources."""

from importlib.resources import files
from typing import Literal

PromptName = Literal[
    "chat-answer-prompt",
    "chat-executor-prompt",
    "chat-planner-domains",
    "chat-planner-prompt",
    "document-fields-prompt",
    "domain-prompt",
]


def read_prompt(name: PromptName, locale: Literal["zh", "en"] = "zh") -> str:
    """Read a prompt.

    :param name: Its name.
    :param locale: language.
    :returns: The text of the file.
    """
    file_name = f"{name}.md" if locale == "zh" else f"{name}.{locale}.md"
    return files("knowledge_lookup.agents.prompts").joinpath(file_name).read_text(encoding="utf-8")


def executor_prompt(locale: Literal["zh", "en"] = "zh") -> str:
    """Read the executor's prompt.

    :param locale: language.
    :returns: A template with the fields ``tool_desc`` and ``tool_names``; literal braces are doubled.
    """
    return read_prompt("chat-executor-prompt", locale)
