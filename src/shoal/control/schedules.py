"""What people do with schedules: add, change, pause, remove, and run them now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from shoal.control.schedule_runner import (
    StartTasks,
    decode_schedule,
    decode_schedules,
    encode_schedule,
    execute_firing,
    unfinished_run,
)
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.schedule import Pending, Schedule, ScheduledRun, advance
from shoal.core.task import Task
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.identity import run_name

BATCH_SIZE = 1000  # URLs in one document, and in one add
MAX_URLS = 100_000  # URLs of one schedule


async def all_schedules(queue: Queue) -> list[Schedule]:
    return list(decode_schedules(await queue.documents(kinds.SCHEDULE)))


async def find(queue: Queue, name: str) -> Schedule:
    return decode_schedule(await _document(queue, name))


async def _document(queue: Queue, name: str) -> Document:
    document = await queue.document(kinds.SCHEDULE, name)
    if document is None:
        known = ", ".join(document.name for document in await queue.documents(kinds.SCHEDULE))
        hint = f"there are: {known}" if known else 'shoal schedule add books.py "0 3 * * *" creates one'
        raise UsageError(f"there is no schedule {name} here", hint=hint)
    return document


async def change(queue: Queue, name: str, edit: Callable[[Schedule], Schedule]) -> Schedule:
    """Change one, again and again until nobody came in between."""
    while True:
        document = await _document(queue, name)
        changed = edit(decode_schedule(document))
        won = await queue.compare_and_swap(kinds.SCHEDULE, name, encode_schedule(changed), document.version)
        if won is not None:
            return changed


async def pause(queue: Queue, name: str) -> Schedule:
    return await change(queue, name, lambda found: msgspec.structs.replace(found, paused=True))


async def resume(queue: Queue, name: str) -> Schedule:
    """Let it go on; times that came while it was paused are not made up for."""
    now = await queue.now()
    return await change(
        queue, name, lambda found: advance(msgspec.structs.replace(found, paused=False), max(found.since, now))
    )


async def add(
    queue: Queue, schedule: Schedule, tasks: Sequence[Task], paces: Mapping[str, Pace], *, replace: bool = False
) -> Schedule:
    """Keep a schedule and its URLs; one of the same name is only replaced if told so."""
    known = await queue.document(kinds.SCHEDULE, schedule.name)
    if known is not None and not replace:
        raise UsageError(
            f"schedule {schedule.name} already exists",
            hint=f"--replace, or another --name; shoal schedule show {schedule.name}",
        )
    if len(tasks) > MAX_URLS:
        raise UsageError(
            f"a schedule takes at most {MAX_URLS:,} URLs to start from, and this has {len(tasks):,}",
            hint="start from a page that links to them, or split the list",
        )
    now = await queue.now()
    order = await _store_start_tasks(queue, schedule, tasks, paces)
    schedule = advance(msgspec.structs.replace(schedule, made_at=now, order=order), now)
    if known is None:
        if await queue.compare_and_swap(kinds.SCHEDULE, schedule.name, encode_schedule(schedule), 0) is None:
            return await add(queue, schedule, tasks, paces, replace=replace)
        return schedule
    return await _replace(queue, schedule)


async def _replace(queue: Queue, schedule: Schedule) -> Schedule:
    await _finish_pending(queue, schedule.name)
    before = await find(queue, schedule.name)

    def edit(found: Schedule) -> Schedule:
        kept = ("pending", "latest", "fired", "skipped", "missed", "history")
        return msgspec.structs.replace(schedule, **{name: getattr(found, name) for name in kept})

    changed = await change(queue, schedule.name, edit)
    if before.order.start != schedule.order.start:
        await _delete_start_tasks(queue, before.order)
    return changed


async def _store_start_tasks(
    queue: Queue, schedule: Schedule, tasks: Sequence[Task], paces: Mapping[str, Pace]
) -> ScheduledRun:
    """Keep the URLs, in documents that are named after what is in them."""
    texts = []
    for first in range(0, len(tasks), BATCH_SIZE):
        some = tuple(tasks[first : first + BATCH_SIZE])
        asked = {lane: paces[lane] for lane in {task.lane for task in some} if lane in paces}
        texts.append(msgspec.json.encode(StartTasks(some, asked), order="deterministic").decode())
    name = f"{schedule.name}/{sha256(''.join(texts).encode()).hexdigest()[:12]}"
    for number, text in enumerate(texts):
        await queue.save_document(kinds.SCHEDULE_START, f"{name}/{number}", text)
    return msgspec.structs.replace(schedule.order, start=name, documents=len(texts), urls=len(tasks))


async def _delete_start_tasks(queue: Queue, order: ScheduledRun) -> None:
    for number in range(order.documents):
        document = await queue.document(kinds.SCHEDULE_START, f"{order.start}/{number}")
        if document is not None:
            await queue.compare_and_swap(kinds.SCHEDULE_START, document.name, None, document.version)


async def _finish_pending(queue: Queue, name: str) -> None:
    document = await _document(queue, name)
    schedule = decode_schedule(document)
    if schedule.pending:
        await execute_firing(queue, document.version, schedule)


async def remove(queue: Queue, name: str) -> Schedule:
    """Forget a schedule; the runs it has started go on."""
    while True:
        await _finish_pending(queue, name)
        document = await _document(queue, name)
        if decode_schedule(document).pending is None and await queue.compare_and_swap(
            kinds.SCHEDULE, name, None, document.version
        ):
            await _delete_start_tasks(queue, decode_schedule(document).order)
            return decode_schedule(document)


async def run_now(queue: Queue, name: str, *, anyway: bool = False) -> Run:
    """Start a run at once, beside its times; refused while the former one goes on, unless told otherwise."""
    while True:
        await _finish_pending(queue, name)
        document = await _document(queue, name)
        schedule = decode_schedule(document)
        busy = await unfinished_run(queue, schedule)
        if busy and not anyway and schedule.overlap != "allow":
            raise UsageError(
                f"run {busy} of {name} is still running",
                hint=f"shoal status {busy} shows it; --anyway starts another one",
            )
        pending = Pending(await queue.now(), run_name(), is_manual=True)
        changed = msgspec.structs.replace(schedule, pending=pending)
        won = await queue.compare_and_swap(kinds.SCHEDULE, name, encode_schedule(changed), document.version)
        if won is not None:
            return await execute_firing(queue, won.version, changed)
