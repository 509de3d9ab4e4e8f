"""Who holds a lease: a name that tells, to a process on the same machine, whether the holder is still alive."""

import hashlib
import os
import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_PLACE_DIGITS = 8
_PID_DIGITS = 10
LENGTH = 36


def new_holder() -> str:
    """Name this process as the holder of one lease.

    :returns: 36 characters: where its process number means something, the number, and a random rest.
    """
    rest = uuid.uuid4().hex[: LENGTH - _PLACE_DIGITS - _PID_DIGITS]
    return f"{_place()}{os.getpid():0{_PID_DIGITS}d}{rest}"


def is_dead(holder: str) -> bool:
    """Tell whether a holder is known to have died.

    :param holder: What :func:`new_holder` gave, in this process or another.
    :returns: True when it was a process of this machine that is gone; False when it lives or can't be known.
    """
    place, pid = holder[:_PLACE_DIGITS], holder[_PLACE_DIGITS : _PLACE_DIGITS + _PID_DIGITS]
    if place == _UNKNOWN or place != _place() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's process of that number
    return False


_UNKNOWN = "0" * _PLACE_DIGITS


def _place() -> str:
    """Name the space of process numbers that this process lives in: a machine since its start, or a container."""
    try:
        space = f"{_BOOT_ID.read_text()} {os.readlink(_PID_NAMESPACE)}"
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(space.encode()).hexdigest()[:_PLACE_DIGITS]
