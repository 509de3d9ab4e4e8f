"""A document of the knowledge base as its file says it is."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from knowledge_lookup.pipeline.ingestion.front_matter import FrontMatterWarning, ParsedDocument, parse_front_matter
from knowledge_lookup.retrievers.keyword_match import KeywordEntry
from knowledge_lookup.retrievers.markdown_sections import split_sections

GENERAL_DOMAIN = "general"


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One file, read and parsed.

    :param file_path: Path relative to the base path, ``/`` as separator.
    :param title: The front matter's title, else the first heading, else the file's name without its ending.
    :param domain: The front matter's category, else the first folder, else ``general``.
    :param keywords: The front matter's keywords.
    :param body: The text without front matter.
    :param metadata: The whole front matter as JSON values.
    :param content_hash: sha256 of the file's bytes, hexadecimal.
    :param warnings: What had to be mended to read the file.
    """

    file_path: str
    title: str
    domain: str
    keywords: tuple[str, ...]
    body: str
    metadata: Mapping[str, Any]
    content_hash: str
    warnings: tuple[FrontMatterWarning, ...]

    def keyword_entry(self) -> KeywordEntry:
        """Return what the keyword index needs of the document."""
        return KeywordEntry(
            file_path=self.file_path,
            title=self.title,
            domain=self.domain,
            keywords=tuple(self.keywords),
            has_title=has_own_title(self.file_path, self.title, self.metadata),
            content_hash=self.content_hash,
        )


def content_hash(raw: bytes) -> str:
    """Hash a file's content.

    :param raw: The file's bytes.
    :returns: sha256, 64 hexadecimal digits.
    """
    return hashlib.sha256(raw).hexdigest()


EXPLICIT_CATEGORY = "explicitCategory"
"""Metadata key under which a category given on upload is kept, so that later versions of the file stay in it."""


def read_source_document(raw: bytes, *, file_path: str, explicit_category: str | None = None) -> SourceDocument:
    """Parse a file.

    :param raw: The file's bytes.
    :param file_path: Path relative to the base path.
    :param explicit_category: A category given on upload; wins over the front matter and the folder.
    :returns: The document.
    :raises UnreadableDocumentError: If the file has no honest reading.
    """
    parsed = parse_front_matter(raw, file_path=file_path)
    front_matter = parsed.front_matter
    metadata = front_matter.to_metadata()
    if explicit_category is not None:
        metadata[EXPLICIT_CATEGORY] = explicit_category
    return SourceDocument(
        file_path=file_path,
        title=_title(parsed, file_path),
        domain=domain_of(front_matter.category if explicit_category is None else explicit_category, file_path),
        keywords=front_matter.keywords,
        body=parsed.body,
        metadata=metadata,
        content_hash=content_hash(raw),
        warnings=parsed.warnings,
    )


def has_own_title(file_path: str, title: str, metadata: Mapping[str, Any]) -> bool:
    """Tell whether a title was written by the author, rather than made of the file's name.

    :param file_path: Path relative to the base path.
    :param title: The title.
    :param metadata: The front matter.
    :returns: False for a document without title and heading.
    """
    return bool(metadata.get("title")) or title != PurePosixPath(file_path).stem


def domain_of(category: str | None, file_path: str) -> str:
    """Tell the domain of a document.

    :param category: The front matter's category.
    :param file_path: Path relative to the base path.
    :returns: The category; without one the first folder; for a file in the root ``general``.
    """
    if category is not None and category.strip():
        return category.strip()
    folders = PurePosixPath(file_path).parts[:-1]
    return folders[0] if folders else GENERAL_DOMAIN


def _title(parsed: ParsedDocument, file_path: str) -> str:
    if parsed.front_matter.title is not None:
        return parsed.front_matter.title
    for section in split_sections(parsed.body):
        if section.heading:
            return section.heading
    return PurePosixPath(file_path).stem
