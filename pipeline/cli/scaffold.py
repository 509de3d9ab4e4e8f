"""``knowledge-lookup init``: what a new knowledge base needs, never overwriting what is there."""

from importlib.resources import as_file, files
from pathlib import Path
from shutil import copyfile

from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.pipeline.storage import Database

SETTINGS_FILE = "knowledge-lookup.yml"
_SETTINGS_TEMPLATE = """\
# Settings of knowledge-lookup. Every key has a default; what you don't need can go.
# The environment wins over this file: KNOWLEDGE_LOOKUP_MILVUS__URI, KNOWLEDGE_LOOKUP_LLM__API_KEY, ...

knowledge:
  base-path: knowledge_base/
data-dir: .knowledge-lookup/        # embedded database, Milvus Lite

# database: {url: "mysql+pymysql://user:password@host/knowledge"}
# milvus: {uri: "http://localhost:19530"}
# embedding: {provider: huggingface, model: BAAI/bge-m3}
# llm: {provider: openai-like, base-url: "http://localhost:8000/v1", model: qwen2.5-7b-instruct}
locale: zh                          # zh | en
"""


def create_knowledge_base(config: Path | None) -> list[str]:
    """Create settings file, documents and database, as far as they aren't there.

    :param config: Settings file to use; None for ``knowledge-lookup.yml`` in the working directory, which is
        written if it doesn't exist.
    :returns: One line for each thing done or found.
    :raises KnowledgeLookupError: If the settings aren't valid or something can't be written.
    """
    try:
        return _create(config)
    except OSError as error:
        raise KnowledgeBaseError(
            f"'{error.filename}' can't be written ({error.strerror}): check the folder's permissions and free space"
        ) from error


def _create(config: Path | None) -> list[str]:
    done: list[str] = []
    if config is None:
        path = Path(SETTINGS_FILE)
        if path.exists():
            done.append(f"kept {path}")
        else:
            path.write_text(_SETTINGS_TEMPLATE, encoding="utf-8")
            done.append(f"wrote {path}")
    settings = Settings.load(config)
    base_path = settings.knowledge.base_path
    if base_path.is_dir() and any(base_path.iterdir()):
        done.append(f"kept {base_path} and its documents")
    else:
        copied = _copy_bundled_documents(base_path)
        done.append(f"copied {copied} bundled documents to {base_path}")
    database = Database(settings.database.url, data_dir=settings.data_dir)
    try:
        database.upgrade()
        done.append(f"database is at {database.current_revision()}")
    finally:
        database.close()
    done.append('next: knowledge-lookup chat "支付网关返回 ERR_TIMEOUT，怎么排查？"')
    return done


def _copy_bundled_documents(base_path: Path) -> int:
    copied = 0
    with as_file(files("knowledge_lookup.knowledge_base")) as bundled:
        for source in sorted(bundled.rglob("*.md")):
            target = base_path / source.relative_to(bundled)
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(source, target)
            copied += 1
    return copied
