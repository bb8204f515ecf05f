"""Timetable: what people do with schedules: keep, change, pause, remove, and run them now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from shoal.control.runs import run_name
from shoal.control.schedule import KIND, START, Start, busy_with, carry_out, decode, readable, text_of
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.schedule import Order, Pending, Schedule, settled
from shoal.core.task import Task
from shoal.errors import Usage
from shoal.queue.base import Paper, Queue

AT_ONCE = 1000  # addresses in one document, and in one add
MOST = 100_000  # addresses of one schedule


async def schedules(queue: Queue) -> list[Schedule]:
    return list(readable(await queue.papers(KIND)))


async def find(queue: Queue, name: str) -> Schedule:
    return decode(await _paper(queue, name))


async def _paper(queue: Queue, name: str) -> Paper:
    paper = await queue.paper(KIND, name)
    if paper is None:
        known = ", ".join(paper.name for paper in await queue.papers(KIND))
        hint = f"there are: {known}" if known else 'shoal schedule add books.py "0 3 * * *" makes one'
        raise Usage(f"there is no schedule {name} here", hint=hint)
    return paper


async def change(queue: Queue, name: str, edit: Callable[[Schedule], Schedule]) -> Schedule:
    """Change one, again and again until nobody came in between."""
    while True:
        paper = await _paper(queue, name)
        changed = edit(decode(paper))
        won = await queue.swap(KIND, name, text_of(changed), paper.version)
        if won is not None:
            return changed


async def pause(queue: Queue, name: str) -> Schedule:
    return await change(queue, name, lambda found: msgspec.structs.replace(found, paused=True))


async def resume(queue: Queue, name: str) -> Schedule:
    """Let it go on; times that came while it was paused are not made up for."""
    now = await queue.now()
    return await change(
        queue,
        name,
        lambda found: settled(msgspec.structs.replace(found, paused=False), max(found.since, now)),
    )


async def add(
    queue: Queue,
    schedule: Schedule,
    tasks: Sequence[Task],
    paces: Mapping[str, Pace],
    *,
    replace: bool = False,
) -> Schedule:
    """Keep a schedule and its addresses; one of the same name is only replaced if told so."""
    known = await queue.paper(KIND, schedule.name)
    if known is not None and not replace:
        raise Usage(
            f"there is a schedule {schedule.name} already",
            hint=f"--replace, or another --name; shoal schedule show {schedule.name}",
        )
    if len(tasks) > MOST:
        raise Usage(
            f"a schedule takes at most {MOST:,} addresses to start from, and this has {len(tasks):,}",
            hint="start from a page that links to them, or split the list",
        )
    now = await queue.now()
    schedule = settled(
        msgspec.structs.replace(schedule, made_at=now, order=await _keep(queue, schedule, tasks, paces)), now
    )
    if known is None:
        if await queue.swap(KIND, schedule.name, text_of(schedule), 0) is None:
            return await add(queue, schedule, tasks, paces, replace=replace)
        return schedule
    return await _replace(queue, schedule)


async def _replace(queue: Queue, schedule: Schedule) -> Schedule:
    await _finish_pending(queue, schedule.name)
    before = await find(queue, schedule.name)

    def edit(found: Schedule) -> Schedule:
        return msgspec.structs.replace(
            schedule,
            pending=found.pending,
            latest=found.latest,
            fired=found.fired,
            skipped=found.skipped,
            missed=found.missed,
            history=found.history,
        )

    changed = await change(queue, schedule.name, edit)
    if before.order.start != schedule.order.start:
        await _drop(queue, before.order)
    return changed


async def _keep(queue: Queue, schedule: Schedule, tasks: Sequence[Task], paces: Mapping[str, Pace]) -> Order:
    """Keep the addresses, in documents that are named after what is in them."""
    texts = []
    for first in range(0, len(tasks), AT_ONCE):
        some = tuple(tasks[first : first + AT_ONCE])
        asked = {lane: paces[lane] for lane in {task.lane for task in some} if lane in paces}
        texts.append(msgspec.json.encode(Start(some, asked), order="deterministic").decode())
    name = f"{schedule.name}/{sha256(''.join(texts).encode()).hexdigest()[:12]}"
    for number, text in enumerate(texts):
        await queue.keep_paper(START, f"{name}/{number}", text)
    return msgspec.structs.replace(schedule.order, start=name, documents=len(texts), addresses=len(tasks))


async def _drop(queue: Queue, order: Order) -> None:
    for number in range(order.documents):
        paper = await queue.paper(START, f"{order.start}/{number}")
        if paper is not None:
            await queue.swap(START, paper.name, None, paper.version)


async def _finish_pending(queue: Queue, name: str) -> None:
    paper = await _paper(queue, name)
    schedule = decode(paper)
    if schedule.pending:
        await carry_out(queue, paper.version, schedule)


async def remove(queue: Queue, name: str) -> Schedule:
    """Forget a schedule; the runs it has started go on."""
    while True:
        await _finish_pending(queue, name)
        paper = await _paper(queue, name)
        if decode(paper).pending is None and await queue.swap(KIND, name, None, paper.version):
            await _drop(queue, decode(paper).order)
            return decode(paper)


async def run_now(queue: Queue, name: str, *, anyway: bool = False) -> Run:
    """Start a run at once, beside its times; refused while the former one goes on, unless told otherwise."""
    while True:
        await _finish_pending(queue, name)
        paper = await _paper(queue, name)
        schedule = decode(paper)
        busy = await busy_with(queue, schedule)
        if busy and not anyway and schedule.overlap != "allow":
            raise Usage(
                f"run {busy} of {name} still goes on",
                hint=f"shoal status {busy} shows it; --anyway starts another beside it",
            )
        pending = Pending(await queue.now(), run_name(), by_hand=True)
        changed = msgspec.structs.replace(schedule, pending=pending)
        won = await queue.swap(KIND, name, text_of(changed), paper.version)
        if won is not None:
            return await carry_out(queue, won.version, changed)
