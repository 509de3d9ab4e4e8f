"""Look-ups that go on in threads while a test stops and starts servers, and what became of each."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline

EXACT = ("ERR_TIMEOUT", "payment-errors.md")
"""A keyword of one document, and its end of path."""
IN_OTHER_WORDS = "付款之后钱扣了但是订单没有成功怎么办"
"""A question that only semantic search answers."""
_PAUSE_SECONDS = 0.02


@dataclass
class Traffic:
    """Everything that was looked up.

    :param exact: Results of the keyword, each in a session of its own.
    :param semantic: Results of the question.
    :param seconds: How long each look-up took.
    :param errors: What was raised.
    """

    exact: list[LookupResult] = field(default_factory=list)
    semantic: list[LookupResult] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Look-ups that came to an end."""
        return len(self.exact) + len(self.semantic)


@contextmanager
def traffic(pipeline: KnowledgePipeline) -> Iterator[Traffic]:
    """Look up a keyword and a question again and again while the block runs.

    :param pipeline: The pipeline.
    :returns: A context manager that gives what was looked up.
    """
    made, ended = Traffic(), threading.Event()

    def go_on(look_up: Callable[[int], LookupResult], results: list[LookupResult]) -> None:
        number = 0
        while not ended.wait(_PAUSE_SECONDS):
            number += 1
            started = time.monotonic()
            try:
                results.append(look_up(number))
            except Exception as error:
                made.errors.append(error)
            made.seconds.append(time.monotonic() - started)

    # What is loaded once isn't an outage.
    pipeline.lookup(EXACT[0], "warm-up")
    pipeline.lookup(IN_OTHER_WORDS)
    threads = [
        threading.Thread(target=go_on, args=(lambda number: pipeline.lookup(EXACT[0], f"exact {number}"), made.exact)),
        threading.Thread(target=go_on, args=(lambda _: pipeline.lookup(IN_OTHER_WORDS), made.semantic)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def await_true(condition: Callable[[], bool], *, seconds: float) -> None:
    """Wait until something holds.

    :param condition: What must hold.
    :param seconds: The longest wait.
    :raises AssertionError: It still doesn't hold then.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "still not so after the longest wait"
        time.sleep(0.05)
