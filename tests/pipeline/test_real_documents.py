"""Importing real documentation; skipped where it isn't beside the repository."""

from pathlib import Path

import pytest
from llama_index.core.embeddings.mock_embed_model import MockEmbedding

from knowledge_lookup.pipeline import KnowledgePipeline, Settings

DOCUMENTATION = Path(__file__).parents[2] / "../shared/data/tidb-docs-cn"

pytestmark = pytest.mark.skipif(not DOCUMENTATION.is_dir(), reason=f"no documentation at {DOCUMENTATION}")


class CountingEmbedding(MockEmbedding):
    """Embeds nothing: what is counted here is how often a chunk is asked for."""

    asked: int = 0

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.asked += len(texts)
        return super()._get_text_embeddings(texts)


class StopError(Exception):
    pass


def stop_at_60(done: int, total: int, path: str) -> None:
    if done == 60:
        raise StopError


def test_an_import_that_is_interrupted_half_way_finishes_without_embedding_a_document_twice(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    settings = Settings(knowledge={"base_path": tmp_path / "docs"}, data_dir=tmp_path / "data")
    model = CountingEmbedding(embed_dim=8)
    with KnowledgePipeline.from_settings(settings, embed_model=model) as pipeline:
        with pytest.raises(StopError):
            pipeline.import_folder(DOCUMENTATION, progress=stop_at_60)
        report = pipeline.import_folder(DOCUMENTATION)
        rows = pipeline.documents.list()
        files = sorted(path.relative_to(DOCUMENTATION).as_posix() for path in DOCUMENTATION.rglob("*.md"))
        reported = [*(row.file_path for row in rows), *(skipped.file_path for skipped in report.skipped)]
        assert sorted(reported) == files
        assert report.unchanged == 60
        assert model.asked == sum(row.chunk_count for row in rows)
        assert pipeline.examine() == []
