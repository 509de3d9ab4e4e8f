"""A folder for files that belong to a running process, removed by the next one if it ended without doing so."""

import atexit
import fcntl
import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Self

from knowledge_lookup.retrievers.fork_safety import call_after_fork

_PREFIX = "working-"
_LOCK = ".lock"


class WorkingFolder:
    """An empty folder that nobody else uses, in which files live as long as the process that made it.

    Beside each folder lies a file that its process holds locked. Whoever makes a folder removes those whose lock is
    free: their processes were killed. A forked child has nothing to do with its parent's folder.

    Use :meth:`make`.

    :param path: The folder.
    :param lock: Its lock file and the open descriptor; None where the folder has none.
    """

    def __init__(self, path: Path, *, lock: tuple[Path, int] | None) -> None:
        self.path = path
        self._lock = lock
        atexit.register(self.remove)
        call_after_fork(self._leave)

    @classmethod
    def make(cls, parent: Path) -> Self:
        """Make a folder, and remove what killed processes left.

        :param parent: Where; made if need be. If that can't be written, the folder is made among the system's temporary
            files.
        :returns: The folder.
        """
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            path = parent / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
            lock = path.with_name(path.name + _LOCK)
            descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.mkdir()
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            return cls(Path(tempfile.mkdtemp(prefix="knowledge-lookup-")), lock=None)
        return cls(path, lock=(lock, descriptor))

    def remove(self) -> None:
        """Remove the folder with everything in it; again does no harm."""
        atexit.unregister(self.remove)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            lock, descriptor = self._lock
            self._lock = None
            with suppress(OSError):
                lock.unlink()
            os.close(descriptor)

    def _leave(self) -> None:
        atexit.unregister(self.remove)
        if self._lock is not None:
            os.close(self._lock[1])  # closed here, it stays locked in the parent, and no longer than that lives
            self._lock = None


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_name(lock.name.removesuffix(_LOCK)), ignore_errors=True)
                lock.unlink()
            finally:
                os.close(descriptor)
