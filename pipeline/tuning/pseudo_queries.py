"""Queries made of a corpus itself, for tuning without labels."""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from knowledge_lookup.pipeline.evaluation.labelled_queries import LabelledQuery
from knowledge_lookup.retrievers.markdown_sections import split_sections
from knowledge_lookup.retrievers.search_terms import query_terms

_SEED = 0
_SENTENCES_A_DOCUMENT = 2
_FEWEST_TERMS, _MOST_TERMS = 4, 16
"""As long as questions are: what a query says in all is part of the evidence."""
_SENTENCE_END = re.compile(r"[。！？!?；;，,：:\n]|\.\s")
_MARKUP = re.compile(r"[|`{}<>=\[\]$#*]|//")
_SUMMARY_FIELDS = ("summary", "whenToRetrieve", "description")

OUTSIDE = "outside"
"""Kind of a query made of front matter that isn't part of what is searched: it has an answer."""
SENTENCE = "sentence"
"""Kind of a query made of a sentence of the text: asked only with its document left out."""


@dataclass(frozen=True, slots=True)
class CorpusDocument:
    """A document as queries are made of it.

    :param file_path: Its path.
    :param domain: Its domain.
    :param metadata: Its metadata as its row has them; ``whenToRetrieve`` may be generated, or a copy of the summary.
    :param body: Its text without front matter.
    """

    file_path: str
    domain: str
    metadata: Mapping[str, Any]
    body: str


def pseudo_queries(documents: Iterable[CorpusDocument], *, most: int) -> list[LabelledQuery]:
    """Make queries of documents.

    Summaries and notes on when to retrieve a document are questions' nearest relatives, and stand in the front matter,
    which isn't searched: what they are scored against is not what they were made of. Clauses of the text come from what
    is searched; they are of use only with their document left out. Titles, headings and keywords are left alone: other
    documents use the same words with good reason, and the title is part of every passage.

    :param documents: The documents.
    :param most: Most queries, at least 1; more are sampled, always the same ones.
    :returns: The queries, gold being the document that each was made of, and the kind what it was made of.
    """
    queries = [query for document in documents for query in _of(document)]
    random.Random(_SEED).shuffle(queries)
    return queries[:most]


def _of(document: CorpusDocument) -> Iterator[LabelledQuery]:
    gold = frozenset({document.file_path})
    fields = [document.metadata.get(field) for field in _SUMMARY_FIELDS]
    texts = [text for value in fields for text in (value if isinstance(value, list) else [value])]
    for sentence in dict.fromkeys(_first_sentence(text) for text in texts if isinstance(text, str)):
        if sentence:
            yield LabelledQuery(sentence, gold, OUTSIDE)
    sentences = [
        sentence.strip()
        for section in split_sections(document.body)
        for sentence in _SENTENCE_END.split(document.body[section.text_start : section.end])
        if _is_like_a_question(sentence)
    ]
    chosen = random.Random(f"{_SEED} {document.file_path}").sample(
        sentences, min(len(sentences), _SENTENCES_A_DOCUMENT)
    )
    for sentence in chosen:
        yield LabelledQuery(sentence, gold, SENTENCE)


def _first_sentence(text: str) -> str:
    return next((part.strip() for part in _SENTENCE_END.split(text) if _is_like_a_question(part)), "")


def _is_like_a_question(text: str) -> bool:
    return not _MARKUP.search(text) and _FEWEST_TERMS <= len(query_terms(text)) <= _MOST_TERMS
