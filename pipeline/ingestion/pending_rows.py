"""Writing the rows of documents before their chunks, with the fields that a language model adds."""

from collections.abc import Mapping, Sequence
from typing import Any

from knowledge_lookup.pipeline.ingestion.document_batch import DocumentInBatch
from knowledge_lookup.pipeline.ingestion.document_fields import DocumentFieldGenerator
from knowledge_lookup.pipeline.ingestion.source_document import SourceDocument
from knowledge_lookup.pipeline.storage import DocumentRecord, DocumentRepository, DocumentValues, UnstorableValueError

_GENERATED = ("covers", "whenToRetrieve")


class PendingRows:
    """Writes rows with status ``pending``.

    :param documents: The rows.
    :param fields: Generates what the author didn't write.
    :param embedding_model: Name of the model that will embed the chunks.
    """

    def __init__(self, documents: DocumentRepository, fields: DocumentFieldGenerator, *, embedding_model: str) -> None:
        self._documents = documents
        self._fields = fields
        self._embedding_model = embedding_model

    def write(self, entries: Sequence[DocumentInBatch]) -> None:
        """Write rows in one transaction; a document that doesn't fit the database is marked as skipped.

        :param entries: The documents.
        :raises DatabaseError: If the database can't be used.
        """
        generated = [self._generated(entry.document, entry.before) for entry in entries if entry.document is not None]
        try:
            self._documents.ensure_all_pending(
                [self._values(entry, fields) for entry, fields in zip(entries, generated, strict=True)]
            )
        except UnstorableValueError:
            # Nothing was written: one by one, to find out whose fault it is.
            for entry, fields in zip(entries, generated, strict=True):
                self._write_one(entry, fields)

    def _write_one(self, entry: DocumentInBatch, generated: Mapping[str, Any]) -> None:
        try:
            self._documents.ensure_all_pending([self._values(entry, generated)])
        except UnstorableValueError:
            # What was generated may be a little too much for a front matter that just fits.
            try:
                self._documents.ensure_all_pending([self._values(entry, {})])
            except UnstorableValueError as error:
                entry.document, entry.outcome, entry.reason = None, "skipped", str(error)

    def _values(self, entry: DocumentInBatch, generated: Mapping[str, Any]) -> DocumentValues:
        document = entry.document
        assert document is not None
        return DocumentValues(
            file_path=document.file_path,
            title=document.title,
            category=document.domain,
            content_hash=document.content_hash,
            embedding_model=self._embedding_model,
            metadata={**document.metadata, **generated},
        )

    def _generated(self, document: SourceDocument, before: DocumentRecord | None) -> dict[str, Any]:
        if before is not None and before.content_hash == document.content_hash:
            # The same text, embedded anew: a language model need not be asked again.
            return {key: before.metadata[key] for key in _GENERATED if key in before.metadata}
        return self._fields.generate(document).to_metadata()
