"""Settings, ingestion, storage, and the composition root that puts them together with everything else."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knowledge_lookup.pipeline.knowledge_pipeline import KnowledgePipeline
    from knowledge_lookup.pipeline.settings import Settings, SettingsError

__all__ = ["KnowledgePipeline", "Settings", "SettingsError"]

_MODULES = {"KnowledgePipeline": "knowledge_pipeline", "Settings": "settings", "SettingsError": "settings"}


def __getattr__(name: str) -> Any:
    # LlamaIndex takes over a second to import, pydantic a fifth of one: `knowledge-lookup --help` does without either.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
