"""The domains of a knowledge base: what each is about, kept up to date as documents come and go."""

import logging
from collections.abc import Iterable

from llama_index.core.llms import LLM

from knowledge_lookup.agents.language_model import LanguageModelError
from knowledge_lookup.pipeline.domain_describer import DomainDescriber
from knowledge_lookup.pipeline.knowledge_map import render_knowledge_map
from knowledge_lookup.pipeline.storage import DocumentRecord, DocumentRepository, DocumentStatus, DomainRepository
from knowledge_lookup.postprocessors.completeness_hints import Locale

_LOGGER = logging.getLogger(__name__)


class KnowledgeDomainService:
    """Counts and describes the domains, and draws the map of them.

    :param domains: The rows of the domains.
    :param documents: The rows of the documents; those that are ready count.
    :param llm: The language model that describes the domains; with None or the embedded extractive responder the
        descriptions are composed from the documents.
    :param locale: Language of the prompt, and of the words in composed descriptions.
    """

    def __init__(
        self, domains: DomainRepository, documents: DocumentRepository, llm: LLM | None, *, locale: Locale = "zh"
    ) -> None:
        self._domains = domains
        self._documents = documents
        self._describer = DomainDescriber(llm, locale=locale)

    def refresh(self, domain_ids: Iterable[str]) -> None:
        """Bring domains up to date after documents of theirs were added, changed or removed.

        The counts of all are written first, then the descriptions. A domain without documents is deleted. Where the
        language model fails the last description stays; a domain that never had one has empty texts.

        :param domain_ids: The domains; each is done once.
        :raises DatabaseError: If the database can't be used.
        """
        counts = {domain_id: self._domains.recount(domain_id) for domain_id in sorted(set(domain_ids))}
        for domain_id, count in counts.items():
            if count:
                self._describe(domain_id)

    def ensure_all(self) -> None:
        """Bring those domains up to date that have no row or a wrong count; usually there are none.

        :raises DatabaseError: If the database can't be used.
        """
        self.refresh(self._domains.outdated())

    def build_knowledge_map(self, *, max_characters: int | None = None) -> str:
        """Describe all domains and their documents as YAML, for a planner's prompt.

        :param max_characters: Most characters, at least 100; what doesn't fit is shortened or left out, and what is
            left out is said. None: 999, and 150 more for each document beyond six, up to 4,000.
        :returns: A list of domains with ``domain_id``, ``description``, ``when_to_retrieve`` and ``documents``
            (``title`` and ``covers``); empty when there is no domain.
        :raises DatabaseError: If the database can't be read.
        """
        domains = self._domains.list()
        if not domains:
            return ""
        documents: dict[str, list[DocumentRecord]] = {domain.domain_id: [] for domain in domains}
        for document in self._documents.list():
            if document.status is DocumentStatus.READY and document.category in documents:
                documents[document.category].append(document)
        return render_knowledge_map(domains, documents, max_characters=max_characters)

    def _describe(self, domain_id: str) -> None:
        documents = [
            document for document in self._documents.list(domain_id) if document.status is DocumentStatus.READY
        ]
        if not documents:
            return  # the last one has gone since they were counted
        try:
            texts = self._describer.describe(domain_id, documents)
        except LanguageModelError as error:
            _LOGGER.warning("domain %s: its description stays as it was: %s", domain_id, error)
            return
        self._domains.describe(domain_id, description=texts.description, when_to_retrieve=texts.when_to_retrieve)
