"""What the tests of the action memory's stores share."""

from collections.abc import Sequence
from typing import Protocol

from knowledge_lookup.agents.action_memory_store import ActionMemoryStore
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup, Way
from knowledge_lookup.retrievers.text_span import TextSpan

TTL = 100.0


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class StoreFactory(Protocol):
    """Opens stores; all that it opens share their sessions."""

    def __call__(self, *, ttl_seconds: float = TTL, max_sessions: int = 1000) -> ActionMemoryStore: ...


def documents(store: ActionMemoryStore, session_id: str) -> frozenset[str]:
    """Read the documents of a session."""
    return store.recall(session_id).documents


def domains(store: ActionMemoryStore, session_id: str) -> list[str]:
    """Read the domains of a session."""
    return list(store.recall(session_id).domains)


def text_of(
    file_path: str, *sections: str, way: Way = "exact", domain: str = "api", spans: Sequence[tuple[int, int]] = ()
) -> DeliveredText:
    """Make a delivered text."""
    return DeliveredText(
        domain=domain,
        file_path=file_path,
        version="v1",
        way=way,
        sections=sections,
        spans=tuple(TextSpan(*span) for span in spans),
        part="" if way == "exact" else f"{', '.join(sections)} #0",
    )


def looked_up(number: int, *delivered: DeliveredText) -> RememberedLookup:
    """Make a look-up; without texts one that found nothing."""
    outcome = "delivered" if delivered else "nothing"
    parts = ("" if text.way == "exact" else f"{', '.join(text.sections)} #{number}" for text in delivered)
    claimed = tuple(text.model_copy(update={"part": part}) for text, part in zip(delivered, parts, strict=True))
    return RememberedLookup(
        number=number, question=f"question {number}", corpus="corpus", outcome=outcome, delivered=claimed
    )
