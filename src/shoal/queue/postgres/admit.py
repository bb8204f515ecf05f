"""Admit: many tasks into the queue at once, each at most once per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.core.lane import Pace
from shoal.core.task import Admission, Task
from shoal.queue.postgres import columns
from shoal.queue.postgres.engine import Engine

_ADD = f"SELECT {{s}}.add({', '.join(f'${n}' for n in range(1, 20))})"


async def add(engine: Engine, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace]) -> list[Admission]:
    if not tasks:
        return []
    lanes = columns.asked((task.lane for task in tasks), paces)
    added = await engine.value(_ADD, engine.now(), run, *lanes, *columns.DEFAULTS, *columns.of(tasks))
    if added is None:
        return ["rejected"] * len(tasks)
    answers: list[Admission] = ["known"] * len(tasks)
    for number in added:
        answers[number - 1] = "added"
    return answers
