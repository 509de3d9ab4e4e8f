"""A private Milvus standalone server (the ``milvus`` package, version 2.3.5)."""

import importlib
import importlib.util
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import Server, free_ports, running

MISSING = 'the Milvus server is not installed (pip install "knowledge-lookup[servers]")'
_START_SECONDS = 100


def is_installed() -> bool:
    """Tell whether the package with the server's program is there.

    :returns: True when it is.
    """
    return importlib.util.find_spec("milvus") is not None


@contextmanager
def milvus_server(folder: Path) -> Iterator[str]:
    """Run a server; see :func:`milvus_process`.

    :param folder: An empty folder for program and data.
    :returns: A context manager that gives the URI for pymilvus.
    :raises ModuleNotFoundError: The package is missing.
    """
    with milvus_process(folder) as (uri, _):
        yield uri


@contextmanager
def milvus_process(folder: Path) -> Iterator[tuple[str, Server]]:
    """Run a server that can be stopped and started again.

    The package's own ``milvus-server`` command leaves the ports of the embedded etcd as they are, starts the
    server as a child that outlives it, and settles on another port than the given one if that is taken. So
    only its parts that write the configuration and unpack the program are used here.

    :param folder: An empty folder for program (250 MB, unpacked each time) and data.
    :returns: A context manager that gives the URI for pymilvus, and the process.
    :raises ModuleNotFoundError: The package is missing.
    """
    milvus = importlib.import_module("milvus")
    names = [name for name in milvus.MilvusServerConfig().configurable_items if name.endswith("_port")]
    *ports, etcd_peer_port, health_port = free_ports(len(names) + 2)
    port_of = dict(zip(names, ports, strict=True))
    milvus.MilvusServerConfig(data_dir=str(folder), **port_of).resolve()
    milvus._initialize_data_files(str(folder))
    etcd_config = folder / "configs" / "etcd.yaml"
    etcd_config.write_text(_etcd_config(port_of["etcd_port"], etcd_peer_port), encoding="utf-8")
    environment = os.environ | {
        "DEPLOY_MODE": "STANDALONE",
        "ETCD_CONFIG_PATH": str(etcd_config),
        "LD_LIBRARY_PATH": str(folder / "bin"),
        "METRICS_PORT": str(health_port),
        "MILVUS_RUN_DIR": str(folder / "run"),
    }
    process = Server(
        [folder / "bin" / "milvus", "run", "standalone"],
        log=folder / "logs" / "output.log",
        answers=lambda: _is_healthy(health_port),
        start_seconds=_START_SECONDS,
        cwd=folder,
        env=environment,
    )
    try:
        with running(process):
            yield f"http://127.0.0.1:{port_of['proxy_port']}", process
    finally:
        # The only thing that the server keeps elsewhere, one of each start.
        for left in Path("/tmp/milvus").glob("server_id_*"):
            if not Path(f"/proc/{left.name.removeprefix('server_id_')}").exists():
                left.unlink(missing_ok=True)


def _etcd_config(client_port: int, peer_port: int) -> str:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return (
        f"name: default\n"
        f"listen-client-urls: {client}\nadvertise-client-urls: {client}\n"
        f"listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: default={peer}\n"
    )


def _is_healthy(port: int) -> bool:
    """Tell whether all of the server's components have come up (the port answers long before they have)."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
            return bool(response.read() == b"OK")
    except OSError:
        return False
