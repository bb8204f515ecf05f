"""Overdue: waiting tasks whose time to live ran out are dead at the next look at their run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from shoal.errors import ActionRequired
from shoal.queue.redis.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")
TASKS, CALLS, RUNS = 500, 10, 500  # tasks per call, calls per look, and runs per call


async def end_overdue(engine: Engine, runs: Sequence[int]) -> None:
    """Where it cannot be written, whoever looks only looks."""
    for at in range(0, len(runs), RUNS):
        some = runs[at : at + RUNS]
        for _ in range(CALLS):
            try:
                if not await engine.run("expire", max(1, TASKS // len(some)), *some):
                    break
            except ActionRequired:
                return


def look(function: Callable[Concatenate[Engine, int, P], Awaitable[T]]) -> Callable[Concatenate[Engine, int, P], Any]:
    """A verb that looks at one run."""

    @wraps(function)
    async def looked(engine: Engine, run: int, /, *args: P.args, **named: P.kwargs) -> T:
        await end_overdue(engine, [run])
        return await function(engine, run, *args, **named)

    return looked
