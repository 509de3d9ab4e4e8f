"""What a document covers and when to retrieve it, written by the language model where its author didn't."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_index.core.llms import LLM

from knowledge_lookup.agents.json_answer import read_json_answer, text_of, texts_of
from knowledge_lookup.agents.json_text import json_text
from knowledge_lookup.agents.language_model import BoundedChat, LanguageModelError, is_language_model
from knowledge_lookup.agents.prompts import read_prompt
from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument
from knowledge_lookup.postprocessors.completeness_hints import Locale
from knowledge_lookup.retrievers.text_cut import cut

_LOGGER = logging.getLogger(__name__)

_COVERS = "covers"
_WHEN = "whenToRetrieve"
_BODY_CHARACTERS = 1_000
_MOST_COVERS = 8
_COVER_CHARACTERS = 80
_WHEN_CHARACTERS = 300
_SUMMARY_CHARACTERS = 2_000
"""Where a longer summary stands in for ``whenToRetrieve`` it is cut: a row holds both, and 60,000 bytes at most."""


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """The two fields by which a document is chosen.

    :param covers: The topics that it covers; empty if nobody wrote them.
    :param when_to_retrieve: The situation in which to retrieve it; empty if nobody wrote it and there is no summary.
    """

    covers: tuple[str, ...]
    when_to_retrieve: str

    def to_metadata(self) -> dict[str, Any]:
        """Give the fields as the document's metadata spells them.

        :returns: ``covers`` and ``whenToRetrieve``.
        """
        return {_COVERS: list(self.covers), _WHEN: self.when_to_retrieve}


class DocumentFieldGenerator:
    """Completes the fields of a document; whatever the language model does, a document gets them.

    A field that the author wrote stays. The others are generated from title, summary and the first 1,000 characters of
    the body; where that fails, or without a language model, ``covers`` is empty and ``when_to_retrieve`` the summary.

    :param llm: The language model; None and the embedded extractive responder are not asked.
    :param locale: Language of the prompt. The fields are in the document's language.
    """

    TIME_LIMIT_SECONDS = 20.0
    """How long one document waits for the language model."""

    def __init__(self, llm: LLM | None, *, locale: Locale = "zh") -> None:
        self._chat = BoundedChat(llm, seconds=self.TIME_LIMIT_SECONDS) if is_language_model(llm) else None
        self._locale = locale

    @property
    def asks_language_model(self) -> bool:
        """Whether a language model is asked about documents."""
        return self._chat is not None

    def generate(self, document: SourceDocument) -> DocumentFields:
        """Return the fields of a document. What goes wrong with the language model is logged, never raised.

        :param document: The document.
        :returns: Its fields: those of the author, completed.
        """
        written = _written(document.metadata)
        if self._chat is None or (written.covers and written.when_to_retrieve):
            return _completed(written, _fallback(document))
        generated = self._generated(document, self._chat)
        return _completed(_completed(written, generated), _fallback(document))

    def _generated(self, document: SourceDocument, chat: BoundedChat) -> DocumentFields:
        material = {
            "title": document.title,
            "summary": _text(document.metadata.get("summary")),
            "body": document.body.strip()[:_BODY_CHARACTERS],
        }
        try:
            answer = chat.ask(read_prompt("document-fields-prompt", self._locale), json_text(material))
        except LanguageModelError as error:
            _warn(document, str(error))
            return DocumentFields((), "")
        values = read_json_answer(answer, keys=(_COVERS, _WHEN)) or {}
        fields = DocumentFields(
            covers=texts_of(values.get(_COVERS), count=_MOST_COVERS, limit=_COVER_CHARACTERS),
            when_to_retrieve=text_of(values.get(_WHEN), limit=_WHEN_CHARACTERS),
        )
        missing = [name for name, value in fields.to_metadata().items() if not value]
        if missing:
            _warn(document, f"the language model's answer has no usable {' and no '.join(missing)}")
        return fields


def _written(metadata: Mapping[str, Any]) -> DocumentFields:
    covers = metadata.get(_COVERS) or ()
    return DocumentFields(
        covers=tuple(str(topic) for topic in covers if str(topic).strip()),
        when_to_retrieve=_text(metadata.get(_WHEN)),
    )


def _fallback(document: SourceDocument) -> DocumentFields:
    return DocumentFields((), cut(_text(document.metadata.get("summary")), _SUMMARY_CHARACTERS))


def _completed(fields: DocumentFields, others: DocumentFields) -> DocumentFields:
    return DocumentFields(
        covers=fields.covers or others.covers, when_to_retrieve=fields.when_to_retrieve or others.when_to_retrieve
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else ""


def _warn(document: SourceDocument, reason: str) -> None:
    _LOGGER.warning("%s: covers and whenToRetrieve not generated as wanted: %s", document.file_path, reason)
