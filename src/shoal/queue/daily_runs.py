"""Daily runs: runs to which work comes all day, one per name and UTC day, started when first needed.

Typed tasks are in such runs, by their type, pages that messages of Celery ask for, and what other programs publish.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from shoal.core.lane import Pace
from shoal.core.run import NAME_ALPHABET, NewRun, Run
from shoal.core.task import Task
from shoal.core.typed_task import TYPE_PREFIX, daily_scraper_name
from shoal.errors import QueueRefused
from shoal.queue.base import Queue

CLOCK_REFRESH_SECONDS = 600.0  # seconds for which the store's clock need not be asked again
MAX_TRIES = 4
ALL_RUNS = 100_000
INTAKE_PREFIX = "intake/"  # of the keys of runs for what other programs publish
CELERY_PREFIX = "celery:"  # likewise for pages for which messages of Celery ask


def daily_key(prefix: str, day: date) -> str:
    return f"{prefix}/{day.isoformat()}"


def daily_name(word: str, day: date) -> str:
    suffix = "".join(secrets.choice(NAME_ALPHABET) for _ in range(3))
    return f"{day:%Y%m%d}_{word.lower()}_{suffix}"


def _typed_run(type: str, day: date) -> NewRun:
    return NewRun(
        scraper=daily_scraper_name(type),
        key=daily_key(daily_scraper_name(type), day),
        name=daily_name(type, day),
        spec={"scraper": daily_scraper_name(type), "each": True},
    )


Put = Callable[[int, Sequence[Task]], Awaitable[Sequence[str]]]  # into a run; one answer per task


class DailyRuns:
    def __init__(self, queue: Queue, new_run: Callable[[str, date], NewRun] = _typed_run) -> None:
        """new_run: what the run of a type, or of another name, is started with."""
        self._queue = queue
        self._new_run = new_run
        self._today: dict[str, tuple[date, int, int]] = {}  # by type: day, its run, the day before's if open
        self._clock_offset, self._clock_read_at = 0.0, float("-inf")  # of the store's clock before our own

    async def add(
        self, type: str, tasks: Sequence[Task], paces: Mapping[str, Pace], *, keyed: Sequence[bool] = ()
    ) -> list[int]:
        """Add tasks of one type; their ids, also of those that were known by their key."""
        return await self.put(type, tasks, lambda run, new: self._queue.add(run, new, paces), keyed=keyed)

    async def put(self, type: str, tasks: Sequence[Task], put: Put, *, keyed: Sequence[bool] = ()) -> list[int]:
        """The same, for another way to put tasks into their run, which answers as Queue.add does."""
        for _ in range(MAX_TRIES):
            run, before = await self._runs(type)
            known = await self._known_ids(before, tasks, keyed)
            new = [task for task, id in zip(tasks, known, strict=True) if not id]
            answers = await put(run, new) if new else []
            if "rejected" not in answers:
                added = iter(await self._queue.ids(run, [task.digest for task in new]) if new else ())
                return [id or next(added) for id in known]
            self._today.pop(type, None)  # the day has ended, or somebody has ended its run
            self._clock_read_at = float("-inf")  # a machine that slept believes in a day that is over
        raise QueueRefused(
            f"the queue takes no tasks of {type}: its run ends again and again",
            hint=f"`shoal runs` shows the runs of {type}",
        )

    async def _known_ids(self, before: int, tasks: Sequence[Task], keyed: Sequence[bool]) -> list[int]:
        """Tasks with a key of yesterday are known as long as yesterday's work is not done."""
        if not before or not any(keyed):
            return [0] * len(tasks)
        ids = await self._queue.ids(before, [task.digest for task in tasks])
        return [id if named else 0 for id, named in zip(ids, keyed, strict=True)]

    async def _runs(self, type: str) -> tuple[int, int]:
        day = await self._day()
        found = self._today.get(type)
        if found is None or found[0] != day:
            before = await self._queue.runs(key=self._new_run(type, day - timedelta(days=1)).key, limit=1)
            unended = before[0].id if before and before[0].state in ("running", "paused") else 0
            run = await self._queue.start_run(self._new_run(type, day))
            found = self._today[type] = day, run.id, unended
        return found[1], found[2]

    async def _day(self) -> date:
        now = time.monotonic()
        if now - self._clock_read_at > CLOCK_REFRESH_SECONDS:
            self._clock_offset, self._clock_read_at = await self._queue.now() / 1e6 - now, now
        return datetime.fromtimestamp(now + self._clock_offset, UTC).date()


def is_daily(run: Run) -> bool:
    """Whether it stands for a day, with work or without; its key ends with the date."""
    return run.scraper.startswith(TYPE_PREFIX) or run.key.startswith((INTAKE_PREFIX, CELERY_PREFIX))


async def list_daily_runs(queue: Queue, type: str = "") -> list[Run]:
    """The runs of a type (or of all types), the oldest first."""
    runs = await queue.runs(limit=ALL_RUNS)
    fits = daily_scraper_name(type).__eq__ if type else lambda name: name.startswith(TYPE_PREFIX)
    return [run for run in reversed(runs) if fits(run.scraper)]
