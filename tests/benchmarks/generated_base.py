"""Knowledge bases of any size for benchmarks of the keyword match, generated with a fixed seed.

Each document has five keywords of its own, of Chinese, Latin or both, as error codes, settings and products are named,
and a title of its own.
"""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import insert

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.ingestion.source_document import content_hash
from knowledge_lookup.pipeline.storage import Database
from knowledge_lookup.pipeline.storage.storable_text import exact_hash
from knowledge_lookup.pipeline.storage.tables import api_document
from knowledge_lookup.retrievers.keyword_match import KeywordEntry

KEYWORDS_A_DOCUMENT = 5
_DOMAINS = 50
_HAN = "支付网关错误超时数据库连接缓存集群部署监控告警日志权限登录用户订单库存消息队列索引查询事务备份恢复配置接口"
_NAMES = [
    "redis",
    "mysql",
    "kafka",
    "nginx",
    "gateway",
    "timeout",
    "retry",
    "cache",
    "index",
    "query",
    "backup",
    "deploy",
    "alert",
    "metric",
    "token",
    "order",
    "stock",
]
_QUESTIONS = ("", " 怎么处理", " 是什么意思", "怎么解决", " what does it mean")
_PARAGRAPH = "出现这个错误时，先看监控面板上的指标，再按下面的步骤处理；处理完后记录原因，并通知值班的同事。"


def entries(count: int, *, seed: int = 0) -> Iterator[KeywordEntry]:
    """Generate documents as the keyword index knows them.

    :param count: Number of documents.
    :param seed: Of the random numbers.
    :returns: The documents; the same for the same arguments.
    """
    chance = random.Random(seed)
    for number in range(count):
        domain = f"domain-{number % _DOMAINS}"
        keywords = tuple(_keyword(chance, number * KEYWORDS_A_DOCUMENT + at) for at in range(KEYWORDS_A_DOCUMENT))
        path = f"{domain}/document-{number}.md"
        yield KeywordEntry(path, f"第 {number} 号处理手册", domain, keywords, content_hash=content_hash(path.encode()))


def queries(documents: list[KeywordEntry], count: int, *, seed: int = 1) -> list[str]:
    """Generate queries that one document answers.

    :param documents: The documents.
    :param count: Number of queries.
    :param seed: Of the random numbers.
    :returns: A keyword each, mostly with words that ask for it.
    """
    chance = random.Random(seed)
    return [chance.choice(chance.choice(documents).keywords) + chance.choice(_QUESTIONS) for _ in range(count)]


def settings(folder: Path, *, url: str | None = None) -> Settings:
    """Give the settings of a generated knowledge base.

    :param folder: Where :func:`write_knowledge_base` wrote it.
    :param url: The database; None for the embedded one.
    :returns: The settings.
    """
    database = {} if url is None else {"url": url}
    return Settings(knowledge={"base_path": folder / "documents"}, data_dir=folder / "data", database=database)


def write_knowledge_base(folder: Path, count: int, *, url: str | None = None) -> list[KeywordEntry]:
    """Write files, and the rows that an indexing of them would leave; nothing is embedded.

    :param folder: An empty folder.
    :param count: Number of documents.
    :param url: See :func:`settings`.
    :returns: The documents.
    """
    documents = list(entries(count))
    with KnowledgePipeline.from_settings(settings(folder, url=url)) as pipeline:
        for start in range(0, count, 1_000):
            _write(
                pipeline.database, folder / "documents", documents[start : start + 1_000], pipeline.embedding_model_name
            )
    return documents


def _keyword(chance: random.Random, number: int) -> str:
    kind = chance.random()
    if kind < 0.4:
        return "".join(chance.choices(_HAN, k=6))
    if kind < 0.8:
        return f"{chance.choice(_NAMES)}_{chance.choice(_NAMES)}_{number}".upper()
    return f"{chance.choice(_NAMES)}-{number} {''.join(chance.choices(_HAN, k=2))}"


def _write(database: Database, folder: Path, documents: list[KeywordEntry], model: str) -> None:
    now = datetime.now(UTC)
    rows = []
    for entry in documents:
        file = folder / entry.file_path
        file.parent.mkdir(parents=True, exist_ok=True)
        fields = {"title": entry.title, "keywords": list(entry.keywords)}
        front_matter = f"title: {entry.title}\nkeywords: [{', '.join(entry.keywords)}]"
        raw = f"---\n{front_matter}\n---\n\n{_text(entry)}".encode()
        file.write_bytes(raw)
        rows.append(
            {
                "file_path": entry.file_path,
                "file_path_hash": exact_hash(entry.file_path),
                "title": entry.title,
                "category": entry.domain,
                "content_hash": content_hash(raw),
                "status": "ready",
                "chunk_count": 1,
                "embedding_model": model,
                "metadata": json.dumps(fields, ensure_ascii=False),
                "created_at": now,
                "updated_at": now,
            }
        )
    database.write(lambda connection: connection.execute(insert(api_document), rows))


def _text(entry: KeywordEntry) -> str:
    sections = [f"## {keyword}\n\n{_PARAGRAPH * 2}" for keyword in entry.keywords]
    return "\n\n".join([f"# {entry.title}", *sections]) + "\n"
