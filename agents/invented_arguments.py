"""Arguments of a tool call that a model has from nowhere: the example of the prompt, sections that nobody named."""

import json
import re
from collections.abc import Mapping
from typing import Any

from knowledge_lookup.retrievers.markdown_sections import plain_heading
from knowledge_lookup.retrievers.normal_form import normal_form

_QUERY, _SECTION = "query", "section_title"
_EXAMPLE = re.compile(r"^Action Input:[ \t]*\{(\{.*\})\}[ \t]*$", re.MULTILINE)


def without_inventions(
    arguments: Mapping[str, Any], *, header: str, question: str, conversation: str
) -> dict[str, Any]:
    """Read a call's arguments as they are meant.

    The query of the prompt's example, of which nobody has spoken, stands for the user's question; a section that nobody
    has named is left out.

    :param arguments: The arguments.
    :param header: The system prompt in use, a template whose literal braces are doubled.
    :param question: The user's question.
    :param conversation: What user and tools have said.
    :returns: The arguments to call the tool with.
    """
    said = normal_form(conversation)

    def is_said(value: object) -> bool:
        return normal_form(str(value)) in said

    kept = dict(arguments)
    if _SECTION in kept:
        title = kept.pop(_SECTION)
        title = plain_heading(str(title[0] if isinstance(title, list) and title else title))
        if normal_form(title) and is_said(title):
            kept[_SECTION] = title
    examples = [example.get(_QUERY) for example in map(_json_of, _EXAMPLE.findall(header)) if isinstance(example, dict)]
    if kept.get(_QUERY) in examples and question.strip() and not is_said(kept[_QUERY]):
        kept[_QUERY] = question
    return kept


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
