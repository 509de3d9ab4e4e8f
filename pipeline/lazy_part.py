"""Parts of the pipeline that are built on first use, once, from whatever thread comes first."""

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar, overload

Part = TypeVar("Part")


class HasLock(Protocol):
    """An object whose parts are built under one lock."""

    _lock: RLock


class lazy_part(Generic[Part]):  # noqa: N801 - used as a decorator, like functools.cached_property
    """Like ``functools.cached_property``, with the owner's lock.

    ``cached_property`` has no lock since Python 3.12: two threads could each build an action memory, and give
    one session the same document twice. The lock must be reentrant, since parts are made of parts.

    :param build: The method that builds the part.
    """

    def __init__(self, build: Callable[[Any], Part]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_part[Part]": ...
    @overload
    def __get__(self, instance: HasLock, owner: type) -> Part: ...

    def __get__(self, instance: HasLock | None, owner: type) -> "Part | lazy_part[Part]":
        if instance is None:
            return self
        with instance._lock:
            if self._name not in vars(instance):
                vars(instance)[self._name] = self._build(instance)
        part: Part = vars(instance)[self._name]
        return part
