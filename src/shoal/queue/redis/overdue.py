"""Overdue: waiting tasks whose time to live ran out are dead at the next look at their run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from shoal.queue import overdue
from shoal.queue.redis.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")
TASKS, CALLS = 500, 10  # tasks per call, and calls per look


async def end_overdue(engine: Engine, runs: Sequence[int]) -> None:
    await overdue.end_in_calls(runs, CALLS, lambda some: engine.run("expire", max(1, TASKS // len(some)), *some))


def look(function: Callable[Concatenate[Engine, int, P], Awaitable[T]]) -> Callable[Concatenate[Engine, int, P], Any]:
    """A verb that looks at one run."""
    return overdue.looking(end_overdue)(function)
