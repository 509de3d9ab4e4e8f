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


class Server:
    """A server process that can be stopped and frozen, and started again on the same data.

    :param command: The program and its arguments.
    :param log: File for everything that it prints.
    :param answers: Tells whether the server is ready; called again and again until it is.
    :param start_seconds: How long to wait for that.
    :param cwd: Folder to run it in.
    :param env: Its environment; None is this process's own.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        answers: Callable[[], bool],
        start_seconds: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._command = [str(part) for part in command]
        self._log = log
        self._answers = answers
        self._start_seconds = start_seconds
        self._cwd = cwd
        self._env = None if env is None else dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        """The process; only while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the server.

        :param wait: Whether to wait until it answers.
        :raises ServerStartError: The server ended before it answered, or didn't answer in time.
        """
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,  # an interrupt at the terminal is for pytest alone, which then stops the server
                preexec_fn=_dying_with_parent(),  # noqa: PLW1509 (one system call, which takes no lock)
            )
        if wait:
            _wait(self._process, self._log, self._answers, self._start_seconds)

    def kill(self) -> None:
        """Kill the server and its children; one that doesn't run is no error."""
        # Nothing is gained by letting the server shut down in order (Milvus: 10 seconds).
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Have the server do nothing; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have a frozen server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process_id, number)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Run a server until the block ends.

    :param server: The server.
    :returns: A context manager that gives the server, which answers.
    :raises ServerStartError: The server ended before it answered, or didn't answer in time.
    """
    try:
        server.start()
        yield server
    finally:
        server.kill()


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


def _dying_with_parent() -> Callable[[], None] | None:
    """Return what a new process must call to end with this one, which may itself be killed."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
