"""The action memory, the look-up with its result, the tools, the executor, and the planner."""

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.executor import KnowledgeExecutor, build_executor
from knowledge_lookup.agents.extractive_llm import ExtractiveLLM
from knowledge_lookup.agents.in_memory_store import InMemoryActionMemoryStore
from knowledge_lookup.agents.knowledge_lookup import KnowledgeLookup
from knowledge_lookup.agents.lookup_result import (
    Alternative,
    LookupResult,
    PassageSpan,
    PrimaryResult,
    SupplementResult,
)
from knowledge_lookup.agents.lookup_tool import build_lookup_tool, build_search_doc_tool
from knowledge_lookup.agents.plan_and_execute import PlanAndExecute, PlanReady
from knowledge_lookup.agents.planner import Planner, PlanStep, build_planner
from knowledge_lookup.agents.retrieved_doc_tracker import RetrievedDocTracker
from knowledge_lookup.agents.session_context import session_context
from knowledge_lookup.agents.session_rules import SessionRules
from knowledge_lookup.agents.tool_invocation import InvocationRecorder, ToolInvocation

__all__ = [
    "ActionMemoryStore",
    "Alternative",
    "ExtractiveLLM",
    "InMemoryActionMemoryStore",
    "InvocationRecorder",
    "KnowledgeExecutor",
    "KnowledgeLookup",
    "LookupResult",
    "PassageSpan",
    "PlanAndExecute",
    "PlanReady",
    "PlanStep",
    "Planner",
    "PrimaryResult",
    "RetrievedDocTracker",
    "SessionRules",
    "SupplementResult",
    "ToolInvocation",
    "build_executor",
    "build_lookup_tool",
    "build_planner",
    "build_search_doc_tool",
    "session_context",
]
