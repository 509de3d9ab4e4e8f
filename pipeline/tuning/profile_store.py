"""Profiles that tuning saved, one file for each embedding model and corpus."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from knowledge_lookup.pipeline.tuning.errors import ProfileFileError
from knowledge_lookup.postprocessors import EvidenceProfile

logger = logging.getLogger(__name__)

_FORMAT = 1
_FITTED = "fitted"
_APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class SavedProfile:
    """A profile with what it was made of.

    :param profile: The profile.
    :param embedding_model: The model whose similarities it was fitted to.
    :param corpus: The corpus that it was fitted to: the name of the Milvus collection.
    :param made_from: What it was made of and what it came to, for people to read.
    """

    profile: EvidenceProfile
    embedding_model: str
    corpus: str
    made_from: Mapping[str, Any]


class ProfileStore:
    """Reads and writes profiles in the folder ``profiles`` of the data folder.

    A profile that was fitted is kept beside the one that is applied: it changes nothing until it is applied.

    :param data_dir: The data folder; made when something is saved.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "profiles"

    def save(self, saved: SavedProfile, *, apply: bool) -> Path:
        """Save a profile, replacing the one of the same model and corpus.

        :param saved: The profile.
        :param apply: Whether it is to be used from now on.
        :returns: The file.
        :raises ProfileFileError: If it can't be written.
        """
        content = {
            "format": _FORMAT,
            "embedding_model": saved.embedding_model,
            "corpus": saved.corpus,
            "saved_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "profile": saved.profile.to_dict(),
            "made_from": dict(saved.made_from),
        }
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        path = self._path(saved.embedding_model, saved.corpus, _APPLIED if apply else _FITTED)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # A process that reads at this moment sees the old profile or the new one.
            written = path.with_suffix(f".{os.getpid()}.tmp")
            written.write_text(text, encoding="utf-8")
            written.replace(path)
        except OSError as error:
            raise ProfileFileError(f"'{path}' can't be written ({error.strerror}): check the data-dir") from error
        return path

    def applied(self, embedding_model: str, corpus: str) -> SavedProfile | None:
        """Read the profile that is applied.

        A profile that was fitted for another embedding model isn't used, with a warning.

        :param embedding_model: The model in use.
        :param corpus: The corpus in use.
        :returns: The profile; None if none was applied for the two.
        :raises ProfileFileError: If the file is there, but isn't a profile.
        """
        path = self._path(embedding_model, corpus, _APPLIED)
        if path.exists():
            return _read(path)
        for other in sorted(self._folder.glob(f"{_name(corpus)}--*.{_APPLIED}.json")):
            try:
                model = _read(other).embedding_model
            except ProfileFileError as error:
                logger.warning("%s", error)
                continue
            logger.warning(
                "the profile in '%s' was fitted for the embedding model '%s' and isn't used for '%s': run "
                "`knowledge-lookup tune` for this model",
                other,
                model,
                embedding_model,
            )
        return None

    def _path(self, embedding_model: str, corpus: str, state: str) -> Path:
        return self._folder / f"{_name(corpus)}--{_name(embedding_model)}.{state}.json"


def _name(text: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _read(path: Path) -> SavedProfile:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}, known is {_FORMAT}")
        return SavedProfile(
            EvidenceProfile.from_dict(content["profile"]),
            content["embedding_model"],
            content["corpus"],
            content["made_from"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProfileFileError(
            f"'{path}' is not a profile ({error}): remove the file, then run `knowledge-lookup tune --apply` again"
        ) from error
