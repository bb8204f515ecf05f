"""Drop: what waits, or is dead, is given up, in calls that are never long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from shoal.core.run import TASK_BITS
from shoal.queue.base import TaskFilter
from shoal.queue.redis import groups, inspect, locations
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.runs import get, unknown

SLICE = 200  # tasks per call
_MASK = (1 << TASK_BITS) - 1
_WAITING = locations.LocationQuery((locations.WAITING, locations.STORED))
_SHOWN = {"ready": ("ready", "delayed"), "dead": ("dead",)}


async def drop(
    engine: Engine,
    run: int,
    where: TaskFilter = TaskFilter(),
    *,
    state: Literal["ready", "dead"] = "ready",
    limit: int = 10_000,
) -> int:
    about = await get(engine, run)
    if state == "ready" and (about.state not in ("running", "paused") or where.cause):
        return 0
    gone, lists = 0, set[tuple[int, int]]()
    async for numbers in _chosen(engine, run, where, state):
        for at in range(0, len(numbers), SLICE):
            some = numbers[at : at + SLICE][: limit - gone]
            if not some:
                break
            word, count, *cleared = await engine.run_cached("drop", run, state, *some)
            if word == b"unknown":
                raise unknown(run)
            gone += count
            lists.update(zip(cleared[::2], cleared[1::2], strict=True))
        if gone >= limit:
            break
    await _clear(engine, run, sorted(lists))
    return gone


async def _clear(engine: Engine, run: int, lists: list[tuple[int, int]]) -> None:
    while lists:
        done = await engine.run("clear", run, *(word for one in lists[:SLICE] for word in one))
        lists = lists[done:]


async def _chosen(
    engine: Engine, run: int, where: TaskFilter, state: Literal["ready", "dead"]
) -> AsyncIterator[list[int]]:
    """Numbers of tasks that may go; whether each one does is for the script to see."""
    if where != TaskFilter():
        now = await engine.now()
        chosen = inspect.Filter(None, where)
        async for told in inspect.slices(engine, run, state, where):
            views = [inspect.view_of(run, now, one) for one in told]
            yield [view.id & _MASK for view in views if view and view.state in _SHOWN[state] and chosen.fits(view)]
    elif state == "dead":
        async for numbers in groups.numbers(engine, run):
            yield numbers
    else:
        last = int(await engine.read("HGET", f"run:{run}", "next_task") or 1)
        async for placed in locations.find(engine, run, _WAITING, 1, last, SLICE):
            yield [locations.number(location) for location in placed]
