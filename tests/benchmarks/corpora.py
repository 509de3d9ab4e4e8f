"""The corpora that the benchmarks of evidence measure on: documents in a folder, and labelled queries.

The data is not part of the repository. ``--data`` names a folder with ``xquad/xquad.{zh,en}.json`` (XQuAD, CC BY-SA
4.0) and ``tidb-docs-cn`` (120 documents of the TiDB documentation in Chinese, CC BY-SA 3.0, with ``queries.jsonl``).
"""

import json
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.evaluation import LabelledQuery, read_queries

LABELS = Path(__file__).parents[1] / "labelled_queries"
BUNDLED = Path(__file__).parents[2] / "knowledge_base"
_XQUAD_QUERIES = 400
_SEED = 0


@dataclass(frozen=True)
class Corpus:
    """Documents and queries.

    :param name: For tables.
    :param folder: The documents.
    :param queries: Labelled queries.
    :param leave_out: Documents to leave out so that an answerable query has no answer.
    """

    name: str
    folder: Path
    queries: list[LabelledQuery]
    leave_out: Callable[[LabelledQuery], Collection[str]]

    def pipeline(self, work: Path) -> KnowledgePipeline:
        """Open a pipeline over the documents, indexed in a folder that is kept from run to run."""
        data_dir = work / f"data-{self.folder.name}"
        pipeline = KnowledgePipeline.from_settings(Settings(knowledge={"base_path": self.folder}, data_dir=data_dir))
        pipeline.sync()
        return pipeline


def corpora(data: Path, work: Path) -> list[Corpus]:
    """Prepare all corpora.

    :param data: Folder of the data that is not part of the repository.
    :param work: Folder for what is made of it.
    :returns: XQuAD in Chinese and English, English questions on the Chinese text, the documentation, the bundled
        documents.
    """
    chinese, english = _xquad(data, work, "zh"), _xquad(data, work, "en")
    chosen = random.Random(_SEED).sample(range(len(chinese)), _XQUAD_QUERIES)
    documentation = data / "tidb-docs-cn"
    own = read_queries(LABELS / "tidb-docs-cn.jsonl")
    return [
        Corpus("XQuAD-zh", work / "xquad-zh", [chinese[i] for i in chosen], _article(work / "xquad-zh")),
        Corpus("XQuAD-en", work / "xquad-en", [english[i] for i in chosen], _article(work / "xquad-en")),
        Corpus(
            "XQuAD, English questions on Chinese text",
            work / "xquad-zh",
            [LabelledQuery(english[i].query, chinese[i].gold, "english") for i in chosen],
            _article(work / "xquad-zh"),
        ),
        Corpus(
            "TiDB documentation", documentation, read_queries(documentation / "queries.jsonl") + own, lambda q: q.gold
        ),
        Corpus("bundled documents", BUNDLED, read_queries(LABELS / "bundled.jsonl"), lambda q: q.gold),
    ]


def _xquad(data: Path, work: Path, language: str) -> list[LabelledQuery]:
    """Write each paragraph as a document in a folder of its article, and read its questions."""
    articles = json.loads((data / "xquad" / f"xquad.{language}.json").read_text(encoding="utf-8"))["data"]
    queries = []
    for article_number, article in enumerate(articles):
        for number, paragraph in enumerate(article["paragraphs"]):
            path = f"article-{article_number:02}/paragraph-{number}.md"
            file = work / f"xquad-{language}" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(paragraph["context"] + "\n", encoding="utf-8")
            queries += [LabelledQuery(qa["question"], frozenset({path}), "natural") for qa in paragraph["qas"]]
    return queries


def _article(folder: Path) -> Callable[[LabelledQuery], Collection[str]]:
    def whole_article(query: LabelledQuery) -> Collection[str]:
        articles = {path.split("/")[0] for path in query.gold}
        return {f"{article}/{file.name}" for article in articles for file in (folder / article).iterdir()}

    return whole_article
