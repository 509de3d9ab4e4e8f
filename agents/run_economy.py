"""When a run of the executor has searched enough: look-ups that only repeat, and steps that lead nowhere."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.agent.react.types import BaseReasoningStep
from llama_index.core.agent.workflow import ToolCallResult

from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.react_corrections import CorrectionStep
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.search_terms import SearchedText, query_terms

_QUERY, _SECTION = "query", "section_title"
_MOST_OF_A_KIND = 2
_ENOUGH_LOOKUPS = 3
_SEPARATORS = "_.-/:"


class RunSoFar:
    """What a run has asked its tools, and what came back.

    After a ``PRECISE`` result, or three look-ups, another one is made only for a part of the user's question that is
    still open: its query names a code of the question that no look-up has named yet, or at least half of its terms
    stand in the question and neither in an earlier query nor in what was delivered. So "ERR_TIMEOUT and ERR_LIMIT" may
    be looked up one by one, while new words for what was found are not looked up. After a ``PRECISE`` result a section
    is looked up if the question names something of its title.

    :param question: The user's question.
    :param calls: The results of the run's tool calls, in order.
    """

    def __init__(self, question: str, calls: Sequence[ToolCallResult]) -> None:
        self._question = SearchedText(question)
        self._calls = calls

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of what the run's look-ups delivered, each once."""
        results = [_result_of(call) for call in self._calls]
        return tuple(dict.fromkeys(source for result in results if result is not None for source in result.sources))

    def is_repeated(self, tool_name: str, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a look-up would only repeat what the run has.

        :param tool_name: The tool.
        :param arguments: Its arguments.
        :returns: True for a query that the tool has answered in this run, and for a look-up of what is settled.
        """
        results = [(call, _result_of(call)) for call in self._calls if call.tool_name == tool_name]
        looked_up = [(call, result) for call, result in results if result is not None]
        if not looked_up or _QUERY not in arguments:
            return False
        if any(_same(arguments, call.tool_kwargs) for call, _ in looked_up):
            return True
        is_precise = any(result.relevance_level is RelevanceLevel.PRECISE for _, result in looked_up)
        is_settled = len(looked_up) >= _ENOUGH_LOOKUPS or (is_precise and not self._names(arguments.get(_SECTION)))
        return is_settled and not self._asks_for_more(str(arguments[_QUERY]), self._calls)

    def is_stuck(self, reasoning: Sequence[BaseReasoningStep]) -> bool:
        """Tell whether the run makes no progress any more.

        :param reasoning: Its steps.
        :returns: True if the model did the same wrong thing twice, or twice looked up what the run had or what had not
            been found.
        """
        wrong = Counter(step.problem for step in reasoning if isinstance(step, CorrectionStep))
        idle = wrong.pop(None, 0) + sum(self._was_idle(at) for at in range(len(self._calls)))
        return idle >= _MOST_OF_A_KIND or any(count >= _MOST_OF_A_KIND for count in wrong.values())

    def _names(self, section_title: object) -> bool:
        """Tell whether the question names something of a section's title."""
        return section_title is not None and any(map(self._question.contains, query_terms(str(section_title))))

    def _was_idle(self, at: int) -> bool:
        call, result = self._calls[at], _result_of(self._calls[at])
        if at == 0 or not (call.tool_output.is_error or (result is not None and not result.found)):
            return False
        return not self._asks_for_more(_query_of(call), self._calls[:at])

    def _asks_for_more(self, query: str, earlier: Sequence[ToolCallResult]) -> bool:
        terms = query_terms(query)
        named = [SearchedText(_query_of(call)) for call in earlier]
        still_open = [
            term for term in terms if self._question.contains(term) and not any(text.contains(term) for text in named)
        ]
        if any(_is_code(term) for term in still_open):
            return True
        given = [SearchedText(text) for call in earlier for text in _texts_of(call)]
        unseen = [term for term in still_open if not any(text.contains(term) for text in given)]
        return bool(unseen) and 2 * len(unseen) >= len(terms)


def _result_of(call: ToolCallResult) -> LookupResult | None:
    result = call.tool_output.raw_output
    return result if isinstance(result, LookupResult) else None


def _query_of(call: ToolCallResult) -> str:
    return str(call.tool_kwargs.get(_QUERY, ""))


def _texts_of(call: ToolCallResult) -> list[str]:
    result = _result_of(call)
    parts = () if result is None else (result.primary, result.supplement)
    return [part.content for part in parts if part is not None]


def _same(arguments: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return {name: normal_form(str(value)) for name, value in arguments.items()} == {
        name: normal_form(str(value)) for name, value in others.items()
    }


def _is_code(term: str) -> bool:
    return any(char.isdigit() or char in _SEPARATORS for char in term)
