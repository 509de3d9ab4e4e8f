"""Servers that accept and never answer, for tests of time limits."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from urllib.parse import urlsplit


@contextmanager
def black_hole() -> Iterator[int]:
    """Accept connections and read nothing while the block runs.

    :returns: A context manager that gives the port.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def pipe_to(uri: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Pass everything on to a server until told to fall silent; connections stay open then, and nothing goes through.

    :param uri: The server's address.
    :returns: A context manager that gives the port and what makes it silent.
    """
    address = urlsplit(uri)
    silent = Event()
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(65_536)) and not silent.is_set():
                target.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                inner = server.accept()[0]
                outer = socket.create_connection((address.hostname, address.port))
                sockets.extend([inner, outer])
                Thread(target=pump, args=(inner, outer), daemon=True).start()
                Thread(target=pump, args=(outer, inner), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1], silent.set
        finally:
            for opened in sockets:
                opened.close()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Require that the block takes no longer.

    :param seconds: The most that it may take.
    :returns: A context manager.
    """
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took <= seconds, f"took {took:.2f} seconds"
