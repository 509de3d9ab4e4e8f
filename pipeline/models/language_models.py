"""From settings to a language model."""

from llama_index.core.llms import LLM

from knowledge_lookup.agents.extractive_llm import ExtractiveLLM
from knowledge_lookup.pipeline.errors import ConfigurationError, MissingExtraError
from knowledge_lookup.pipeline.settings import LlmSettings
from knowledge_lookup.postprocessors.completeness_hints import Locale

_NO_KEY = "none"
_RETRIES = 2
"""LlamaIndex takes the number twice, for itself and for the client in it: six attempts, within some seconds where the
endpoint refuses at once, while its own default makes twelve of them."""
_CONTEXT_WINDOW = 32_768
"""Tokens. LlamaIndex assumes 3,900 where nothing is said, and its chat memory would then drop a result of 2,000
Chinese characters before the model has answered from it."""


def build_llm(settings: LlmSettings, *, locale: Locale = "zh") -> LLM:
    """Build the language model that the settings name.

    :param settings: The section ``llm``.
    :param locale: Language of the embedded responder.
    :returns: The embedded extractive responder, or a client of an OpenAI-compatible endpoint (vLLM, Ollama,
        DashScope, DeepSeek, OpenAI).
    :raises MissingExtraError: If the provider's packages aren't installed.
    :raises ConfigurationError: If the provider needs a setting that is missing.
    """
    if settings.provider == "extractive":
        return ExtractiveLLM(locale=locale)
    try:
        from llama_index.llms.openai_like import OpenAILike
    except ImportError as error:
        raise MissingExtraError("openai", needed_for="llm.provider: openai-like") from error
    if settings.base_url is None or settings.model is None:
        raise ConfigurationError(
            "llm.provider openai-like needs llm.base-url (for example http://localhost:8000/v1) and llm.model"
        )
    llm: LLM = OpenAILike(
        model=settings.model,
        api_base=settings.base_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key is not None else _NO_KEY,
        context_window=_CONTEXT_WINDOW,
        timeout=settings.timeout_seconds,
        max_retries=_RETRIES,
        is_chat_model=True,
        # The executor speaks the ReAct format in plain text: any chat model will do.
        is_function_calling_model=False,
    )
    return llm
