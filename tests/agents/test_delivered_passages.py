"""Where delivered text comes from: each range of a result, on real documents with the embedded model."""

import pytest

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.source_document import read_source_document
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.document_text import DocumentText
from tests.agents.manuals import contents
from tests.knowledge_bases import BUNDLED_DOCUMENTS

QUERIES = [
    "数据库连接被耗尽，应用拿不到连接",
    "HTTP 429 和 CROSSSLOT",
    "ERR_TIMEOUT",
    "Redis 连接超时怎么办",
    "数据库连接池应该怎么配置",
    "HikariCP",
    "支付网关超时如何排查",
    "ERR_AMOUNT_MISMATCH",
    "Flyway",
    "缓存穿透",
    "消息积压怎么处理",
]


def body_of(file_path: str) -> str:
    text = (BUNDLED_DOCUMENTS / file_path).read_text(encoding="utf-8")
    return text.partition("\n---\n")[2] if text.startswith("---\n") else text


def is_made_of_its_ranges(result: LookupResult) -> bool:
    content = contents(result)
    return all(body_of(path)[start:end].strip() in content for path, start, end in result.passages)


def test_every_range_is_in_the_content_and_none_comes_twice_in_a_session(bundle: KnowledgePipeline) -> None:
    seen: set[tuple[str, int]] = set()
    delivered = 0
    for query in QUERIES:
        results = [bundle.lookup(query, session_id="s1")]
        left = results[0].available_sections or ()
        results += [bundle.lookup(query, session_id="s1", section_title=title) for title in left[:4]]
        for result in results:
            assert result.found is bool(result.passages)
            assert is_made_of_its_ranges(result)
            for path, start, end in result.passages:
                characters = {(path, at) for at in range(start, end) if not body_of(path)[at].isspace()}
                assert not characters & seen, (query, path, start, end)
                seen |= characters
            delivered += result.found
    assert delivered > 20


def test_without_a_session_ranges_are_told_as_well(bundle: KnowledgePipeline) -> None:
    for query in QUERIES:
        result = bundle.lookup(query)
        assert result.found is bool(result.passages)
        assert is_made_of_its_ranges(result)


@pytest.mark.parametrize("max_tokens", [40, 120])
def test_every_chunk_is_found_in_its_document_one_after_the_other(max_tokens: int) -> None:
    chunker = MarkdownChunker(lambda text: len(text) // 2 + 1, max_tokens=max_tokens)
    found = 0
    for path in sorted(BUNDLED_DOCUMENTS.rglob("*.md")):
        document = read_source_document(path.read_bytes(), file_path=path.relative_to(BUNDLED_DOCUMENTS).as_posix())
        text = DocumentText(document.body, document.title)
        last = 0
        for chunk in chunker.chunk(document, embedding_model="none"):
            span = text.locate(chunk.get_content(), str(chunk.metadata[keys.SECTION]))
            assert span is not None, (path, chunk.get_content())
            assert span.start >= last, (path, chunk.get_content())
            last = span.end
            found += 1
    assert found > 100
