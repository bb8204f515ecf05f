"""Overdue: waiting tasks whose time to live ran out are dead at the next look at their run, on any server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from shoal.errors import ActionRequired

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T")
RUNS = 500  # per call


async def end_in_calls(runs: Sequence[int], calls: int, expire: Callable[[Sequence[int]], Awaitable[object]]) -> None:
    """So many calls at most, until one finds nothing. Where it cannot be written, whoever looks only looks."""
    for at in range(0, len(runs), RUNS):
        some = runs[at : at + RUNS]
        for _ in range(calls):
            try:
                if not await expire(some):
                    break
            except ActionRequired:
                return


def looking(
    end_overdue: Callable[[E, Sequence[int]], Awaitable[None]],
) -> Callable[[Callable[Concatenate[E, int, P], Awaitable[T]]], Callable[Concatenate[E, int, P], Any]]:
    """The decorator of a verb that looks at one run."""

    def look(function: Callable[Concatenate[E, int, P], Awaitable[T]]) -> Callable[Concatenate[E, int, P], Any]:
        @wraps(function)
        async def looked(engine: E, run: int, /, *args: P.args, **named: P.kwargs) -> T:
            await end_overdue(engine, [run])
            return await function(engine, run, *args, **named)

        return looked

    return look
