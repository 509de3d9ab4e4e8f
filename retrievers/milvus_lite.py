"""What only concerns Milvus Lite: whose folder it is, why it doesn't open, how its lock is released."""

import fcntl
import os
import sys
import threading
from collections import Counter
from pathlib import Path

from knowledge_lookup.retrievers.errors import VectorStoreError, VectorStoreUnavailableError
from knowledge_lookup.retrievers.fork_safety import hold_during_fork

# The library runs one server a folder and process, and stops it for everybody.
_USERS: Counter[str] = Counter()
_USERS_LOCK = threading.Lock()
_INHERITED: list[tuple[object, object]] = []
"""Kept, not dropped: the garbage collector would close them."""
hold_during_fork(_USERS_LOCK)


def is_milvus_lite(uri: str) -> bool:
    """Tell whether a URI names a Milvus Lite folder.

    :param uri: What ``MilvusClient`` takes.
    :returns: True for a path that ends in ``.db``.
    """
    return "://" not in uri and uri.endswith(".db")


def reason_not_opened(uri: str) -> VectorStoreError:
    """Look at a folder that Milvus Lite refused, and say why and what to do.

    A lock held by another process and a folder that is damaged are different things: only the second may
    ever be told to rebuild.

    :param uri: Path of the folder.
    :returns: The error to raise.
    """
    folder = Path(uri).expanduser()
    if folder.exists() and not folder.is_dir():
        return VectorStoreError(
            f"{folder} is a file, Milvus Lite needs a folder there: move the file away or set another data-dir"
        )
    if _is_locked(folder / "LOCK"):
        return VectorStoreUnavailableError(
            f"the embedded Milvus Lite at {folder} is in use by another process: wait for that process or stop it, "
            "or run a Milvus server and set milvus.uri, which serves many processes"
        )
    return VectorStoreError(
        f"the embedded Milvus Lite at {folder} could not be opened (unwritable, damaged, or not made by Milvus Lite): "
        "check its permissions, or move the folder away and rebuild it with `knowledge-lookup sync --rebuild`"
    )


def use_milvus_lite(uri: str) -> None:
    """Note that somebody in this process is going to use a folder, until :func:`release_milvus_lite`.

    :param uri: Path of the folder.
    """
    with _USERS_LOCK:
        _USERS[uri] += 1


def release_milvus_lite(uri: str) -> None:
    """Stop the in-process server of a folder after its last user, which gives up the folder's lock.

    ``MilvusClient.close()`` leaves the server running.

    :param uri: Path of the folder, as :func:`use_milvus_lite` or ``MilvusClient`` got it; one that isn't open is
        no error.
    """
    from milvus_lite.server_manager import server_manager_instance

    with _USERS_LOCK:
        _USERS[uri] -= 1
        if _USERS[uri] <= 0:  # below: of a store that an application opened by itself
            del _USERS[uri]
            server_manager_instance.release_server(uri)


def leave_milvus_lite_to_the_parent() -> None:
    """Forget in a forked child the servers that run in its parent.

    Stopped here, or by the library when the child ends, they would write to the parent's files and wait for threads
    that the child doesn't have.
    """
    manager = sys.modules.get("milvus_lite.server_manager")
    if manager is None:
        return
    _USERS.clear()
    manager.server_manager_instance._lock = threading.Lock()
    servers = manager.server_manager_instance._servers
    for server, database, _ in servers.values():
        _INHERITED.append((server, database))
        lock, database._lock_fd = getattr(database, "_lock_fd", None), None
        if lock is not None:
            os.close(lock)  # otherwise the folder would stay locked when the parent has ended
    servers.clear()


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
