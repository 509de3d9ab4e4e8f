"""Work in a thread beside the caller's, whose outcome is waited for or given up."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")


def in_background(work: Callable[[], Answer], *, name: str) -> "Future[Answer]":
    """Begin some work in a thread, with the context variables of the caller.

    The thread is a daemon: work that was given up holds up neither another one nor the end of the program, as it would
    in a pool.

    :param work: What to do.
    :param name: Name of the thread.
    :returns: The outcome, or the error; ``result(seconds)`` waits no longer than that.
    """
    future: Future[Answer] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
