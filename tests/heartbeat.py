"""How long an event loop stands still while something is awaited in it."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

LONGEST_PAUSE = 0.05
"""Seconds that an event loop may stand still at most."""
_ATTEMPTS = 4
_BEAT = 0.002


async def longest_pause(work: Callable[[], Awaitable[object]]) -> float:
    """Measure the longest pause between two turns of another task while some work is awaited.

    Where the work itself blocks the loop it does so each time; where only the machine was busy it doesn't. So the work
    is done again if the loop stood still for long, and the best of the attempts counts. A full garbage collection,
    which stops all threads of a process for as long as its heap is large, is kept out.

    :param work: Starts the work; called for each attempt.
    :returns: Seconds.
    """
    pauses: list[float] = []
    gc.collect()
    gc.freeze()
    try:
        while len(pauses) < _ATTEMPTS and min(pauses, default=1.0) > LONGEST_PAUSE:
            pauses.append(await _pause_of(work))
    finally:
        gc.unfreeze()
    return min(pauses)


async def _pause_of(work: Callable[[], Awaitable[object]]) -> float:
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(_BEAT)

    heart = asyncio.create_task(beat())
    await asyncio.sleep(_BEAT)
    try:
        await work()
    finally:
        heart.cancel()
        beats.append(time.monotonic())
    return max(after - before for before, after in pairwise(beats))
