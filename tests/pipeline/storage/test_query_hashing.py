"""Queries as keyed hashes."""

import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from knowledge_lookup.agents.tool_invocation import ToolInvocation
from knowledge_lookup.pipeline.storage import (
    HASHED_QUERY_PREFIX,
    HashKeyError,
    QueryHashingRecorder,
    hash_key_in,
    hashed_query,
)

from .test_invocation_repository import EXAMPLE, example

KEY = b"k" * 32


class Kept:
    """A recorder that keeps what it gets."""

    def __init__(self) -> None:
        self.invocations: list[ToolInvocation] = []

    def record(self, invocation: ToolInvocation) -> None:
        self.invocations.append(invocation)


def recorded(**changes: Any) -> ToolInvocation:
    kept = Kept()
    QueryHashingRecorder(kept, KEY).record(example(**changes))
    [invocation] = kept.invocations
    return invocation


def test_equal_questions_have_equal_hashes_and_others_have_others() -> None:
    hashes = [hashed_query(query, KEY) for query in ("Kafka 消费积压", "kafka消费积压？", "Kafka 消费")]
    assert hashes[0] == hashes[1] != hashes[2]
    assert all(re.fullmatch(r"hmac-sha256:[0-9a-f]{64}", hashed) for hashed in hashes)


def test_the_hash_depends_on_the_key() -> None:
    assert hashed_query("q", KEY) != hashed_query("q", b"j" * 32)


@pytest.mark.parametrize("query", ["", " \n", "？"])
def test_an_empty_query_stays_empty(query: str) -> None:
    assert hashed_query(query, KEY) == ""


def test_a_query_that_is_no_valid_text_has_a_hash_too() -> None:
    assert hashed_query("a\ud800\0", KEY).startswith(HASHED_QUERY_PREFIX)


def test_a_record_keeps_everything_but_the_query() -> None:
    invocation = recorded()
    assert invocation.query == hashed_query(EXAMPLE.query, KEY)
    assert invocation.retrieval_details == EXAMPLE.retrieval_details
    assert (invocation.session_id, invocation.created_at) == (EXAMPLE.session_id, EXAMPLE.created_at)


def test_of_an_error_only_its_kind_is_recorded() -> None:
    details = {
        "error": "EmbeddingError: refused 'my secret'",
        "l1_error": "VectorStoreError: my secret",
        "l0_error": None,
        "sources": ["a: b"],
    }
    assert recorded(query="my secret", retrieval_details=details).retrieval_details == {
        "error": "EmbeddingError",
        "l1_error": "VectorStoreError",
        "l0_error": None,
        "sources": ["a: b"],
    }


def test_the_key_of_a_folder_is_made_once_and_readable_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    key = hash_key_in(folder)
    assert len(key) == 32
    assert hash_key_in(folder) == key != hash_key_in(tmp_path)
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_whoever_comes_first_at_once_gets_the_same_key(tmp_path: Path) -> None:
    # Threads race for the file as processes do: whoever loses must read what the winner wrote.
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        gate = threading.Barrier(8)

        def first(folder: Path = folder, gate: threading.Barrier = gate) -> bytes:
            gate.wait()
            return hash_key_in(folder)

        with ThreadPoolExecutor(8) as pool:
            keys = {future.result() for future in [pool.submit(first) for _ in range(8)]}
        assert keys == {hash_key_in(folder)}
        assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("content", ["", "abc", "zz" * 32, "ab" * 31])
def test_a_damaged_key_is_an_error_that_says_what_to_do(tmp_path: Path, content: str) -> None:
    hash_key_in(tmp_path)
    [file] = tmp_path.iterdir()
    file.write_text(content, encoding="utf-8")
    with pytest.raises(HashKeyError, match=r"is no key of hashed queries: put back the one that was there"):
        hash_key_in(tmp_path)


def test_a_folder_that_is_none_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    with pytest.raises(HashKeyError, match=r"can't be read or made .*: check the data-dir, or set records\.hash-key"):
        hash_key_in(tmp_path / "data")
