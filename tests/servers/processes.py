"""Starts a server process so that it surely ends again, and finds ports for it."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class ServerStartError(Exception):
    """A server ended or stayed silent instead of answering; the message has the end of its log."""


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on at the moment, all of them different.

    :param count: How many.
    :returns: The ports.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    answers: Callable[[], bool],
    start_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server until the block ends.

    :param command: The program and its arguments.
    :param log: File for everything that it prints.
    :param answers: Tells whether the server is ready; called again and again until it is.
    :param start_seconds: How long to wait for that.
    :param cwd: Folder to run it in.
    :param env: Its environment; None is this process's own.
    :returns: A context manager that gives the process id.
    :raises ServerStartError: The server ended before it answered, or didn't answer in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,  # an interrupt at the terminal is for pytest alone, which then stops the server
            preexec_fn=_dying_with_parent(),  # noqa: PLW1509 (one system call, which takes no lock)
        )
    try:
        _wait(process, log, answers, start_seconds)
        yield process.pid
    finally:
        _stop(process)


def exit_code(child: int, *, seconds: float = 20) -> int:
    """Wait for a forked child, and end it when it takes too long.

    :param child: Its process id.
    :param seconds: How long to wait.
    :returns: Its exit code; minus the number of the signal that ended it.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait(process: subprocess.Popen[bytes], log: Path, answers: Callable[[], bool], start_seconds: float) -> None:
    deadline = time.monotonic() + start_seconds
    while not answers():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            what = f"didn't answer within {start_seconds} seconds" if ended is None else f"ended with code {ended}"
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ServerStartError(f"{process.args!r} {what}; the end of its output:\n{tail}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    # The data are thrown away, so nothing is gained by letting the server shut down in order (Milvus: 10 seconds).
    # The whole group, in case that it has children.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _dying_with_parent() -> Callable[[], None] | None:
    """Return what a new process must call to end with this one, which may itself be killed."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
