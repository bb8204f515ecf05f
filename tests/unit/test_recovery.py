"""Recovery after supervisor and workers died together: what they held goes back, and the guilty are charged."""

from __future__ import annotations

from pathlib import Path

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import LeasedTask
from shoal.files import flock
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.recovery import recover_dead_workers


async def started(queue: SqliteQueue, *paths: str) -> int:
    run = await queue.start_run(NewRun("books", "k"))
    tasks, _ = start_tasks(f"http://h/{path}" for path in paths)
    await queue.add(run.id, tasks, {"h": UNLIMITED_PACE})
    return run.id


def die(note: CrashNote) -> None:
    """kill -9: the lock is free, and the note stays."""
    note._map.close()
    flock.release(note.file)


async def claimed(queue: SqliteQueue, worker: str) -> dict[str, LeasedTask]:
    return {task.url.removeprefix("http://h/"): task for task in (await queue.claim(worker, 10)).tasks}


async def states(queue: SqliteQueue, run: int) -> dict[str, tuple[str, int]]:
    return {view.url.removeprefix("http://h/"): (view.state, view.lost) for view in await queue.list_tasks(run)}


async def test_page_that_kills_its_worker_and_supervisor_is_dead_after_three_times(
    queue: SqliteQueue, tmp_path: Path
) -> None:
    run = await started(queue, "poison", "good")
    seen = []
    for turn in range(3):
        note = CrashNote.create(tmp_path, f"w-{turn}")
        tasks = await claimed(queue, note.worker)
        note.write_leases({task.lease for task in tasks.values()})
        note.enter(tasks["poison"].id, tasks["poison"].lease)
        die(note)
        await recover_dead_workers(queue, tmp_path)
        seen.append(await states(queue, run))
    assert [turn["poison"] for turn in seen] == [("ready", 1), ("ready", 2), ("dead", 3)]
    assert [turn["good"] for turn in seen] == [("ready", 0)] * 3, "it was only held by the same worker"
    assert not list(tmp_path.glob("w-*"))


async def test_pages_whose_code_ran_in_threads_are_charged_as_well(queue: SqliteQueue, tmp_path: Path) -> None:
    run = await started(queue, "loop", "thread", "waiting")
    note = CrashNote.create(tmp_path, "w")
    tasks = await claimed(queue, "w")
    note.enter(tasks["loop"].id, tasks["loop"].lease)
    with note.thread_task(tasks["thread"].id):
        die(note)
        await recover_dead_workers(queue, tmp_path)
    assert await states(queue, run) == {"loop": ("ready", 1), "thread": ("ready", 1), "waiting": ("ready", 0)}


async def test_what_a_living_worker_holds_stays_with_it(queue: SqliteQueue, tmp_path: Path) -> None:
    run = await started(queue, "page")
    note = CrashNote.create(tmp_path, "w")
    (task,) = (await claimed(queue, "w")).values()
    note.enter(task.id, task.lease)
    await recover_dead_workers(queue, tmp_path)
    assert await states(queue, run) == {"page": ("leased", 0)}
    assert note.path is not None and note.path.exists()
    note.close()
