"""The two texts of a domain, from its documents: by the language model, or composed where there is none."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.llms import LLM

from knowledge_lookup.agents.json_answer import read_json_answer, text_of
from knowledge_lookup.agents.json_text import json_text
from knowledge_lookup.agents.language_model import BoundedChat, LanguageModelError, is_language_model
from knowledge_lookup.agents.prompts import read_prompt
from knowledge_lookup.pipeline.document_traits import covers, when_to_retrieve
from knowledge_lookup.pipeline.storage import DocumentRecord
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.text_cut import cut

_MOST_MATERIAL_CHARACTERS = 6_000
_DESCRIPTION_CHARACTERS = 200
_WHEN_CHARACTERS = 300
_COMPOSED_WHEN_CHARACTERS = 240
_LEAST_SHARE_CHARACTERS = 40
_SENTENCE_ENDS = " 。.；;"
_SEPARATORS: dict[Locale, str] = {"zh": "；", "en": "; "}
_MORE: dict[Locale, str] = {"zh": "；另有 {count} 篇文档", "en": "; and {count} more documents"}


@dataclass(frozen=True, slots=True)
class DomainTexts:
    """What is said about a domain.

    :param description: What it holds; at most 200 characters, or a few more where documents are left out.
    :param when_to_retrieve: The situations in which to search it; at most 300 characters.
    """

    description: str
    when_to_retrieve: str


class DomainDescriber:
    """Writes the texts of a domain.

    :param llm: The language model; with None or the embedded extractive responder the texts are composed from the
        documents' titles and their own ``whenToRetrieve`` or summary.
    :param locale: Language of the prompt and of the words between composed parts.
    """

    TIME_LIMIT_SECONDS = 20.0
    """How long one domain waits for the language model."""

    def __init__(self, llm: LLM | None, *, locale: Locale = "zh") -> None:
        self._chat = BoundedChat(llm, seconds=self.TIME_LIMIT_SECONDS) if is_language_model(llm) else None
        self._locale = locale

    def describe(self, domain_id: str, documents: Sequence[DocumentRecord]) -> DomainTexts:
        """Write the texts of a domain.

        :param domain_id: The domain.
        :param documents: All its documents, at least one.
        :returns: The texts.
        :raises LanguageModelError: If the language model fails or its answer lacks one of them.
        """
        if self._chat is None:
            return self._composed(documents)
        answer = self._chat.ask(read_prompt("domain-prompt", self._locale), _material(domain_id, documents))
        values = read_json_answer(answer, keys=("description", "when_to_retrieve")) or {}
        description = text_of(values.get("description"), limit=_DESCRIPTION_CHARACTERS)
        when = text_of(values.get("when_to_retrieve"), limit=_WHEN_CHARACTERS)
        if not description or not when:
            raise LanguageModelError("the language model's answer lacks description or when_to_retrieve")
        return DomainTexts(description, when)

    def _composed(self, documents: Sequence[DocumentRecord]) -> DomainTexts:
        return DomainTexts(
            description=self._joined((document.title for document in documents), limit=_DESCRIPTION_CHARACTERS),
            when_to_retrieve=self._joined(map(when_to_retrieve, documents), limit=_COMPOSED_WHEN_CHARACTERS),
        )

    def _joined(self, texts: Iterable[str], *, limit: int) -> str:
        """Join texts; what is too long together is shortened first, and then left out and counted."""
        separator = _SEPARATORS[self._locale]
        parts = [text.strip(_SENTENCE_ENDS) for text in texts]
        if sum(map(len, parts)) + len(separator) * (len(parts) - 1) > limit:
            share = max(limit // len(parts) - len(separator), _LEAST_SHARE_CHARACTERS)
            parts = [cut(part, share).rstrip(_SENTENCE_ENDS + "，,、") for part in parts]
        ends = itertools.accumulate(len(part) + len(separator) for part in parts)
        fitting = max(sum(1 for _ in itertools.takewhile(lambda end: end <= limit + len(separator), ends)), 1)
        joined = separator.join(parts[:fitting])
        left_out = len(parts) - fitting
        return joined + _MORE[self._locale].format(count=left_out) if left_out else joined


def _material(domain_id: str, documents: Sequence[DocumentRecord]) -> str:
    """Return the documents as JSON, in as much detail as the model is given to read."""
    text = ""
    for detail in (_full, _without_covers, _title_alone):
        text = _material_text(domain_id, documents, detail)
        if len(text) <= _MOST_MATERIAL_CHARACTERS:
            return text
    share = _MOST_MATERIAL_CHARACTERS * len(documents) // len(text)
    return _material_text(domain_id, documents[: max(share, 1)], _title_alone, omitted=len(documents) - max(share, 1))


def _material_text(
    domain_id: str,
    documents: Sequence[DocumentRecord],
    detail: Callable[[DocumentRecord], dict[str, Any]],
    omitted: int = 0,
) -> str:
    material: dict[str, Any] = {"domain_id": domain_id, "documents": [detail(document) for document in documents]}
    if omitted:
        material["omitted"] = omitted
    return json_text(material)


def _full(document: DocumentRecord) -> dict[str, Any]:
    return _without_covers(document) | {"covers": list(covers(document))}


def _without_covers(document: DocumentRecord) -> dict[str, Any]:
    return _title_alone(document) | {"whenToRetrieve": when_to_retrieve(document)}


def _title_alone(document: DocumentRecord) -> dict[str, Any]:
    return {"title": cut(document.title, 100)}
