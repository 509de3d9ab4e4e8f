"""Documents of which the tests of the action memory know what each question finds, and how to ask."""

from sqlalchemy import text

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.knowledge_bases import document

STEPS = {
    "准备": "先检查磁盘空间。",
    "备份": "导出全部数据。",
    "停机": "停止写入流量。",
    "升级": "安装新版本的软件包。",
    "迁移": "执行表结构迁移脚本。",
    "校验": "对比行数与校验和。",
    "启动": "依次启动各个节点。",
    "观察": "观察十五分钟的监控。",
    "回滚": "恢复旧版本并导入备份。",
    "收尾": "清理临时文件。",
}
LONG_SENTENCES = [f"第{number}条规则说明一种限流情况，超过阈值的请求会被拒绝并返回状态码。" for number in range(150)]
DOCUMENTS = {
    "ops/steps.md": document(
        "# 升级手册\n\n" + "\n\n".join(f"## {title}\n\n{step}" for title, step in STEPS.items()),
        title="升级手册",
        keywords="[UPGRADE_GUIDE]",
        category="ops",
    ),
    "api/limits.md": document(
        "限流概览。\n\n## 限流规则\n\n" + "".join(LONG_SENTENCES) + "\n\n## 示例\n\n请求样例。\n\n"
        "## 配置\n\n### 示例\n\n配置样例。\n\n### 示例值\n\n每秒一百次。",
        title="接口限制",
        keywords="[RATE_LIMIT]",
        category="api",
    ),
    "api/short.md": document("只有一句话。", title="短文", keywords="[SHORT_KEY]", category="api"),
    "mix/cache.md": document(
        "## 缓存穿透\n\n话题甲：请求绕过缓存。\n\n## 缓存雪崩\n\n话题乙：缓存同时失效。\n\n## 热点\n\n单个键过热。",
        title="缓存问题",
        keywords="[CACHE_GUIDE]",
        category="infra",
    ),
    "mix/queue.md": document(
        "## 积压\n\n话题甲：消息积压。\n\n## 重复\n\n话题丙：重复消费。",
        title="消息队列",
        keywords="[QUEUE_GUIDE]",
        category="infra",
    ),
    "mix/both.md": document("## 概览\n\n话题甲与话题丁：概览。", title="概览文档", category="infra"),
}


SAY = MESSAGES["zh"]
"""The sentences of the pipeline."""


def reasons(pipeline: KnowledgePipeline) -> list[str | None]:
    """Read the reasons that the records give.

    :param pipeline: The pipeline that was asked.
    :returns: One a look-up, in order.
    """
    assert pipeline.recorder.flush(timeout=10)
    query = text("SELECT dedup_reason FROM tool_invocation ORDER BY created_at")
    with pipeline.database.engine.connect() as connection:
        return list(connection.execute(query).scalars())


def contents(result: LookupResult) -> str:
    """Put the texts of a result together.

    :param result: The result.
    :returns: What is delivered, as the model reads it.
    """
    return "\n".join(part.content for part in (result.primary, result.supplement) if part is not None)


def section(pipeline: KnowledgePipeline, query: str, title: str, session_id: str = "s1") -> LookupResult:
    """Ask for a section.

    :param pipeline: The pipeline.
    :param query: The query.
    :param title: The section's title.
    :param session_id: The session.
    :returns: The result.
    """
    return pipeline.lookup(query, session_id=session_id, section_title=title)
