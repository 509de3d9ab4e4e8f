"""What only concerns Milvus Lite: whose folder it is, why it doesn't open, how its lock is released."""

import fcntl
from pathlib import Path

from knowledge_lookup.retrievers.errors import VectorStoreError, VectorStoreUnavailableError


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


def release_milvus_lite(uri: str) -> None:
    """Stop the in-process server of a folder, which gives up the folder's lock.

    ``MilvusClient.close()`` leaves the server running.

    :param uri: Path of the folder; one that isn't open is no error.
    """
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(uri)


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
