"""What must be true of each part of a document that is given."""

import re
from collections.abc import Sequence

from knowledge_lookup.retrievers.document_text import DocumentText
from knowledge_lookup.retrievers.excerpt import GAP, Excerpt
from knowledge_lookup.retrievers.text_span import TextSpan


def visible(body: str, ranges: Sequence[TextSpan]) -> set[int]:
    return {at for start, end in ranges for at in range(start, end) if not body[at].isspace()}


def without_space(text: str) -> str:
    return "".join(text.split())


def assert_is_made_of_its_spans(document: DocumentText, part: Excerpt) -> None:
    """The text is its spans one after the other, but for gap signs, ends of cut code fences and white space."""
    pieces = [re.escape(without_space(document.body[start:end])) for start, end in part.spans]
    fence_end = "(`{3,}|~{3,})?"
    pattern = f"{fence_end}({without_space(GAP)})?".join(pieces) + fence_end
    assert re.fullmatch(pattern, without_space(part.text))


def assert_is_new(document: DocumentText, part: Excerpt, given_before: list[TextSpan], limit: int) -> None:
    assert len(part.text) <= limit
    seen = visible(document.body, given_before)
    for span in part.spans:
        own = visible(document.body, [span])
        assert not own & seen, "delivered twice"
        seen |= own
    assert list(part.spans) == sorted(part.spans)
    assert_is_made_of_its_spans(document, part)
