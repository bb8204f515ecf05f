"""The sharded queue: a queue around queues. Each host is on one of them; together they are one queue."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.queue.base import Promises
from shoal.queue.facade import verb
from shoal.queue.promises import SHARDS
from shoal.queue.shards import (
    account,
    admin,
    claim,
    flow,
    home,
    inspect,
    move,
    moved_tasks,
    quota,
    records,
    runs,
    settle,
)
from shoal.queue.shards.shard import Opener
from shoal.queue.shards.shard_set import ShardSet


class ShardedQueue:
    """Every verb is asked of the shards that it is about; what each does is in the module of its name."""

    def __init__(self, shards: ShardSet) -> None:
        self._engine = shards
        answering = [shard.queue for shard in shards.shards if shard.queue is not None]
        self.promises = Promises(
            SHARDS.durable,
            steps_clock=all(queue.promises.steps_clock for queue in answering),
            shared=SHARDS.shared_by,
            apart="each shard numbers its own tasks, and shares its hosts between runs by itself",
        )

    @classmethod
    async def open(cls, urls: Sequence[str], opener: Opener) -> ShardedQueue:
        """`opener` opens the queue at the URL of a shard; the first is the home shard."""
        shards = ShardSet(urls, opener)
        try:
            await shards.start()
            await quota.load_limited(shards)
            await moved_tasks.load_moved(shards)
        except BaseException:
            await shards.close()
            raise
        return cls(shards)

    @property
    def shards(self) -> ShardSet:
        return self._engine

    start_run = verb(runs.start)
    set_run = verb(runs.set_state)
    set_max_pages = verb(quota.set_max_pages)
    runs = verb(runs.listing)

    add = verb(flow.add)
    push = verb(flow.push)
    reserve = verb(flow.reserve)
    extend = verb(flow.extend)
    reap = verb(flow.reap)
    wait = verb(flow.wait)
    set_lane = verb(flow.set_lane)
    claim = verb(claim.claim)
    settle = verb(settle.settle)

    stats = verb(account.stats)
    stats_of = verb(account.stats_of)
    recount = verb(account.recount)
    run_counters = verb(account.run_counters)
    orphans = verb(account.orphans)

    list_tasks = verb(inspect.list_tasks)
    find = verb(inspect.find)
    ids = verb(inspect.ids)
    dead_groups = verb(inspect.dead_groups)
    skipped = verb(inspect.skipped)
    lanes = verb(inspect.lanes)
    save_page_states = verb(inspect.save_page_states)
    page_states = verb(inspect.page_states)
    trim = verb(records.trim)
    records = verb(records.page)

    drop = verb(admin.drop)
    revive = verb(admin.revive)
    purge = verb(admin.purge)
    diagnose = verb(admin.diagnose)
    seen_sets = verb(admin.seen_sets)
    forget_seen = verb(admin.forget_seen)
    clear_seen = verb(admin.clear_seen)
    failures = verb(admin.failures)
    forget_failures = verb(admin.forget_failures)
    outbox = verb(admin.outbox)
    acknowledge = verb(admin.acknowledge)

    export_run = verb(move.export_run)
    import_run = verb(move.import_run)

    save_document = verb(home.save_document)
    document = verb(home.document)
    compare_and_swap = verb(home.compare_and_swap)
    documents = verb(home.documents)
    now = verb(home.now)
    register = verb(home.register)
    command_worker = verb(home.command_worker)
    workers = verb(home.workers)
    forget_worker = verb(home.forget_worker)
    cache_get = verb(home.cache_get)
    cache_put = verb(home.cache_put)
    cache_list = verb(home.cache_list)
    cache_clear = verb(home.cache_clear)
    cache_stats = verb(home.cache_stats)

    async def close(self) -> None:
        await self._engine.close()
