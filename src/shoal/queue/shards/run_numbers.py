"""RunNumbers: a run is at home, without tasks, and on every shard that has work of it there is a part of it.

The home shard says which runs there are and what state each is in; the parts follow. A part is known by its key. It
never ends by itself: whoever adds tasks asks the run (run_state.py), so that one that has ended can go on again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import ExportedTask, Task, digest
from shoal.errors import QueueRefused, UsageError
from shoal.queue.base import Queue
from shoal.queue.shards.filler import LANE, filler, push_filler
from shoal.queue.shards.numbers import first_number
from shoal.queue.shards.shard import Shard

if TYPE_CHECKING:
    from shoal.queue.shards.shard_set import ShardSet

KEY = "shard/"  # of a part; the number of its run follows
# Keeps a shard's numbers apart from others', and says that a part is complete.
FIRST = Task(url="shard:first", lane=LANE, digest=digest("shard:first"))
_TRIES = 20


def is_part(run: Run) -> bool:
    return run.key.startswith(KEY)


class RunNumbers:
    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self._local: dict[tuple[int, int], int] = {}  # (shard, run) -> its number there
        self._known: dict[tuple[int, int], int] = {}  # (shard, number there) -> run
        self._making = asyncio.Lock()

    async def find(self, shard: Shard, run: int) -> int:
        """The number of the part of a run that a shard has; 0: it has none."""
        known = self._local.get((shard.index, run))
        if known:
            return known
        found = await shard.ask(lambda it: it.runs(key=f"{KEY}{run}", limit=1))
        if not found or not await shard.ask(lambda it: _is_complete(it, found[0])):
            return 0
        self._note(shard, run, found[0].id)
        return found[0].id

    async def ensure(self, shard: Shard, run: int) -> int:
        """The number of a part, which is made if it is not there yet."""
        found = await self.find(shard, run)
        if found:
            return found
        async with self._making:
            found = await self.find(shard, run)
            return found or await self._make(shard, run)

    async def global_of(self, shard: Shard, local: int) -> int:
        """The run of which a shard has this part."""
        known = self._known.get((shard.index, local))
        if known is None:
            found = await shard.ask(lambda it: it.runs(before=local + 1, limit=1))
            name = found[0].key.removeprefix(KEY) if found and found[0].id == local else ""
            if not name.isdecimal():
                raise QueueRefused(
                    f"shard {shard.name} has a run that is none of this queue",
                    hint="use a namespace of its own for a shard, and only through the sharded queue",
                )
            known = int(name)
            self._note(shard, known, local)
        return known

    def forget(self, run: int) -> None:
        for shard in self._shards.shards:
            local = self._local.pop((shard.index, run), 0)
            self._known.pop((shard.index, local), None)

    def _note(self, shard: Shard, run: int, local: int) -> None:
        self._local[shard.index, run] = local
        self._known[shard.index, local] = run

    async def _make(self, shard: Shard, run: int) -> int:
        about = await self._shards.require(run)
        made = await shard.ask(lambda it: it.start_run(_part_of(about, run, shard)))
        for tries in range(_TRIES):  # another may do the same, and let it go on meanwhile
            try:
                # To complete it again would pause it for a moment, and what others push meanwhile would wait.
                if not await shard.ask(lambda it: _is_complete(it, made)):
                    await shard.ask(lambda it: _complete(it, made.id, first_number(shard.index), about))
                break
            except UsageError:
                if tries == _TRIES - 1:
                    raise
        # Only now: whoever changes its state either finds it here, or has changed it before this look.
        now = await self._shards.run(run)
        if now is not None and now.state != "paused":
            await shard.ask(lambda it: it.set_run(made.id, "cancel" if now.state == "cancelled" else "resume"))
        self._note(shard, run, made.id)
        return made.id


def _part_of(run: Run, number: int, shard: Shard) -> NewRun:
    return NewRun(
        scraper=run.scraper, key=f"{KEY}{number}", name=part_name(run.name, shard), spec=run.spec, weight=run.weight,
        priority=run.priority, max_pages=1 if run.max_pages else 0, once=True, seen_set=run.seen_set,
        seen_for=run.seen_for, dead_retention=run.dead_retention,
    )  # fmt: skip


def part_name(name: str, shard: Shard) -> str:
    """At home the name is that of the run itself."""
    return name if shard.index else KEY + name


async def _complete(queue: Queue, part: int, first: int, run: Run) -> None:
    """Give a part what belongs to it before anybody adds to it: numbers of its own, and no page to begin with."""
    await queue.set_run(part, "pause")
    # What is imported keeps its number, and new ones come after it.
    await queue.import_run(part, [ExportedTask(first, FIRST, "seen")], paces={LANE: UNLIMITED_PACE})
    if run.seen_set:
        await queue.forget_seen(run.seen_set, [FIRST.digest])
    if run.max_pages:
        await queue.set_run(part, "resume")
        await push_filler(queue, part, 1)
        await queue.set_run(part, "pause")


async def _is_complete(queue: Queue, part: Run) -> bool:
    """Nobody adds to a part before it is; later its limit may have changed."""
    first, *rest = await queue.ids(part.id, [FIRST.digest] + [filler(1).digest] * (part.max_pages == 1))
    return bool(first) and all(rest)
