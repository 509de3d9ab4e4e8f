"""What the row of a document says about what the document is for."""

from knowledge_lookup.agents.json_answer import text_of, texts_of
from knowledge_lookup.pipeline.storage import DocumentRecord

_MOST_COVERS = 20
_MOST_CHARACTERS = 500


def covers(record: DocumentRecord) -> tuple[str, ...]:
    """Return the topics that a document covers.

    :param record: Its row.
    :returns: At most 20 topics of at most 500 characters, one line each.
    """
    return texts_of(record.metadata.get("covers"), count=_MOST_COVERS, limit=_MOST_CHARACTERS)


def when_to_retrieve(record: DocumentRecord) -> str:
    """Return the situation in which to retrieve a document.

    :param record: Its row.
    :returns: One line of at most 500 characters: ``whenToRetrieve``, else the summary, else the title.
    """
    wordings = (record.metadata.get("whenToRetrieve"), record.metadata.get("summary"), record.title)
    return next(filter(None, (text_of(wording, limit=_MOST_CHARACTERS) for wording in wordings)), record.title)
