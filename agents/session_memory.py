"""What a session has asked and been given, and the questions that a look-up puts to that."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.text_span import TextSpan

BEST_FIRST = (RelevanceLevel.PRECISE, RelevanceLevel.HIGHLY_RELEVANT, RelevanceLevel.REFERENCE, None)
Way = Literal["exact", "semantic", "section"]
"""How a text came to be delivered: by keyword match, by semantic search, or because its section was asked for."""
Outcome = Literal["delivered", "withheld", "nothing", "refused", "unavailable"]
"""Of a look-up: it delivered something; all that it found had been given; it found nothing; a limit refused it;
semantic search failed and there was no exact match, so that nobody knows."""


class DeliveredText(BaseModel):
    """Text of one document that one look-up delivered.

    :param domain: The document's domain.
    :param file_path: The document.
    :param version: Identifies the text that the offsets belong to.
    :param way: How it came to be delivered.
    :param sections: Titles of the sections that it belongs to; none for an exact match that is the whole document.
    :param spans: Its ranges in the document's body; empty where the document's present text doesn't have it.
    :param lines: Identifies its lines, for other versions of the document.
    :param part: What of the document is claimed with it; empty for the document itself.
    """

    model_config = ConfigDict(frozen=True)

    domain: str
    file_path: str
    version: str
    way: Way
    sections: tuple[str, ...] = ()
    spans: tuple[TextSpan, ...] = ()
    lines: tuple[int, ...] = ()
    part: str = ""


class RememberedLookup(BaseModel):
    """One look-up of a session.

    :param number: Position in the session, from 1.
    :param question: Identifies the question; see :func:`question_key`. Empty where semantic search failed: such a
        question isn't answered, and may be asked again.
    :param corpus: Identifies the documents that there were.
    :param outcome: What came of it.
    :param delivered: What was delivered.
    :param withheld: Documents that would have been delivered if the session hadn't had them.
    :param characters: Characters of text that were delivered.
    :param level: Level of what was delivered; None where nothing was.
    :param matched: Identifies the outcome of the keyword match.
    :param embedding: The query's unit vector as 16-bit floats; None where semantic search didn't run.
    """

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    number: int
    question: str
    corpus: str
    outcome: Outcome
    delivered: tuple[DeliveredText, ...] = ()
    withheld: tuple[str, ...] = ()
    characters: int = 0
    level: RelevanceLevel | None = None
    matched: str = ""
    embedding: bytes | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on a document or on a part of it.

    :param domain: The document's domain.
    :param file_path: The document.
    :param section: The part; empty for the document itself.
    """

    domain: str
    file_path: str
    section: str = ""


class SessionMemory:
    """The memory of one session at one moment.

    :param claims: The session's claims, in their order.
    :param lookups: The session's look-ups, in their order.
    """

    def __init__(self, claims: Iterable[Claim] = (), lookups: Iterable[RememberedLookup] = ()) -> None:
        self.claims = tuple(claims)
        self.lookups = tuple(lookups)

    @property
    def next_number(self) -> int:
        """The number of the next look-up."""
        return self.lookups[-1].number + 1 if self.lookups else 1

    @cached_property
    def documents(self) -> frozenset[str]:
        """Documents of which the session has anything."""
        return frozenset(claim.file_path for claim in self.claims)

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Domains of which the session has anything, in order of the first."""
        return tuple(dict.fromkeys(claim.domain for claim in self.claims))

    @cached_property
    def whole(self) -> frozenset[str]:
        """Documents that were claimed as a whole, other than by an exact match of a look-up."""
        return frozenset(claim.file_path for claim in self.claims if not claim.section) - self._matched_exactly

    @cached_property
    def characters(self) -> int:
        """Characters of text that were delivered."""
        return sum(lookup.characters for lookup in self.lookups)

    def is_matched_exactly(self, file_path: str, version: str | None = None) -> bool:
        """Tell whether a document was delivered by exact match.

        :param file_path: The document.
        :param version: Only in this version; None for any.
        :returns: True if it was.
        """
        return any(text.way == "exact" and version in (None, text.version) for text in self._texts(file_path))

    def is_given(self, file_path: str, version: str) -> bool:
        """Tell whether anything of a document's text was delivered.

        :param file_path: The document.
        :param version: The text's version.
        :returns: True if it was.
        """
        return any(text.version == version for text in self._texts(file_path))

    def given(self, file_path: str, document: DocumentText) -> list[TextSpan]:
        """Tell what of a document's present text was delivered.

        :param file_path: The document.
        :param document: Its text.
        :returns: The ranges, in no order; of what an earlier version was given, the lines that are there still.
        """
        texts = self._texts(file_path)
        given = [span for text in texts if text.version == document.version for span in text.spans]
        earlier = {line for text in texts if text.version != document.version for line in text.lines}
        return [*given, *document.spans_of_lines(earlier)] if earlier else given

    def sections_given(self, file_path: str) -> dict[int, tuple[str, ...]]:
        """Tell which sections of a document were delivered by which look-up.

        :param file_path: The document.
        :returns: Numbers of look-ups, with the sections' titles.
        """
        return {
            lookup.number: text.sections
            for lookup in self.lookups
            for text in lookup.delivered
            if text.file_path == file_path
        }

    def latest_documents(self) -> list[str]:
        """List the documents of which look-ups delivered something.

        :returns: File paths, the latest first.
        """
        paths = [text.file_path for lookup in self.lookups for text in lookup.delivered]
        return list(dict.fromkeys(reversed(paths)))

    def lookups_delivering(self, domain: str) -> int:
        """Count the look-ups that delivered something of a domain.

        :param domain: The domain.
        :returns: Their number.
        """
        return sum(any(text.domain == domain for text in lookup.delivered) for lookup in self.lookups)

    def lookups_finding(self, domain: str) -> int:
        """Count the look-ups that delivered something of a domain, or found something there that was given before.

        :param domain: The domain.
        :returns: Their number.
        """
        known = {claim.file_path for claim in self.claims if claim.domain == domain}
        return sum(
            any(text.domain == domain for text in lookup.delivered) or not known.isdisjoint(lookup.withheld)
            for lookup in self.lookups
        )

    def domains_of(self, file_paths: Iterable[str]) -> list[str]:
        """Tell the domains of documents that the session has.

        :param file_paths: The documents.
        :returns: Their domains, each once.
        """
        wanted = set(file_paths)
        return list(dict.fromkeys(claim.domain for claim in self.claims if claim.file_path in wanted))

    def repeated(self, question: str, corpus: str) -> RememberedLookup | None:
        """Find the look-up that asked the same before, of the same documents.

        :param question: The question's key.
        :param corpus: Identifies the documents that there are now.
        :returns: The first such look-up that wasn't refused; None if there's none.
        """
        same = (lookup for lookup in self.lookups if lookup.question == question and lookup.corpus == corpus)
        return next((lookup for lookup in same if lookup.outcome != "refused"), None)

    def nearly_repeated(
        self, matched: str, embedding: Sequence[float] | None, similarity: float | None
    ) -> RememberedLookup | None:
        """Find the look-up that asked nearly the same before and delivered something of the best level.

        :param matched: The outcome of the keyword match, which must be the same.
        :param embedding: The query's unit vector.
        :param similarity: Cosine of the two queries' vectors from which on they are nearly the same; None for never.
        :returns: The look-up; None if there's none.
        """
        if similarity is None or embedding is None:
            return None
        vector = np.asarray(embedding, dtype=np.float32)
        near = [
            lookup
            for lookup in self.lookups
            if lookup.level is not None
            and lookup.embedding is not None
            and lookup.matched == matched
            and _cosine(unpacked(lookup.embedding), vector) >= similarity
        ]
        return min(near, key=lambda lookup: BEST_FIRST.index(lookup.level), default=None)

    def found_nothing_in_a_row(self) -> int:
        """Count the latest look-ups that found nothing, up to one that did.

        :returns: Their number.
        """
        count = 0
        for lookup in reversed(self.lookups):
            if lookup.outcome != "nothing":
                break
            count += 1
        return count

    @cached_property
    def _matched_exactly(self) -> frozenset[str]:
        return frozenset(text.file_path for lookup in self.lookups for text in lookup.delivered if text.way == "exact")

    def _texts(self, file_path: str) -> list[DeliveredText]:
        return [text for lookup in self.lookups for text in lookup.delivered if text.file_path == file_path]


def question_key(*parts: str) -> str:
    """Identify a question.

    :param parts: What makes it the same question: the tool, the query in normal form.
    :returns: 32 hexadecimal digits.
    """
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def packed(embedding: Sequence[float] | None) -> bytes | None:
    """Make a vector small enough to remember.

    :param embedding: The vector; None for none.
    :returns: 16-bit floats, little-endian: two bytes a dimension.
    """
    return None if embedding is None else np.asarray(embedding, dtype="<f2").tobytes()


def unpacked(embedding: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Undo :func:`packed`.

    :param embedding: 16-bit floats.
    :returns: The vector.
    """
    return np.frombuffer(embedding, dtype="<f2").astype(np.float32)


def _cosine(
    first: "np.ndarray[tuple[int], np.dtype[np.float32]]", second: "np.ndarray[tuple[int], np.dtype[np.float32]]"
) -> float:
    if first.shape != second.shape:
        return 0.0  # another model's
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norms if norms else 0.0
