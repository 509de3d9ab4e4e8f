"""A process that is killed at any step boundary of a write leaves nothing that one sync doesn't mend."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.mariadb import MariaDBServer

# (step, which call of it, before or after it)
WRITE_STEPS = [
    ("file written", 1, "before"),
    ("file written", 1, "after"),
    ("row pending", 1, "after"),
    ("status changed", 1, "after"),
    ("chunks written", 1, "after"),
    ("old chunks deleted", 1, "after"),
    ("status changed", 2, "after"),
    ("keywords added", 1, "after"),
    ("finished", 1, "before"),
]
DELETE_STEPS = [
    ("file deleted", 1, "before"),
    ("file deleted", 1, "after"),
    ("status changed", 1, "after"),
    ("keywords removed", 1, "after"),
    ("chunks deleted", 1, "after"),
    ("row deleted", 1, "after"),
    ("finished", 1, "before"),
]
# A new document and an imported one take the way of a replaced one: the steps that differ are enough.
NEW_STEPS = [WRITE_STEPS[1], WRITE_STEPS[2], WRITE_STEPS[4], WRITE_STEPS[6]]
STEPS = {"upload": NEW_STEPS, "replace": WRITE_STEPS, "import": NEW_STEPS, "delete": DELETE_STEPS}


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
    # Opening and dropping collections on a server takes seconds: those steps that leave the stores apart.
    steps = {
        ("replace", "row pending"),
        ("replace", "chunks written"),
        ("delete", "file deleted"),
        ("delete", "row deleted"),
    }
    some = [c for c in cases("replace", "delete") if c["when"] == "after" and (c["write"], c["step"]) in steps]
    url = f"mysql+pymysql://root@127.0.0.1:{mariadb_server.port}"
    settings = {"milvus": {"uri": milvus_server_uri}, "database": {"server_url": url}}
    assert_mended(run(tmp_path, some, settings), len(some))
