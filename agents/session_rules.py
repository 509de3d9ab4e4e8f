"""What a session may ask for, and when two of its questions are nearly the same."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionRules:
    """The rules for each session; None switches a rule off.

    :param max_lookups: Most look-ups of a session, at least 1.
    :param max_lookups_per_domain: Most look-ups of a session that deliver something of the same domain, at least 1.
    :param max_characters: Most characters of text that a session is given, at least 1.
    :param same_question_similarity: Cosine of two queries' vectors from which on they ask nearly the same, if the
        keyword match has the same outcome; 0 to 1, higher is stricter. Depends on the embedding model.
    :raises ValueError: A number is out of its range.
    """

    max_lookups: int | None = None
    max_lookups_per_domain: int | None = None
    max_characters: int | None = None
    same_question_similarity: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_lookups", "max_lookups_per_domain", "max_characters"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1, or None for no limit")
        similarity = self.same_question_similarity
        if similarity is not None and not 0 <= similarity <= 1:
            raise ValueError(f"same_question_similarity is {similarity}; it must lie between 0 and 1")
