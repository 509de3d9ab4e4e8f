"""Which terms stand in a text, and which documents have them: the table behind the keyword index."""

from collections.abc import Iterable, Iterator

from knowledge_lookup.retrievers.normal_form import character_kinds, token_spans

# Terms are filed under so many characters of their beginning.
_PREFIX_LENGTH = 2


class TermTable:
    """Terms in normal form with the paths of their documents.

    Terms are found by hash look-ups, not by walking over them: each is filed under its first two characters with its
    length, and at each position of a text only the lengths known for the two characters there are tried. Finding costs
    (length of the text) x (distinct lengths under one beginning) look-ups however many terms there are; adding and
    discarding touch only the terms given.

    Reading while another thread writes may give an answer that mixes old and new, but never fails: what a writer
    changes is only read in single steps (``get``, ``in``, ``list`` or ``sorted`` of a whole dictionary).
    """

    def __init__(self) -> None:
        # Most terms belong to one document: its path alone takes a quarter of the memory of a dictionary.
        self._paths: dict[str, str | dict[str, None]] = {}
        self._lengths: dict[str, dict[int, int]] = {}  # beginning -> length -> number of such terms

    def add(self, terms: Iterable[str], path: str) -> None:
        """File a document under its terms.

        :param terms: Non-empty terms in normal form, each once.
        :param path: The document's path.
        """
        for term in terms:
            paths = self._paths.get(term)
            if paths is None:
                self._paths[term] = path
                counts = self._lengths.setdefault(term[:_PREFIX_LENGTH], {})
                counts[len(term)] = counts.get(len(term), 0) + 1
            elif isinstance(paths, str):
                self._paths[term] = {paths: None, path: None}
            else:
                paths[path] = None

    def discard(self, terms: Iterable[str], path: str) -> None:
        """Take a document away from its terms; a term without documents is forgotten.

        :param terms: The terms with which the document was added.
        :param path: The document's path.
        """
        for term in terms:
            paths = self._paths[term]
            if not isinstance(paths, str):
                del paths[path]
            if isinstance(paths, str) or not paths:
                del self._paths[term]
                self._forget_length(term)

    def paths_of(self, term: str) -> list[str]:
        """Give the documents that have a term.

        :param term: The term in normal form.
        :returns: Their paths, empty when nobody has it.
        """
        paths = self._paths.get(term, ())
        return [paths] if isinstance(paths, str) else list(paths)

    def count(self, term: str) -> int:
        """Count the documents that have a term.

        :param term: The term in normal form.
        :returns: Their number.
        """
        paths = self._paths.get(term, ())
        return 1 if isinstance(paths, str) else len(paths)

    def has(self, term: str, path: str) -> bool:
        """Tell whether a document has a term.

        :param term: The term in normal form.
        :param path: The document's path.
        :returns: True if it has.
        """
        paths = self._paths.get(term, ())
        return path == paths if isinstance(paths, str) else path in paths

    def longest_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Find where terms stand in a text, without those inside a longer one.

        An end of a term that is a letter, a digit or ``_`` of another script than CJK must be a token's end.

        :param text: A text in normal form.
        :returns: Half-open spans in order; they may overlap, but none contains another.
        """
        kinds = character_kinds(text)
        tokens = token_spans(text)
        token_starts = {start for start, _ in tokens}
        token_ends = {end for _, end in tokens}
        reached = 0
        for start, kind in enumerate(kinds):
            if kind == "w" and start not in token_starts:
                continue
            for end in self._possible_ends(text, start):
                if end <= reached:
                    break  # inside a longer one that began earlier
                if (kinds[end - 1] != "w" or end in token_ends) and text[start:end] in self._paths:
                    reached = end
                    yield start, end
                    break

    def _possible_ends(self, text: str, start: int) -> Iterator[int]:
        """Say where a term that begins here may end by the known lengths, the farthest first."""
        for prefix in (text[start : start + _PREFIX_LENGTH], text[start]):
            for length in sorted(self._lengths.get(prefix, ()), reverse=True):
                if start + length <= len(text):
                    yield start + length

    def _forget_length(self, term: str) -> None:
        prefix = term[:_PREFIX_LENGTH]
        counts = self._lengths[prefix]
        counts[len(term)] -= 1
        if counts[len(term)] == 0:
            del counts[len(term)]
        if not counts:
            del self._lengths[prefix]
