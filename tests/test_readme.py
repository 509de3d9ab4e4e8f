"""The README's samples run and its transcript is what the command prints."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from knowledge_lookup.pipeline import Settings
from tests.knowledge_bases import BUNDLED_DOCUMENTS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def prepared(tmp_path: Path, indexed_bundle: Path) -> Path:
    """A folder as `init` and `sync` leave it."""
    copytree(BUNDLED_DOCUMENTS, tmp_path / "knowledge_base")
    copytree(indexed_bundle, tmp_path / ".knowledge-lookup")
    return tmp_path


@pytest.mark.parametrize("sample", blocks("python"), ids=lambda sample: sample.splitlines()[-1][:40])
def test_a_python_sample_runs_and_prints_what_its_comments_say(prepared: Path, sample: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", sample],
        cwd=prepared,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*\)  # (.+?)(?:: .*)?$", sample, re.MULTILINE)
    for value in promised:
        assert value in done.stdout.splitlines()


def test_the_transcript_is_what_the_command_prints(prepared: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "knowledge_lookup.pipeline.cli"]
    done = subprocess.run(
        [*command, "chat", "支付网关返回 ERR_TIMEOUT，怎么排查？"],
        cwd=prepared,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    beginning, end = blocks("text")
    assert done.stdout.startswith(beginning), done.stderr
    assert done.stdout.endswith(end)


def test_the_yaml_samples_are_valid_settings(tmp_path: Path) -> None:
    samples = blocks("yaml")
    assert len(samples) == 5
    for sample in samples:
        path = tmp_path / "settings.yml"
        path.write_text(sample, encoding="utf-8")
        assert Settings.load(path) != Settings()
