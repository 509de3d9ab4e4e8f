"""The prompts, one Markdown file each, read as package resources."""

from importlib.resources import files
from typing import Literal

_NAMES = {"zh": "chat-executor-prompt.md", "en": "chat-executor-prompt.en.md"}


def executor_prompt(locale: Literal["zh", "en"] = "zh") -> str:
    """Read the executor's prompt.

    :param locale: language.
    :returns: A template with the fields ``tool_desc`` and ``tool_names``; literal braces are doubled.
    """
    return files("knowledge_lookup.agents.prompts").joinpath(_NAMES[locale]).read_text(encoding="utf-8")
