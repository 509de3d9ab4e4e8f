"""What reaches a terminal of what documents, queries and paths hold."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from knowledge_lookup.pipeline.visible_text import printable

_ESCAPES = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202e\u2066\u200b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x9bc\x07", "a\\x0db\\x9bc\\x07"),
        ("\u202eabc\u2028", "\\u202eabc\\u2028"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
        ("支付　网关\n\t[red]😀\u200d👩", "支付　网关\n\t[red]😀\u200d👩"),
    ],
)
def test_what_a_terminal_would_act_on_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_neither_documents_nor_queries_nor_errors_reach_the_terminal_raw(tmp_path: Path) -> None:
    base = tmp_path / "knowledge_base"
    base.mkdir()
    text = f"---\nkeywords: [EVIL]\n---\n# 标题 [link=x]{_ESCAPES}\n\ntext {_ESCAPES}\n"
    (base / "[red]a.md").write_text(text, "utf-8")
    done = _run(
        ["lookup", "EVIL"],
        ["-v", "lookup", f"EVIL {_ESCAPES}"],
        ["documents", "list"],
        ["documents", "show", f"{_ESCAPES}.md"],
        ["map"],
        ["search", "  "],
    )
    said = done.stdout + done.stderr
    assert b"Traceback" not in said
    assert not set(said) & {0x1B, 0x07, 0x9B}
    assert "[red]a.md" in said.decode("ascii")
    assert b"the query is empty" in done.stderr
    found = json.loads(_run(["lookup", "EVIL", "--json"]).stdout)
    assert found["primary"]["content"].endswith(f"text {_ESCAPES}")


def _run(*commands: list[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run commands one after the other in a process whose terminal knows ASCII alone."""
    program = (
        "import sys\n"
        "from knowledge_lookup.pipeline.cli import main\n"
        f"for command in {commands!a}:\n"
        "    sys.argv = ['knowledge-lookup', *command]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit:\n"
        "        pass\n"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
