"""What a forked worker must do before it touches what it inherited."""

import os
import threading
from collections.abc import Callable
from weakref import WeakMethod, ref

_MOST_SECONDS = 5.0
"""A fork waits no longer for a lock: it is open in the child all the same."""


def call_after_fork(method: Callable[[], None]) -> None:
    """Have a bound method called in every child process, before anything else runs there.

    Connections and threads belong to the process that made them: a child that used an inherited connection
    would talk into its parent's, and a lock that another thread held during the fork would stay locked.

    :param method: A bound method; its object is not kept alive by this.
    """
    if not hasattr(os, "register_at_fork"):  # no fork on this system
        return
    os.register_at_fork(after_in_child=_if_alive(method))


def call_around_fork(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have two bound methods called in a process that forks, before it does and after.

    :param before: A bound method; its object is not kept alive by this.
    :param after: Another one; not called in the child.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_if_alive(before), after_in_parent=_if_alive(after))


def hold_during_fork(lock: threading.Lock) -> None:
    """Have a lock held by nobody else while the process forks, so that a child inherits it open.

    What it protects is then whole in the child, too. Only for locks that are held for moments, and under which no other
    lock is taken: whoever forks waits for them.

    :param lock: The lock; it is not kept alive by this.
    """
    if not hasattr(os, "register_at_fork"):
        return
    reference, held = ref(lock), list[threading.Lock]()

    def acquire() -> None:
        alive = reference()
        if alive is not None and alive.acquire(timeout=_MOST_SECONDS):
            held.append(alive)

    def release() -> None:
        if held:
            held.pop().release()

    def release_in_child() -> None:
        alive = reference()
        held.clear()
        if alive is not None and alive.locked():
            alive.release()  # whoever else held it isn't there any more

    os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release_in_child)


def _if_alive(method: Callable[[], None]) -> Callable[[], None]:
    reference = WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
