"""The notebooks run from a clean kernel, and what they show is so."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = ("threshold_tuning.ipynb", "plug_into_llamaindex.ipynb")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a notebook sees of a clone, and an empty folder for what it makes temporarily."""
    copytree(REPOSITORY / "tests" / "labelled_queries", tmp_path / "clone" / "tests" / "labelled_queries")
    copytree(REPOSITORY / "notebooks", tmp_path / "clone" / "notebooks")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "clone"


def run(path: Path, *, parameters: str = "", asking: str) -> tuple[dict[str, Any], int]:
    """Run a notebook from a clean kernel, in its own folder.

    :param path: The notebook.
    :param parameters: Code to run right behind the cell tagged ``parameters``.
    :param asking: Code to run at the end; it must put what is wanted of the kernel into ``told``, as JSON values.
    :returns: ``told``, and the number of figures that the notebook drew.
    """
    notebook = nbformat.read(path, as_version=4)
    if parameters:
        [at] = [at for at, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
        notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(parameters))
    notebook.cells.append(nbformat.v4.new_code_cell(f"{asking}\nimport json\nprint(json.dumps(told))"))
    client = NotebookClient(
        notebook, timeout=110, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    said = "".join(output.text for output in notebook.cells[-1].outputs if output.get("name") == "stdout")
    return json.loads(said), figures


def test_the_threshold_notebook_shows_what_tuning_counts_and_puts_the_tuned_profile_to_use(
    clone: Path, tmp_path: Path, indexed_bundle: Path
) -> None:
    data_dir = copytree(indexed_bundle, tmp_path / "data")
    told, figures = run(
        clone / "notebooks" / "threshold_tuning.ipynb",
        parameters=f"DATA_DIR, APPLY = {str(data_dir)!r}, True",
        asking="""
from knowledge_lookup.pipeline.tuning.thresholds import Judged, TuningFigures

counted = TuningFigures.of([(Judged.by(profile, sample), profile) for sample in samples])
shown = figures_at(samples, in_use, profile.reference_threshold)
told = {
    "samples": len(samples),
    "counted": [counted.hit.count, counted.not_found.count],
    "shown": [shown["found right"].count, shown["not found"].count],
    "auc": auc,
    "documents in the diagram": sum(share.total for _, share in points),
    "documents": sum(len(sample.candidates) for sample in samples),
    "tuned": report.profile.to_dict(),
    "in use": profile_now.to_dict(),
    "before": profile.to_dict(),
    "answered at best": answered_at_best,
    "plain, unanswerable answered": 1 - figures_at(samples, by_similarity, plain_threshold)["not found"].value,
    "cheapest": best_threshold,
}
COST_OF_WRONG, COST_OF_MISS, SHARE_UNANSWERABLE = 100.0, 1.0, 0.5
told["cheapest where wrong results are dear"] = float(
    thresholds[np.argmin([expected_cost(samples, in_use, threshold) for threshold in thresholds])]
)
COST_OF_WRONG, COST_OF_MISS = 0.0, 1.0
told["cheapest where they cost nothing"] = float(
    thresholds[np.argmin([expected_cost(samples, in_use, threshold) for threshold in thresholds])]
)
""",
    )
    assert figures == 5
    assert told["samples"] > 100
    assert told["shown"] == told["counted"]
    assert told["documents in the diagram"] == told["documents"]
    assert told["auc"]["probability"] > max(0.8, told["auc"]["similarity"])
    free, dear = told["cheapest where they cost nothing"], told["cheapest where wrong results are dear"]
    assert free <= told["cheapest"] <= dear
    assert free < dear
    assert told["plain, unanswerable answered"] <= told["answered at best"] + 0.001
    assert told["in use"] == told["tuned"] != told["before"]
    assert len(list((data_dir / "profiles").glob("*.applied.json"))) == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_plug_in_notebook_finds_judges_and_gives_nothing_twice(clone: Path, tmp_path: Path) -> None:
    told, _ = run(
        clone / "notebooks" / "plug_into_llamaindex.ipynb",
        asking="""
import json


def said(nodes):
    level = relevance_level_of(nodes)
    return [None if level is None else level.value, *(scored.node.metadata["file_path"] for scored in nodes)]

told = {
    "raw": [scored.score for scored in raw],
    "plain": said(plain_found),
    "plain score": plain_found[0].score,
    "hybrid": said(hybrid_found),
    "identifier": said(identifier_found),
    "exact": said(exact_found),
    "semantic": said(semantic_found),
    "unanswerable": [said(plain_nothing), said(hybrid_nothing), said(pipeline_nothing)],
    "answer": answer,
    "agent": [json.loads(str(result)) for result in (*first, *second)],
    "context": [result.found for result in (*in_context, *again_in_context)],
    "sessions": [said(session_first), said(session_second), said(other_session)],
}
""",
    )
    assert told["raw"] == sorted(told["raw"])
    assert told["plain"] == ["HIGHLY_RELEVANT", "redis/eviction.md"]
    assert told["plain score"] == pytest.approx(1 - told["raw"][0] / 2)
    assert told["hybrid"] == ["HIGHLY_RELEVANT", "redis/eviction.md"]
    assert told["identifier"][:2] == ["HIGHLY_RELEVANT", "network/dns.md"]
    assert told["exact"] == ["PRECISE", "api/payment-errors.md"]
    assert told["semantic"][0] in {"HIGHLY_RELEVANT", "REFERENCE"}
    assert told["semantic"][1] == "api/payment-errors.md"
    assert told["unanswerable"] == [[None], [None], [None]]
    assert "CROSSSLOT Keys in request don't hash to the same slot" in told["answer"]
    given, withheld = told["agent"]
    assert given["relevanceLevel"] == "PRECISE"
    assert not withheld["found"]
    assert "infrastructure/redis-config.md" in withheld["message"]
    assert told["context"] == [True, False]
    first, again, other = told["sessions"]
    assert "redis/eviction.md" in first
    assert "redis/eviction.md" not in again
    assert other == ["HIGHLY_RELEVANT", "redis/eviction.md"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    notebook = nbformat.read(REPOSITORY / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
