"""The one way to start a run, whoever asks for it: a command, the API, or another program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from shoal.core.lane import CACHE_PREFIX, UNLIMITED_PACE, Pace
from shoal.core.name_format import RUN_ID_FORMAT
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.queue.base import Queue
from shoal.queue.failing import failing_tasks
from shoal.queue.reconnect import reconnecting
from shoal.runs.budget import apply_budget
from shoal.runs.cached_starts import free_cached_of
from shoal.runs.identity import StartOutcome, find_or_start, finish_seeding
from shoal.store.export import Exporter

BATCH_SIZE = 1_000  # tasks added in one step

TaskBatch = tuple[Sequence[Task], Mapping[str, Pace]]
TaskBatches = AsyncIterator[TaskBatch]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A run that is asked for, with the tasks it begins with."""

    run: NewRun
    tasks: Callable[[Run], TaskBatches] | None = None  # asked for once the run is there
    fresh: bool = False  # not the run that this key had before: an unfinished one is cancelled
    resume: bool = True  # one that this key has and that is paused
    relimit: bool = False  # one that this key has gets the page limit
    go_on: bool = False  # one that its page limit ended goes on, if this one is higher or there is none
    seeder: str = ""  # who adds the tasks, kept for as long as that takes
    more: bool = False  # others add tasks after this, and say when that is done (`finish_seeding`)
    open_output: Callable[[Run], Exporter | None] = lambda _: None  # refused, it leaves no run behind
    outage_timeout: float = 0.0  # seconds that the queue may be out of reach
    name_format: str = RUN_ID_FORMAT  # of a run that is not named


@dataclass(slots=True)
class AddedTasks:
    added: int = 0
    known: int = 0
    seen: int = 0  # by earlier runs of the same seen-set
    failing: int = 0  # left out, because they failed too often before
    is_refused: bool = False  # the run takes no more work: it has ended


@dataclass(frozen=True, slots=True)
class StartedRun:
    run: Run
    outcome: StartOutcome
    tasks: AddedTasks
    output: Exporter | None = None


async def start(queue: Queue, request: StartRequest) -> StartedRun:
    """Start the run, or find the one that this key has, and add its tasks; an ended one is left as it is.

    Repeating it after a crash changes nothing: tasks that are there already are known.
    """
    run, outcome = await find_or_start(
        queue,
        request.run,
        fresh=request.fresh,
        resume=request.resume,
        relimit=request.relimit,
        go_on=request.go_on,
        seeder=request.seeder,
        name_format=request.name_format,
    )
    if outcome != "ended":
        await apply_budget(queue, run, request.run.spec)
    try:
        output = request.open_output(run)
    except BaseException:
        if outcome == "new":
            await queue.set_run(run.id, "cancel")
            await queue.purge(run=run.id)
            await finish_seeding(queue, run.name)
        raise
    if outcome == "ended":
        return StartedRun(run, outcome, AddedTasks(), output)
    added = AddedTasks()
    if request.tasks is not None:
        added = await add_tasks(queue, run, request.tasks(run), outage_timeout=request.outage_timeout)
    if not request.more:
        await reconnecting(lambda: finish_seeding(queue, run.name), request.outage_timeout)
    return StartedRun(run, outcome, added, output)


async def add_tasks(queue: Queue, run: Run, batches: TaskBatches, *, outage_timeout: float = 0.0) -> AddedTasks:
    """Add batch after batch, with a moment for others in between; but for URLs that the run says failed too often."""
    total, skip_failing, free_cached = AddedTasks(), _skip_failing(run), free_cached_of(queue, run)
    async for tasks, paces in batches:
        if skip_failing:
            failing = await reconnecting(lambda: failing_tasks(queue, tasks, skip_failing), outage_timeout)  # noqa: B023
            tasks = [task for task in tasks if task.digest not in failing]
            total.failing += len(failing)
        if tasks:
            if free_cached is not None:
                tasks = await free_cached(tasks)
                lanes = {task.lane for task in tasks if task.lane.startswith(CACHE_PREFIX)}
                paces = {**paces, **dict.fromkeys(lanes, UNLIMITED_PACE)}
            answers = await reconnecting(lambda: queue.add(run.id, tasks, paces), outage_timeout)  # noqa: B023
            total.added += answers.count("added")
            total.known += answers.count("known")
            total.seen += answers.count("seen")
            if "rejected" in answers:
                total.is_refused = True
                break
        await asyncio.sleep(0)
    return total


def _skip_failing(run: Run) -> int:
    """What it says under that name; other programs start runs too, whose specs hold what they like."""
    settings = run.spec.get("settings")
    value = settings.get("skip_failing") if isinstance(settings, dict) else 0
    return value if isinstance(value, int) and value > 0 else 0


async def in_batches(tasks: Sequence[Task], paces: Mapping[str, Pace]) -> TaskBatches:
    for first in range(0, len(tasks), BATCH_SIZE):
        yield tasks[first : first + BATCH_SIZE], paces
