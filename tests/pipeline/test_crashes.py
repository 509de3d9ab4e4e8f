"""A process that is killed at any step boundary of a write leaves nothing that one sync doesn't mend."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.servers.mariadb import MariaDBServer

_RUNNERS = 4

# (step, which call of it, before or after it)
INDEX_STEPS = [
    ("row pending", 1, "after"),
    ("row indexing or deleting", 1, "after"),
    ("chunks written", 1, "after"),
    ("row ready", 1, "before"),
    ("row ready", 1, "after"),
    ("keywords added", 1, "after"),
    ("finished", 1, "before"),
]
FILE_STEPS = [("file written", 1, "before"), ("file written", 1, "after")]
OLD_CHUNKS_STEPS = [("old chunks deleted", 1, "after")]
DELETE_STEPS = [
    ("file deleted", 1, "before"),
    ("file deleted", 1, "after"),
    ("row indexing or deleting", 1, "after"),
    ("keywords removed", 1, "after"),
    ("chunks deleted", 1, "after"),
    ("row deleted", 1, "after"),
    ("finished", 1, "before"),
]
STEPS = {
    "upload": FILE_STEPS + INDEX_STEPS,
    "replace": FILE_STEPS + INDEX_STEPS + OLD_CHUNKS_STEPS,
    "import": [*FILE_STEPS, ("row indexing or deleting", 1, "after"), ("chunks written", 1, "after")],
    "sync": [*INDEX_STEPS, *OLD_CHUNKS_STEPS, ("keywords added", 2, "after")],
    "delete": DELETE_STEPS,
}


def cases(*writes: str) -> list[dict[str, Any]]:
    return [
        {"write": write, "step": step, "call": call, "when": when}
        for write in writes
        for step, call, when in STEPS[write]
    ]


def run(folder: Path, some: list[dict[str, Any]], settings: dict[str, Any]) -> list[dict[str, Any]]:
    order = json.dumps({"folder": str(folder), "cases": some, "settings": settings})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.pipeline.crash_runner"],
        input=order,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_mended(results: list[dict[str, Any]], number: int) -> None:
    assert len(results) == number
    for result in results:
        assert result["killed"], result["case"]
        assert result["differences"] == [], result["case"]
        assert result["equal"], result["case"]
        old, new, redis, *_ = result["answers"]
        assert redis["found"]
        assert not (old["found"] and new["found"]), result["case"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("write", list(STEPS))
def test_a_killed_write_is_mended_by_one_sync(tmp_path: Path, write: str) -> None:
    some = cases(write)
    assert_mended(run(tmp_path, some, {}), len(some))


@pytest.mark.mariadb
@pytest.mark.milvus_server
@pytest.mark.timeout(300)
def test_a_killed_write_is_mended_by_one_sync_on_servers(
    tmp_path: Path, mariadb_server: MariaDBServer, milvus_server_uri: str
) -> None:
    # Replacing and deleting among several documents; the other writes differ in their files, not on the servers.
    some = cases("sync", "delete")
    url = f"mysql+pymysql://root@127.0.0.1:{mariadb_server.port}"
    settings = {"milvus": {"uri": milvus_server_uri}, "database": {"server_url": url}}
    # Most of the time is waiting for the servers: several runners at once, each with databases of its own.
    with ThreadPoolExecutor(_RUNNERS) as runners:
        parts = [some[number::_RUNNERS] for number in range(_RUNNERS)]
        results = runners.map(lambda number: run(tmp_path / str(number), parts[number], settings), range(_RUNNERS))
        assert_mended([result for part in results for result in part], len(some))
