"""The settings of what is recorded and when it calls for attention."""

from typing import Literal

from pydantic import Field, SecretStr

from knowledge_lookup.pipeline.settings_section import SettingsSection


class AlertSettings(SettingsSection):
    """When ``knowledge-lookup stats --check`` raises an alert. A limit that is null switches its rule off."""

    total_latency_ms: float | None = Field(default=2000.0, gt=0)
    """How long a call may take in all, at ``total-latency-percentile``, in milliseconds, above 0. Default: 2000."""

    total_latency_percentile: Literal["p50", "p95", "p99", "max"] = "p95"
    """Which calls that holds for: ``p95`` lets one call in twenty take longer, ``max`` none. Default: ``p95``, since a
    process's first semantic search takes longer than all others."""

    keyword_index_failures: int | None = Field(default=1, ge=1)
    """For how many calls the keyword index may fail to load before there is an alert, at least 1. Unless this is null,
    the index is also loaded on trial. Default: 1, the first."""

    high_confidence_share: float | None = Field(default=0.2, gt=0, le=1)
    """The least share of look-ups that have a decisive exact match, above 0 and up to 1. Default: 0.2."""

    high_confidence_calls: int = Field(default=50, ge=1)
    """Of fewer look-ups the share isn't judged, at least 1. Default: 50."""


class RecordSettings(SettingsSection):
    """What is recorded of each look-up, and for how long."""

    keep_days: int | None = Field(default=None, ge=1, le=36_500)
    """How old records get, in days, at least 1 and at most 36,500; older ones are removed by
    ``knowledge-lookup records prune``, and only by it. Default: null, for ever."""

    hash_queries: bool = False
    """Whether queries are recorded as a keyed hash (HMAC-SHA256 of the normal form) instead of their text. Errors are
    recorded without their message then. Default: false."""

    hash_key: SecretStr | None = Field(default=None, min_length=16)
    """The key of the hashes, at least 16 characters: the same for all machines that share a database, or else the same
    question has a different hash on each. Default: null, a random one in ``data-dir``."""
