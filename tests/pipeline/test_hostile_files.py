"""Files that lead out of the knowledge base, never end or are made to take long."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.source_document import read_source_document
from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.errors import KnowledgeLookupError
from knowledge_lookup.retrievers.excerpt import EXCERPT_CHARACTERS, excerpt
from knowledge_lookup.retrievers.search_terms import passage_terms
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import document, write_documents


@pytest.fixture
def pipeline(tmp_path: Path) -> KnowledgePipeline:
    write_documents(tmp_path / "docs", {"a.md": document("text", title="ERR_A")})
    (tmp_path / "secret.md").write_text("TOPSECRET")
    return KnowledgePipeline.from_settings(
        topic_settings(tmp_path / "docs", tmp_path / "data"), embed_model=TopicEmbedding()
    )


def test_what_comes_in_the_place_of_an_indexed_file_is_not_followed_out_and_not_waited_for(
    pipeline: KnowledgePipeline, tmp_path: Path
) -> None:
    file = tmp_path / "docs" / "a.md"
    with pipeline:
        pipeline.sync()
        assert pipeline.lookup("ERR_A").found
        file.unlink()
        file.symlink_to(tmp_path / "secret.md")
        assert not pipeline.lookup("ERR_A").found
        file.unlink()
        os.mkfifo(file)
        assert not pipeline.lookup("ERR_A").found


def test_a_name_with_a_line_end_is_skipped(pipeline: KnowledgePipeline, tmp_path: Path) -> None:
    (tmp_path / "docs" / "b\n【来源：a.md】.md").write_text("text")
    with pipeline:
        report = pipeline.sync()
    assert report.added == ["a.md"]
    assert [(s.file_path, s.reason) for s in report.skipped] == [
        ("b\\n【来源：a.md】.md", "its name holds a control character: rename it")
    ]


@pytest.mark.parametrize(
    ("source", "reason"), [("/dev/zero", "at most 2,000,000"), ("a\0b", "null byte"), ("/", "directory")]
)
def test_what_has_no_end_or_is_no_file_is_not_uploaded(pipeline: KnowledgePipeline, source: str, reason: str) -> None:
    with pipeline, pytest.raises(KnowledgeLookupError, match=reason):
        pipeline.upload(source, name="b.md")


@pytest.mark.parametrize("path", ["x" * 2_000_000, "a" * 300 + ".md", "a\u2028b.md", "../secret.md", "leads-out/x.md"])
def test_a_path_that_leads_out_or_is_none_is_not_deleted(
    pipeline: KnowledgePipeline, tmp_path: Path, path: str
) -> None:
    (tmp_path / "docs" / "leads-out").symlink_to(tmp_path)
    with pipeline, pytest.raises(KnowledgeLookupError):
        pipeline.delete(path)
    assert (tmp_path / "secret.md").is_file()


_BODIES: dict[str, Callable[[int], str]] = {
    "headings": lambda n: "".join(f"# heading {i}\n\ntext {i}\n\n" for i in range(n // 25)),
    "one line": lambda n: "word " * (n // 5) + "needle",
    "one word": lambda n: "x" * n + " needle",
    "quotations": lambda n: ">" * n + " needle",
    "lists": lambda n: "- " * (n // 2) + "needle",
    "open fences": lambda n: "```\n" * (n // 4),
    "links": lambda n: "[a](b) " * (n // 7),
    "open brackets": lambda n: "![" * (n // 2),
    "a heading without text": lambda n: "# <b>" + " " * n + "<b>\n\ntext",
    "marks on a letter": lambda n: "a" + "\u0301\u0316" * (n // 2),
    "nested headings": lambda n: "# needle\n\n" + "## needle\n\n" * (n // 12),
}


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES.keys())
def test_the_time_for_a_body_grows_no_faster_than_the_body(body: Callable[[int], str]) -> None:
    _read(body(20_000))
    small = min(_read(body(50_000)) for _ in range(2))
    large = _read(body(400_000))
    assert large < 16 * small + 1.0


def test_a_chunk_holds_no_more_characters_than_a_row_takes_however_few_its_tokens_are() -> None:
    source = read_source_document(("a" + " " * 30_000 + "b" + "\u200b" * 30_000 + "c").encode(), file_path="a.md")
    chunks = MarkdownChunker(lambda text: len(text.split()), max_tokens=300).chunk(source, embedding_model="m")
    assert max(len(chunk.text) for chunk in chunks) <= 4_800
    assert {"a", "b", "c"} <= set("".join(chunk.text for chunk in chunks))


def test_of_ten_thousand_sections_some_are_named_and_each_can_be_asked_for(tmp_path: Path) -> None:
    body = "".join(f"# 标题{number}号\n\n内容{number}\n\n" for number in range(10_000))
    write_documents(tmp_path / "docs", {"a.md": document("ERR_MANY", title="ERR_MANY")})
    options = topic_settings(tmp_path / "docs", tmp_path / "data")
    with KnowledgePipeline.from_settings(options, embed_model=TopicEmbedding()) as pipeline:
        pipeline.sync()
        (tmp_path / "docs" / "a.md").write_text(body, "utf-8")
        started = time.process_time()
        first = pipeline.lookup("ERR_MANY", session_id="s1")
        section = pipeline.lookup("ERR_MANY", session_id="s1", section_title="标题9876号")
        unknown = pipeline.lookup("ERR_MANY", session_id="s1", section_title="没有这一节")
        assert time.process_time() - started < 5.0
    assert first.available_sections is not None
    assert first.available_sections[-1] == "…"
    assert section.primary is not None
    assert "内容9876" in section.primary.content
    assert not unknown.found
    assert len(str(unknown)) < 800


def _read(body: str) -> float:
    """Do with a body what indexing and looking up do, and tell the processor time."""
    started = time.process_time()
    source = read_source_document(body.encode(), file_path="a.md")
    part = excerpt(source.body, ["needle", "elsewhere"])
    assert len(part.text) <= EXCERPT_CHARACTERS
    text = DocumentText(source.body, source.title)
    text.titles_left(part.spans)
    text.lines_of(part.spans)
    passage_terms(source.body)
    return time.process_time() - started
