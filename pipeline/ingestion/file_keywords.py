"""What the keyword index needs of the documents, read from their files."""

import logging
from collections.abc import Iterator

from knowledge_lookup.pipeline.ingestion.front_matter import UnreadableDocumentError
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.ingestion.source_document import read_source_document
from knowledge_lookup.retrievers.document_reader import DocumentNotFoundError
from knowledge_lookup.retrievers.keyword_match import KeywordEntry

_LOGGER = logging.getLogger(__name__)


def keyword_entries_of(files: KnowledgeFiles) -> Iterator[KeywordEntry]:
    """Read the entries of all documents from their files; one that can't be read is passed over, with a warning.

    A category that was given on upload is only known to the database: such a document has that of its front matter.

    :param files: The folder of documents.
    :returns: The entries, in order of the paths.
    :raises KnowledgeBaseError: If the base path isn't a folder or can't be read.
    """
    for file_path in files.scan():
        if not isinstance(file_path, str):
            continue
        try:
            document = read_source_document(files.read(file_path), file_path=file_path)
        except (DocumentNotFoundError, UnreadableDocumentError) as error:
            _LOGGER.warning("'%s' is left out of the keyword index: %s", file_path, error)
            continue
        yield document.keyword_entry()
