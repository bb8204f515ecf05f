"""The embedded queue: one SQLite file, many processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence

from shoal.core.run import Run
from shoal.core.seen_set import CLEAR_STEPS
from shoal.core.stats import Stats
from shoal.core.task import LaneChange
from shoal.queue.base import CacheEntry, CacheStats, Finding, NewCacheEntry, Promises, ReapResult, RunAction, TaskFilter
from shoal.queue.promises import SQLITE
from shoal.queue.sqlite import (
    admit,
    claim,
    documents,
    drop,
    failing,
    inspect,
    lane_list,
    lanes,
    move,
    outbox,
    page_limit,
    page_states,
    purge,
    push,
    reap,
    records,
    run_counters,
    runs,
    seen_sets,
    settle,
    stats,
    workers,
)
from shoal.queue.sqlite.cache import CacheFile
from shoal.queue.sqlite.engine import CACHE, SMALL_CACHE, Engine, Synchronous
from shoal.queue.sqlite.facade import end_overdue, hint, look, look_in_thread, read, read_in_thread, write
from shoal.queue.sqlite.seen_sets import clear, clear_slice

RUNS_PER_READ = 250  # runs that are told of in one go


class SqliteQueue:
    """Every verb is one transaction, but for what takes long; what each does is in the module of its name."""

    promises = Promises(SQLITE.durable, steps_clock=True, shared=SQLITE.shared_by)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = CacheFile(engine.path, engine.clock)

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        clock: Callable[[], int] | None = None,
        synchronous: Synchronous = "full",
        small: bool = False,
    ) -> SqliteQueue:
        """Open or make a state file; `small` is for processes that should take little memory."""
        cache = SMALL_CACHE if small else CACHE
        return cls(Engine(path, clock=clock, synchronous=synchronous, cache=cache))

    @property
    def path(self) -> str:
        return self._engine.path

    # A verb with its module's name is the last of that module: from there on, the name is the verb's.
    start_run = write(runs.start)
    runs = read(runs.listing)

    add = write(admit.add)
    claim = hint(claim.claim)
    push = write(push.push)
    settle = write(settle.settle)
    drop = write(drop.drop)
    reserve = hint(lanes.reserve)
    extend = hint(reap.extend)

    recount = look_in_thread(stats.recount)
    run_counters = read(run_counters.read)
    orphans = read_in_thread(stats.orphans)
    stats = look(stats.stats)

    list_tasks = look(inspect.list_tasks)
    find = look(inspect.find)
    dead_groups = look(inspect.dead_groups)
    skipped = read(inspect.skipped)
    ids = read(inspect.ids)
    trim = write(records.trim)
    records = read(records.listing)

    forget_seen = write(seen_sets.forget)
    seen_sets = read(seen_sets.listing)

    save_page_states = hint(page_states.save)  # durable with the outcomes, which come after it
    page_states = read(page_states.listing)
    failures = read(failing.failures)
    forget_failures = write(failing.forget)

    acknowledge = write(outbox.acknowledge)
    outbox = read(outbox.listing)

    export_run = hint(move.export_run)
    import_run = write(move.import_run)

    save_document = write(documents.save)
    document = read(documents.find)
    compare_and_swap = write(documents.compare_and_swap)
    documents = read(documents.listing)

    lanes = read(lane_list.listing)

    register = hint(workers.register)
    command_worker = write(workers.set_command)
    forget_worker = hint(workers.forget)
    workers = read(workers.listing)

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        found: list[Stats] = []
        for at in range(0, len(runs), RUNS_PER_READ):
            if at:
                await asyncio.sleep(0)
            some = runs[at : at + RUNS_PER_READ]
            await end_overdue(self._engine, some)
            found += self._engine.read(stats.stats_of, some, len(runs))
        return found

    async def set_run(self, run: int, action: RunAction) -> Run:
        changed, more = await self._engine.write(runs.set_state, run, action)
        await self._move_lanes(run, more)
        return changed

    async def set_max_pages(self, run: int, max_pages: int) -> Run:
        changed, more = await self._engine.write(page_limit.set_max_pages, run, max_pages)
        await self._move_lanes(run, more)
        return changed

    async def _move_lanes(self, run: int, more: bool) -> None:
        """A step at a time, so that others get their turn; where that is cut short, reap goes on."""
        while more:
            await asyncio.sleep(0)
            more = await self._engine.write_relaxed(lanes.move_some, run)

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        while True:
            back = await self._engine.write(runs.revive, run, where, limit)
            if back is not None:
                await self._move_lanes(run, back > 0)
                return back
            await asyncio.sleep(0)

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        chosen = await self._engine.write(purge.choose, run, older_than)
        gone = 0
        while chosen:
            ended, some = await self._engine.write(purge.step, chosen)
            gone, chosen = gone + some, chosen[ended:]
            if chosen:
                await asyncio.sleep(0)
        return gone

    async def clear_seen(self, name: str) -> int:
        number, count = await self._engine.write(clear, name)
        for _ in range(CLEAR_STEPS):  # what is left is removed with maintenance
            if not number or not await self._engine.write(clear_slice, number):
                break
            await asyncio.sleep(0)
        return count

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
        reaped = await self._engine.write(reap.reap, dead_workers)
        await self._cache.sweep()
        return reaped

    async def cache_get(self, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
        return await self._cache.get(keys, bodies=bodies)

    async def cache_put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        return await self._cache.put(entry, max_bytes)

    async def cache_list(self, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
        return await self._cache.listing(host, before, limit)

    async def cache_clear(self, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
        return await self._cache.clear(host, keys, limit)

    async def cache_stats(self) -> CacheStats:
        return await self._cache.stats()

    async def set_lane(self, change: LaneChange) -> None:
        await self._engine.write(lanes.apply_changes, [change])

    async def wait(self, seconds: float) -> None:
        await self._engine.wait(claim.has_claimable_work, seconds)

    async def diagnose(self) -> list[Finding]:
        from shoal.queue.sqlite.diagnostics import diagnose

        try:
            return await asyncio.to_thread(diagnose, self._engine.path, self._engine.durable)
        except sqlite3.Error as error:
            raise self._engine.translate_error(error) from error

    async def now(self) -> int:
        return self._engine.clock()

    async def close(self) -> None:
        self._cache.close()
        self._engine.close()
