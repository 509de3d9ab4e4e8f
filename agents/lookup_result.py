"""What a look-up tells the LLM: texts, sources, level and memory, and never a raw score."""

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from knowledge_lookup.agents.json_text import json_text
from knowledge_lookup.postprocessors import RelevanceLevel


class _ForTheModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class PrimaryResult(_ForTheModel):
    """The best exact match.

    :param content: The part of the document that holds the matched terms, at most 2,000 characters.
    :param source: Path of the document, beginning with the base path's own name.
    :param match_type: Always ``exact_L0``.
    :param confidence: ``high`` exactly when the match accounts for the whole query with one document.
    """

    content: str
    source: str
    match_type: Literal["exact_L0"] = "exact_L0"
    confidence: Literal["high", "low"]


class SupplementResult(_ForTheModel):
    """The passages that semantic search adds.

    :param content: Up to three passages, each labelled with source and section, at most 2,000 characters in all.
    :param source: Path of the best passage's document.
    :param match_type: Always ``semantic_L1``.
    """

    content: str
    source: str
    match_type: Literal["semantic_L1"] = "semantic_L1"


class Alternative(_ForTheModel):
    """Another document that matched, without its text.

    :param title: The document's title.
    :param source: Path of the document.
    """

    title: str
    source: str


class PassageSpan(NamedTuple):
    """Where delivered text comes from.

    :param file_path: The document, relative to the base path.
    :param start: Offset of the first character in the document's body (without front matter), from 0.
    :param end: Offset behind the last one.
    """

    file_path: str
    start: int
    end: int


class LookupResult(_ForTheModel):
    """The result of one look-up. ``str(result)`` is the JSON that the LLM reads.

    :param found: Whether anything is delivered.
    :param primary: The best exact match; None if there's none.
    :param supplement: Passages of semantic search; None if there are none.
    :param message: What else the LLM must know: why nothing is delivered; None where nothing needs saying.
    :param relevance_level: How good the result is; None when nothing was found.
    :param completeness_hint: Whether searching on is worth it; None when nothing was found.
    :param retrieved_domains_this_session: Domains of which the session has been given something, this result
        included, in order of first retrieval; empty without a session.
    :param available_sections: Titles of sections that the session hasn't been given, of the document that is delivered
        or was asked for; each can be asked for with ``section_title``. None if there are none.
    :param alternatives: At most five other documents that matched by keyword; None if there are none.
    :param passages: Where the delivered texts come from, for the application; not part of the JSON.
    """

    found: bool
    primary: PrimaryResult | None = None
    supplement: SupplementResult | None = None
    message: str | None = None
    relevance_level: RelevanceLevel | None = None
    completeness_hint: str | None = None
    retrieved_domains_this_session: tuple[str, ...] = Field(default=())
    available_sections: tuple[str, ...] | None = None
    alternatives: tuple[Alternative, ...] | None = None
    passages: tuple[PassageSpan, ...] = Field(default=(), exclude=True)

    def to_json(self) -> str:
        """Return the compact JSON for the LLM, camelCase, without the parts that are absent.

        Whatever could pass for a line end or isn't seen is escaped, so that a document's text ends where its string
        does.

        :returns: One line of JSON.
        """
        return json_text(self.model_dump(by_alias=True, exclude_none=True))

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of what is delivered, the primary's first."""
        delivered = [part.source for part in (self.primary, self.supplement) if part is not None]
        return tuple(dict.fromkeys(delivered))

    def __str__(self) -> str:
        return self.to_json()
