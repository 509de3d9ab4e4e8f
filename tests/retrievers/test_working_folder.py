"""Folders of running processes: killed ones leave theirs to the next."""

import subprocess
import sys
from pathlib import Path

from knowledge_lookup.retrievers.working_folder import WorkingFolder

HOLDING = """
import sys
from pathlib import Path
from knowledge_lookup.retrievers.working_folder import WorkingFolder
folder = WorkingFolder.make(Path(sys.argv[1]))
(folder.path / "file").write_text("text")
print(folder.path.name, flush=True)
sys.stdin.read()
"""


def holder(parent: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def name_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_folder_of_a_living_process_stays_and_that_of_a_killed_one_is_removed_by_the_next(tmp_path: Path) -> None:
    living, killed = holder(tmp_path), holder(tmp_path)
    names = name_of(living), name_of(killed)
    killed.kill()
    killed.wait()
    assert (tmp_path / names[1] / "file").exists()
    folder = WorkingFolder.make(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names[0], f"{names[0]}.lock", folder.path.name, f"{folder.path.name}.lock"}
    assert (tmp_path / names[0] / "file").exists()
    living.communicate("")
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_where_the_parent_can_not_be_written_the_folder_is_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    folder = WorkingFolder.make(tmp_path / "file")
    try:
        assert folder.path.is_dir()
        assert tmp_path not in folder.path.parents
    finally:
        folder.remove()
    assert not folder.path.exists()
