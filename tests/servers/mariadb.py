"""A private MariaDB server."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pymysql
import pymysql.connections

from .processes import Server, free_ports, running

MISSING = "mariadbd and mariadb-install-db are not on this machine (Debian: apt-get install mariadb-server)"
_START_SECONDS = 60


class MariaDBServer:
    """A running server.

    :param port: Port on 127.0.0.1; ``root`` has no password.
    :param process: The process.
    """

    def __init__(self, port: int, process: Server) -> None:
        self.port = port
        self.process = process

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make a new, empty database, and drop it when the block ends.

        :returns: A context manager that gives its URL for SQLAlchemy.
        """
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield f"mysql+pymysql://root@127.0.0.1:{self.port}/{name}"
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name}")

    def execute(self, *statements: str) -> None:
        """Run statements as root, outside any database.

        :param statements: The SQL.
        """
        with _connected(self.port) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def programs() -> tuple[Path, Path] | None:
    """Find the two programs that are needed.

    :returns: The paths of ``mariadb-install-db`` and ``mariadbd``; None when one is missing.
    """
    # The server is in an administrator's folder, which is not on everybody's path.
    found = [shutil.which(name) or shutil.which(name, path="/usr/sbin") for name in ("mariadb-install-db", "mariadbd")]
    return None if found[0] is None or found[1] is None else (Path(found[0]), Path(found[1]))


@contextmanager
def mariadb_server(folder: Path) -> Iterator[MariaDBServer]:
    """Run a server with the machine's own defaults: latin1, and a collation that folds case.

    :param folder: An empty folder for its data.
    :returns: A context manager that gives the running server.
    :raises FileNotFoundError: The programs are missing.
    """
    found = programs()
    if found is None:
        raise FileNotFoundError(MISSING)
    install, server = found
    data = folder / "data"
    subprocess.run(
        [
            *(install, "--no-defaults", "--user=root", f"--datadir={data}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
        ],
        check=True,
        capture_output=True,
        timeout=_START_SECONDS,
    )
    [port] = free_ports(1)
    command: list[str | Path] = [
        *(server, "--no-defaults", "--user=root", f"--datadir={data}"),
        *(f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"),
        *("--bind-address=127.0.0.1", f"--port={port}", "--skip-networking=0"),
        # Nobody needs these data after a crash of the machine; but what was committed outlives a killed process.
        *(
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-method=nosync",
            "--skip-name-resolve",
        ),
    ]
    process = Server(command, log=folder / "log", answers=lambda: _answers(port), start_seconds=_START_SECONDS)
    with running(process):
        yield MariaDBServer(port, process)


def _answers(port: int) -> bool:
    try:
        _connected(port).close()
    except pymysql.MySQLError:
        return False
    return True


def _connected(port: int) -> pymysql.connections.Connection:
    # Reading the machine's certificates would take longer than most statements.
    return pymysql.connect(
        host="127.0.0.1", port=port, user="root", connect_timeout=5, autocommit=True, ssl_disabled=True
    )
