"""Fillers: tasks of the sharded queue itself, which nobody else is given or shown.

One is leased for good in every part of a run that has a page limit, and takes up a page of it there: so a part can be
given no page at all, and does not end because its share of the limit is used up. Done, it lets the part end.
"""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.stats import Stats
from shoal.core.task import ExportedTask, Outcome, RequestOptions, Task, digest
from shoal.errors import UsageError
from shoal.queue.base import Queue, TaskFilter

LANE = "shard:"  # no host is called so
WORKER = "shard:"
NEEDS = ("shard",)  # declared by nobody else
FOREVER = 10 * 365 * 86_400.0


def filler(number: int) -> Task:
    name = f"shard:filler/{number}"
    return Task(url=name, lane=LANE, digest=digest(name), needs=NEEDS, revisit=True)


async def push_filler(queue: Queue, part: int, number: int) -> bool:
    """Have a filler leased; False: it is not, because the part has no page left for it or is paused."""
    name = f"filler/{part}/{number}"
    pushed = await queue.push(
        part, [filler(number)], WORKER, {LANE: UNLIMITED_PACE}, lease=FOREVER, capabilities=NEEDS, request_id=name
    )
    await _forget_seen(queue, part, filler(number))
    return bool(pushed.claim.tasks)


async def _forget_seen(queue: Queue, run: int, task: Task) -> None:
    """No seen-set has tasks of the queue itself: other runs have the same ones."""
    (about,) = await queue.runs(before=run + 1, limit=1)
    if about.seen_set:
        await queue.forget_seen(about.seen_set, [task.digest])


async def settle_filler(queue: Queue, part: int, number: int) -> None:
    """A filler that is done counts as a page that has ended."""
    view = await queue.find(part, filler(number).digest)
    if view is not None and view.state == "leased":
        await queue.settle([Outcome(task=view.id, lease=view.lease, result="done")])


END = "shard.end"  # the reason under which a part counts its ends


def _end(number: int) -> Task:
    # Of a kind that is no page: it must not count towards a limit.
    name = f"shard:end/{number}"
    # It sends something, so that it counts as no failure of a URL.
    options = RequestOptions(method="POST")
    return Task(
        url=name, lane=LANE, digest=digest(name), kind="page:sitemap", needs=NEEDS, request_options=options,
        revisit=True,
    )  # fmt: skip


async def prepare_end(queue: Queue, run: int) -> None:
    """Leave a dead letter in a run, by which it can be opened again after it has ended; one at a time."""
    number = (await queue.stats(run)).skipped.get(END, 0)
    if number and await _waits(queue, run, number):
        return
    pushed = await queue.push(
        run, [_end(number + 1)], WORKER, {LANE: UNLIMITED_PACE}, lease=60.0, capabilities=NEEDS,
        request_id=f"end/{run}/{number}",
    )  # fmt: skip
    await _forget_seen(queue, run, _end(number + 1))
    await queue.settle(
        [
            Outcome(task=it.id, lease=it.lease, result="dead", cause="shard", skipped=((END, it.url),))
            for it in pushed.claim.tasks
        ]
    )


async def prepare_lasting_end(queue: Queue, run: int) -> None:
    """The same in a run at home, whose dead letters may be kept for a short time only: this one stays."""
    number = (await queue.stats(run)).skipped.get(END, 0)
    if number and await _waits(queue, run, number):
        return
    end = ExportedTask(
        number + 1, _end(number + 1), "dead", cause="shard", finished_at=await queue.now() + round(FOREVER * 1e6)
    )
    with contextlib.suppress(UsageError):  # another does the same
        await queue.set_run(run, "pause")  # only then it takes an export
        await queue.import_run(run, [end], paces={LANE: UNLIMITED_PACE}, counts=Stats(skipped={END: number + 1}))
        await _forget_seen(queue, run, end.task)
        await queue.set_run(run, "resume")


async def _waits(queue: Queue, run: int, number: int) -> bool:
    view = await queue.find(run, _end(number).digest)
    return view is not None and view.state == "dead"


async def reopen_run(queue: Queue, run: int) -> bool:
    """Set a run that has ended back to running; says whether it could be."""
    number = (await queue.stats(run)).skipped.get(END, 0)
    view = await queue.find(run, _end(number).digest) if number else None
    if view is None or not await queue.revive(run, TaskFilter(ids=(view.id,))):
        return False
    await queue.drop(run, TaskFilter(lane=LANE))
    return True


async def reopen_part(queue: Queue, part: int) -> None:
    """The same of a part, which always has one that is dead."""
    if await reopen_run(queue, part):
        await prepare_end(queue, part)


def without_ends(part: Stats) -> Stats:
    """The account of a part without the tasks by which it is opened again: all but the last were dropped."""
    number = part.skipped.get(END, 0)
    if not number:
        return part
    last = {"dead": part.dead - 1} if part.dead else {"discarded": part.discarded - 1}
    skipped = {reason: count for reason, count in part.skipped.items() if reason != END}
    last |= {"seen": part.seen - number, "cancelled": part.cancelled - number + 1, "aside": part.aside - 1}
    return replace(part, skipped=skipped, **last)
