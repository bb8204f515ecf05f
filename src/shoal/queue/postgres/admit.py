"""Admit: many tasks into the queue at once, each at most once per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.core.lane import Pace
from shoal.core.task import Admission, Task
from shoal.queue.postgres import columns, needs
from shoal.queue.postgres.engine import Engine

_ADD = f"SELECT {{s}}.add({', '.join(f'${n}' for n in range(1, 23))})"


async def add(
    engine: Engine, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
) -> list[Admission]:
    if not tasks:
        return []
    brought = await arguments(engine, run, tasks, paces or {})
    return answers(tasks, await engine.value(_ADD, engine.now(), *brought))


async def arguments(engine: Engine, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace]) -> tuple[Any, ...]:
    """The run, its lanes and its tasks, as add and push take them."""
    lanes = columns.pace_columns((task.lane for task in tasks), paces)
    numbers = await needs.numbers_for(engine, run, tasks)
    given = [needs.number_of(task, numbers) for task in tasks] if numbers else ()
    revisits = [task.revisit for task in tasks]
    return (run, *lanes, *columns.DEFAULTS, *columns.short_task_columns(tasks, given), revisits)


def answers(tasks: Sequence[Task], added: Sequence[int] | None) -> list[Admission]:
    """One per task. Those added are counted from 1, those seen below 0; None: the run takes no work."""
    if added is None:
        return ["rejected"] * len(tasks)
    found: list[Admission] = ["known"] * len(tasks)
    for number in added:
        found[abs(number) - 1] = "added" if number > 0 else "seen"
    return found
