"""Spans and events for LlamaIndex's instrumentation, which cost next to nothing while nobody listens.

LlamaIndex's own decorator takes some 20 µs a call whether or not a tracer is attached, as much as an exact match takes.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import NullEventHandler
from llama_index_instrumentation.span_handlers import NullSpanHandler

from knowledge_lookup.retrievers.keyword_match import KeywordMatches
from knowledge_lookup.retrievers.milvus_rows import Hit

Method = TypeVar("Method", bound=Callable[..., Any])

dispatcher = get_dispatcher("knowledge_lookup")
_ROOT = dispatcher.root
_SILENT = frozenset({NullEventHandler, NullSpanHandler})
"""What LlamaIndex attaches by itself."""

_NAMED_DOCUMENTS = 10


class KeywordMatchEvent(BaseEvent):
    """The exact match (L0) is done.

    :param match_count: Number of matching documents.
    :param decisive: Whether the match settles the query, so that semantic search isn't asked.
    :param documents: Paths of the first ten of them, best first.
    :param terms: Terms of the best one that the query has.
    """

    match_count: int
    decisive: bool
    documents: list[str]
    terms: list[str]

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name in a trace."""
        return "KeywordMatchEvent"

    @classmethod
    def of(cls, matches: KeywordMatches) -> "KeywordMatchEvent":
        """Make the event of a match.

        :param matches: The outcome.
        :returns: The event.
        """
        return cls(
            match_count=matches.match_count,
            decisive=matches.decisive,
            documents=[match.entry.file_path for match in matches.matches[:_NAMED_DOCUMENTS]],
            terms=list(matches.matches[0].terms) if matches.matches else [],
        )


class SemanticSearchEvent(BaseEvent):
    """A search by meaning, or by meaning and words, is done (L1).

    :param hits: Number of passages found by meaning.
    :param hits_by_words: Number of passages found by words; 0 where words aren't searched.
    :param nearest_distance: Squared L2 distance of the nearest passage, 0 to 4, smaller is closer; None without hits.
    :param embedding_known: Whether the query's embedding was remembered, so that the model wasn't asked.
    """

    hits: int
    hits_by_words: int
    nearest_distance: float | None
    embedding_known: bool

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name in a trace."""
        return "SemanticSearchEvent"

    @classmethod
    def of(cls, hits: Sequence[Hit], *, hits_by_words: int = 0, embedding_known: bool) -> "SemanticSearchEvent":
        """Make the event of a search.

        :param hits: What was found by meaning, nearest first.
        :param hits_by_words: Number of passages found by words.
        :param embedding_known: Whether the query's embedding was remembered.
        :returns: The event.
        """
        nearest = hits[0].distance if hits else None
        return cls(
            hits=len(hits), hits_by_words=hits_by_words, nearest_distance=nearest, embedding_known=embedding_known
        )


def is_traced() -> bool:
    """Tell whether a tracer listens.

    :returns: True if a handler that does anything is attached to the root dispatcher or to ``knowledge_lookup``.
    """
    return (
        _listen(_ROOT.span_handlers)
        or _listen(_ROOT.event_handlers)
        or _listen(dispatcher.span_handlers)
        or _listen(dispatcher.event_handlers)
    )


def traced(method: Method) -> Method:
    """Make a span of each call of a method while a tracer listens; its name is ``Class.method``.

    What is called inside it, in this thread or in one that gets a copy of the context, is below it. An exception is
    marked on the span and goes on.

    :param method: A method, sync or async.
    :returns: The method.
    """
    spanned: Any = dispatcher.span(method)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def acall(self: object, *args: Any, **kwargs: Any) -> Any:
            if is_traced():
                return await spanned.__get__(self, type(self))(*args, **kwargs)
            return await method(self, *args, **kwargs)

        return cast(Method, acall)

    @functools.wraps(method)
    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return spanned.__get__(self, type(self))(*args, **kwargs)
        return method(self, *args, **kwargs)

    return cast(Method, call)


def report_retrieval(query: str, nodes: Sequence[NodeWithScore]) -> None:
    """Send LlamaIndex's event of a finished retrieval while a tracer listens, with the nodes' texts left out.

    :param query: What was asked.
    :param nodes: What was found.
    """
    report(lambda: RetrievalEndEvent(str_or_query_bundle=query, nodes=[_without_text(scored) for scored in nodes]))


def report(event: Callable[[], BaseEvent]) -> None:
    """Send an event of the present span while a tracer listens.

    :param event: Makes the event.
    """
    if is_traced():
        dispatcher.event(event())


def _without_text(scored: NodeWithScore) -> NodeWithScore:
    node = scored.node
    return NodeWithScore(node=TextNode(id_=node.node_id, metadata=node.metadata), score=scored.score)


def _listen(handlers: Sequence[object]) -> bool:
    for handler in handlers:  # noqa: SIM110 - any() takes three times as long, and this is asked ten times a look-up
        if type(handler) not in _SILENT:
            return True
    return False
