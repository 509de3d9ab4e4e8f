"""What a forked worker must do before it touches what it inherited."""

import os
from collections.abc import Callable
from weakref import WeakMethod


def call_after_fork(method: Callable[[], None]) -> None:
    """Have a bound method called in every child process, before anything else runs there.

    Connections and threads belong to the process that made them: a child that used an inherited connection
    would talk into its parent's, and a lock that another thread held during the fork would stay locked.

    :param method: A bound method; its object is not kept alive by this.
    """
    if not hasattr(os, "register_at_fork"):  # no fork on this system
        return
    reference = WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    os.register_at_fork(after_in_child=call)
