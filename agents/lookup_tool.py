"""The look-up as tools that a LlamaIndex agent can call."""

# No `from __future__ import annotations` here: LlamaIndex recognizes the Context parameter by its annotation.
from typing import Any

from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.workflow import Context

from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.messages import MESSAGES

SESSION_ID_KEY = "session_id"
"""Where a workflow's ``Context`` store may name the session."""


class SessionFunctionTool(FunctionTool):
    """A ``FunctionTool`` that takes the workflow ``Context`` where there is one, and works without one.

    LlamaIndex's own raises when a tool with a ``Context`` parameter is called outside a workflow.
    """

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool; without a workflow the context is None."""
        return super().call(*args, **self._with_context(kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool; without a workflow the context is None."""
        return await super().acall(*args, **self._with_context(kwargs))

    def _with_context(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.ctx_param_name is None:
            return kwargs
        return {self.ctx_param_name: None, **kwargs}


def build_lookup_tool(lookup: KnowledgeLookup, *, session_id: str | None = None) -> FunctionTool:
    """Make the ``lookup_knowledge`` tool.

    The LLM gets the ``LookupResult`` as JSON; ``ToolOutput.raw_output`` is the object itself. The session is, in
    this order: the one given here, ``session_id`` in the store of the workflow's ``Context``, the one of
    ``session_context``; without any of them the memory doesn't apply.

    :param lookup: The look-up behind the tool.
    :param session_id: Binds the tool to a session.
    :returns: A tool for sync and async use, inside and outside a workflow.
    """

    def lookup_knowledge(query: str, ctx: Context, section_title: str | None = None) -> LookupResult:
        """Look up the knowledge base.

        :param query: 查询关键词或问题，错误码等保留原文 (keywords or a question; keep codes and names as they are)
        :param section_title: 一般省略；取 availableSections 中的章节时填 (usually left out; one of availableSections)
        """
        return lookup.lookup(_text(query), session_id, _text(section_title) or None)

    async def alookup_knowledge(query: str, ctx: Context, section_title: str | None = None) -> LookupResult:
        """Look up the knowledge base.

        :param query: See the sync twin
        :param section_title: See the sync twin
        """
        return await lookup.alookup(_text(query), await _session_of(ctx, session_id), _text(section_title) or None)

    return SessionFunctionTool.from_defaults(
        fn=lookup_knowledge,
        async_fn=alookup_knowledge,
        name="lookup_knowledge",
        description=MESSAGES[lookup.locale].lookup_description,
    )


def build_search_doc_tool(search: KnowledgeLookup, *, session_id: str | None = None) -> FunctionTool:
    """Make the ``search_doc`` tool: semantic search only, through the same memory and recorder.

    :param search: A look-up whose retriever has no keywords.
    :param session_id: See :func:`build_lookup_tool`.
    :returns: A tool for sync and async use, inside and outside a workflow.
    """

    def search_doc(query: str, ctx: Context) -> LookupResult:
        """Search the knowledge base by meaning.

        :param query: 用自然语言描述要查找的内容 (what to look for, in natural language)
        """
        return search.lookup(_text(query), session_id)

    async def asearch_doc(query: str, ctx: Context) -> LookupResult:
        """Search the knowledge base by meaning.

        :param query: See the sync twin
        """
        return await search.alookup(_text(query), await _session_of(ctx, session_id))

    return SessionFunctionTool.from_defaults(
        fn=search_doc,
        async_fn=asearch_doc,
        name="search_doc",
        description=MESSAGES[search.locale].search_description,
    )


async def _session_of(ctx: Context | None, bound: str | None) -> str | None:
    if bound is not None or ctx is None:
        return bound
    named = await ctx.store.get(SESSION_ID_KEY, default=None)
    return None if named is None else str(named)


def _text(argument: Any) -> str:
    """Take what a model passes, whatever its type: nothing, and what it writes for nothing, is empty."""
    if isinstance(argument, list):
        argument = argument[0] if argument else None
    text = "" if argument is None else str(argument)
    return "" if text.strip().lower() in _NOTHING else text


_NOTHING = ("null", "none")
