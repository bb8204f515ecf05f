"""Page states: what a run remembers of its pages, in two hashes, so that heads are read without bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from shoal.core.run import TASK_BITS
from shoal.queue.base import PageState
from shoal.queue.page_state_limits import answer_size, check_page_states, chosen_tasks
from shoal.queue.redis.engine import Engine

CALL = 100  # states saved by one call
SLICE = 500  # numbers looked up by one
_MASK = (1 << TASK_BITS) - 1


async def save(engine: Engine, run: int, states: Sequence[PageState]) -> None:
    check_page_states(run, states)
    for at in range(0, len(states), CALL):
        some = states[at : at + CALL]
        await engine.run(
            "save_page_states", run, *(word for it in some for word in (it.task & _MASK, it.head, it.body))
        )


async def listing(
    engine: Engine, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
) -> list[PageState]:
    found: list[PageState] = []
    most = answer_size(limit, whole)
    async for numbers in _slices(engine, run, after, tasks):
        if len(found) >= most:
            break
        heads = await engine.read("HMGET", f"page_heads:{run}", *numbers)
        known = [(number, head) for number, head in zip(numbers, heads, strict=True) if head is not None]
        known = known[: most - len(found)]
        bodies: list[bytes] = [b""] * len(known)
        if whole and known:
            told = await engine.read("HMGET", f"page_bodies:{run}", *(number for number, _ in known))
            bodies = [body or b"" for body in told]
        found += [
            PageState(run << TASK_BITS | number, head, body) for (number, head), body in zip(known, bodies, strict=True)
        ]
    return found


async def _slices(engine: Engine, run: int, after: int, tasks: Collection[int]) -> AsyncIterator[Sequence[int]]:
    """The numbers that may have a state, some at a time."""
    if tasks:
        numbers: Sequence[int] = [task & _MASK for task in chosen_tasks(run, tasks, after)]
    else:
        following = int(await engine.read("HGET", f"run:{run}", "next_task") or 1)
        numbers = range(max(after - (run << TASK_BITS), 0) + 1, following)
    for at in range(0, len(numbers), SLICE):
        yield numbers[at : at + SLICE]
