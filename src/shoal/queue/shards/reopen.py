"""Ending and reopening: the parts of a run end with it, and go on with it."""

from __future__ import annotations

import contextlib

from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.queue.shards.filler import prepare_end, prepare_lasting_end, reopen_part, reopen_run
from shoal.queue.shards.shard_set import ShardSet


async def end_part(queue: Queue, part: int) -> None:
    """End what has nothing to do, so that it can go on again."""
    with contextlib.suppress(UsageError):  # it has something to do after all, or has ended
        await queue.set_run(part, "resume")  # what is paused leases nothing
        await prepare_end(queue, part)
        await queue.set_run(part, "finish")


async def finish_at_home(shards: ShardSet, run: int) -> Run:
    about = await shards.run(run)
    lasting = about is not None and about.dead_retention > 0

    async def finish(queue: Queue) -> Run:
        with contextlib.suppress(UsageError):
            await queue.set_run(run, "resume")  # what is paused leases nothing
        await (prepare_lasting_end if lasting else prepare_end)(queue, run)
        return await queue.set_run(run, "finish")

    ended = await shards.home.ask(finish)
    shards.note_run(ended)
    return ended


async def end_run(shards: ShardSet, run: int) -> Run:
    """The run first: where this is cut short, upkeep ends its parts."""
    ended = await finish_at_home(shards, run)
    await shards.gather_runs(run, end_part, whole=False)
    return ended


async def reopen(shards: ShardSet, run: int) -> Run | None:
    """A run that had ended goes on, with all its parts."""
    about = await shards.run(run, fresh=True)
    if about is None or about.state != "finished":
        return about

    await shards.gather_runs(run, reopen_part)
    await shards.home.ask(lambda it: reopen_run(it, run))
    return await shards.run(run, fresh=True)
