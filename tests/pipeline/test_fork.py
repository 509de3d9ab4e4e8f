"""A pipeline that is open when its process forks, as a server does that loads the application before its workers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.pipeline import KnowledgePipeline, Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PROGRAM = """
import json, os, sys, threading, time
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

EXACT, QUESTION = "ERR_TIMEOUT 怎么处理", "数据库连接被耗尽，应用拿不到连接"
pipeline = KnowledgePipeline.from_settings(Settings(**json.loads(sys.argv[1])))

def in_child(work, end=sys.exit):
    '''Run in a forked child, which ends as programs do, and return what it says.'''
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(said).encode())
        end(0)
    os.close(writer)
    deadline = time.monotonic() + 30
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "it hung"
        time.sleep(0.01)
    with os.fdopen(reader) as file:
        return json.loads(file.read() or "null")
"""

ONE_CHILD = """
tool = pipeline.lookup_tool("before")
parent = [pipeline.lookup(EXACT).relevance_level, pipeline.lookup(QUESTION).found]

def work():
    exact = str(json.loads(str(tool(query=EXACT)))["relevanceLevel"])
    started = time.monotonic()
    try:
        semantic = pipeline.lookup(QUESTION)
        said = [semantic.found, semantic.message]
    except KnowledgeLookupError as error:
        said = [False, str(error)]
    followed = [thread.name for thread in threading.enumerate() if thread.name == "keyword-index-follower"]
    pipeline.close()
    return {"exact": exact, "semantic": said, "seconds": time.monotonic() - started, "followed": len(followed)}

child = in_child(work)
parent += [pipeline.lookup(QUESTION + "了").found, pipeline.lookup(EXACT).relevance_level]
pipeline.close()
print(json.dumps({"parent": parent, "child": child}))
"""

MANY_FORKS = """
pipeline.lookup(QUESTION)
over = threading.Event()

def busy(number):
    turn = 0
    while not over.is_set():
        turn += 1
        pipeline.lookup(EXACT, f"{number}-{turn}")
        pipeline.embed_model
        pipeline.bm25_index.search(["连接"], limit=3)

threads = [threading.Thread(target=busy, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()

def work():
    level = pipeline.lookup(EXACT, "child").relevance_level
    pipeline.close()
    return level

# Forked in the middle of calls, gRPC takes its time to end in a child; what is to be seen here has happened by then.
said = [in_child(work, end=os._exit) for _ in range(6)]
over.set()
for thread in threads:
    thread.join()
pipeline.close()
print(json.dumps(said))
"""


def run(program: str, settings: Settings, tmp_path: Path) -> object:
    """Run the program in a process of its own, and read the JSON that it prints last."""
    tree = {
        "knowledge": {"base_path": str(settings.knowledge.base_path)},
        "data_dir": str(settings.data_dir),
        "milvus": {
            "uri": settings.milvus.uri,
            "collection": settings.milvus.collection,
            "timeout_seconds": settings.milvus.timeout_seconds,
        },
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + program, json.dumps(tree)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def records(settings: Settings) -> list[str]:
    """Give the ids of all records."""
    with KnowledgePipeline.from_settings(settings) as pipeline:
        return pipeline.database.read(
            lambda connection: list(connection.exec_driver_sql("SELECT id FROM tool_invocation").scalars())
        )


def test_a_child_matches_exactly_and_is_told_that_milvus_lite_is_its_parents(
    bundle_settings: Settings, tmp_path: Path
) -> None:
    said = run(ONE_CHILD, bundle_settings, tmp_path)
    assert isinstance(said, dict)
    assert said["parent"] == ["PRECISE", True, True, "PRECISE"]
    child = said["child"]
    assert (child["exact"], child["followed"]) == ("PRECISE", 1)
    found, message = child["semantic"]
    assert not found
    assert "语义检索暂不可用" in message
    assert child["seconds"] < 10
    # Two before the fork and two after it, and two of the child: none lost, none written by both.
    assert len(records(bundle_settings)) == 6
    assert not list(Path(bundle_settings.data_dir).glob("working-*"))


def test_forks_in_the_middle_of_look_ups_leave_no_lock_behind(bundle_settings: Settings, tmp_path: Path) -> None:
    assert run(MANY_FORKS, bundle_settings, tmp_path) == ["PRECISE"] * 6


@pytest.mark.milvus_server
def test_a_child_searches_on_a_milvus_server_by_a_connection_of_its_own(
    bundle_settings: Settings, embed_model: BaseEmbedding, milvus_server_uri: str, tmp_path: Path
) -> None:
    milvus = {"uri": milvus_server_uri, "collection": f"fork_{uuid4().hex}", "timeout_seconds": 10}
    settings = bundle_settings.model_copy(update={"milvus": Settings(milvus=milvus).milvus})
    with KnowledgePipeline.from_settings(settings, embed_model=embed_model) as pipeline:
        pipeline.sync()
        try:
            said = run(ONE_CHILD, settings, tmp_path)
        finally:
            pipeline.chunk_store.drop()
    assert isinstance(said, dict)
    assert said["parent"] == ["PRECISE", True, True, "PRECISE"]
    assert (said["child"]["exact"], said["child"]["semantic"]) == ("PRECISE", [True, None])
