"""Settings, ingestion, storage, and the composition root that puts them together with everything else."""

from typing import TYPE_CHECKING, Any

from knowledge_lookup.pipeline.settings import Settings, SettingsError

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline

__all__ = ["KnowledgePipeline", "Settings", "SettingsError"]


def __getattr__(name: str) -> Any:
    # LlamaIndex takes over a second to import: reading settings, or `knowledge-lookup --help`, does without.
    if name == "KnowledgePipeline":
        from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline

        return KnowledgePipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
