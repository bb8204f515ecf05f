"""Admit: many tasks into the queue, in calls that are never long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

from shoal.core.capability import capability_names
from shoal.core.lane import Pace
from shoal.core.task import Admission, Task
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.needs import Numbers, numbers_for
from shoal.queue.redis.packing import micros, pack_task

CALL = 250  # tasks per call
AT_ONCE = 8  # calls on their way
_PACE = Struct(">dI")
ANSWERS: dict[int, Admission] = {ord("a"): "added", ord("k"): "known", ord("s"): "seen"}


class Lanes:
    """The lanes one call speaks of; its tasks name them by number."""

    def __init__(self, paces: Mapping[str, Pace]) -> None:
        self._paces = paces
        self._numbers: dict[str, int] = {}

    def pack(self, tasks: Iterable[Task], needs: Numbers | None = None) -> list[bytes]:
        numbers = self._numbers
        if needs:
            given = [(task, needs[capability_names(task.needs)] if task.needs else 0) for task in tasks]
            return [pack_task(task, self.number(task.lane), needed) for task, needed in given]
        return [pack_task(task, numbers.setdefault(task.lane, len(numbers))) for task in tasks]

    def number(self, lane: str) -> int:
        return self._numbers.setdefault(lane, len(self._numbers))

    def arguments(self) -> list[Any]:
        found: list[Any] = [len(self._numbers)]
        for name in self._numbers:
            pace = self._paces.get(name)
            found += (name, b"" if pace is None else _PACE.pack(micros(pace.spacing), pace.max_in_flight))
        return found


async def add(
    engine: Engine, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
) -> list[Admission]:
    paces = paces or {}
    calls = []
    needs = await numbers_for(engine, run, tasks)
    # All is packed before anything is sent: what cannot be kept changes nothing.
    for first in range(0, len(tasks), CALL):
        lanes = Lanes(paces)
        part = tasks[first : first + CALL]
        packed = lanes.pack(part, needs)
        calls.append((len(part), (run, *lanes.arguments(), *packed)))
    answers: list[Admission] = []
    for at in range(0, len(calls), AT_ONCE):
        some = calls[at : at + AT_ONCE]
        replies = await asyncio.gather(*(engine.run_cached("add", *words) for _, words in some))
        for (count, _), letters in zip(some, replies, strict=True):
            answers += ["rejected"] * count if letters == b"r" else [ANSWERS[letter] for letter in letters]
    return answers
