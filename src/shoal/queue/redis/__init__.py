"""The queue on Redis or Valkey: many machines, everything in memory, one script per verb."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.core.task import LaneChange
from shoal.queue.base import Promises
from shoal.queue.facade import verb
from shoal.queue.failover import recovery_of, remembered
from shoal.queue.recent_writes import RecentWrites
from shoal.queue.redis import (
    admit,
    cache,
    claim,
    diagnostics,
    documents,
    drop,
    failing,
    groups,
    inspect,
    lanes,
    move,
    outbox,
    page_states,
    push,
    reap,
    records,
    runs,
    seen_sets,
    settle,
)
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.listener import RedisListener
from shoal.queue.redis.overdue import look
from shoal.queue.redis.packing import pack_change
from shoal.queue.redis.server_url import RedisUrl

_DURABLE = {
    "always": "everything acknowledged (appendfsync always)",
    "everysec": "all but the last second or two (appendonly yes, appendfsync everysec)",
    "no": "what the system has written of the log (appendfsync no): the last half minute may be lost",
    "": "only the last snapshot: this server keeps no log (appendonly no), so a restart of it may undo work",
}


class RedisQueue:
    """Every verb is one script; what each does is in the module of its name and in lua/."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listener = RedisListener(engine)
        if engine.server_url.fails_over:
            engine.recovery = recovery_of(
                engine, add=admit.add, settle=settle.settle, document=documents.find,
                compare_and_swap=documents.compare_and_swap, now=engine.now,
            )  # fmt: skip
        self.promises = Promises(
            durable=_DURABLE[engine.aof], steps_clock=engine.clock is not None, shared="any number of machines"
        )

    @classmethod
    async def open(cls, url: str, *, clock: Callable[[], int] | None = None) -> RedisQueue:
        """Connect and check the server; only tests give a clock, else the server's own decides."""
        engine = Engine(RedisUrl.parse(url), clock=clock)
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        return cls(engine)

    # A verb with its module's name is the last of that module: from there on, the name is the verb's.
    start_run = verb(runs.start)
    set_run = verb(runs.set_state)
    set_max_pages = verb(runs.set_max_pages)
    stats = verb(runs.stats)
    stats_of = verb(runs.stats_of)
    recount = verb(runs.recount)
    run_counters = verb(runs.run_counters)
    orphans = verb(runs.orphans)
    revive = verb(runs.revive)
    purge = verb(runs.purge)
    runs = verb(runs.listing)

    add = verb(remembered(admit.add, RecentWrites.added))
    reserve = verb(claim.reserve)
    extend = verb(claim.extend)
    claim = verb(claim.claim)
    push = verb(push.push)
    settle = verb(remembered(settle.settle, RecentWrites.settled))
    drop = verb(drop.drop)

    list_tasks = verb(look(inspect.list_tasks))
    find = verb(look(inspect.find))
    skipped = verb(inspect.skipped)
    ids = verb(inspect.ids)
    dead_groups = verb(look(groups.listing))
    trim = verb(records.trim)
    records = verb(records.page)

    forget_seen = verb(seen_sets.forget)
    clear_seen = verb(seen_sets.clear)
    seen_sets = verb(seen_sets.listing)

    save_page_states = verb(page_states.save)
    page_states = verb(page_states.listing)
    failures = verb(failing.failures)
    forget_failures = verb(failing.forget)
    cache_get = verb(cache.get)
    cache_put = verb(cache.put)
    cache_list = verb(cache.listing)
    cache_clear = verb(cache.clear)
    cache_stats = verb(cache.stats)

    acknowledge = verb(outbox.acknowledge)
    outbox = verb(outbox.listing)

    export_run = verb(move.export_run)
    import_run = verb(move.import_run)

    save_document = verb(documents.save)
    document = verb(documents.find)
    compare_and_swap = verb(documents.compare_and_swap)
    documents = verb(documents.listing)

    lanes = verb(lanes.listing)

    register = verb(reap.register)
    command_worker = verb(reap.set_command)
    workers = verb(reap.workers)
    forget_worker = verb(reap.forget)
    reap = verb(reap.reap)

    diagnose = verb(diagnostics.diagnose)

    async def set_lane(self, change: LaneChange) -> None:
        await self._engine.run("set_lane", change.lane, pack_change(change), change.reason)

    async def wait(self, seconds: float) -> None:
        await self._listener.wait(seconds)

    async def now(self) -> int:
        return await self._engine.now()

    async def close(self) -> None:
        self._listener.close()
        if self._engine.recovery is not None:
            await self._engine.recovery.close()
        self._engine.close()
        await asyncio.sleep(0)  # the loop closes connections, if it is let
