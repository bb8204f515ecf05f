"""The queue on PostgreSQL: many workers on many machines, one schema per namespace."""

from __future__ import annotations

from collections.abc import Callable

from shoal.queue.base import Promises
from shoal.queue.facade import verb
from shoal.queue.failover import recovery_of, remembered
from shoal.queue.postgres import (
    admit,
    cache,
    claim,
    diagnostics,
    documents,
    drop,
    failing,
    inspect,
    lanes,
    move,
    outbox,
    page_states,
    push,
    reap,
    runs,
    seen_sets,
    server_url,
    settle,
)
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.listener import PostgresListener
from shoal.queue.postgres.overdue import look
from shoal.queue.promises import POSTGRES
from shoal.queue.recent_writes import RecentWrites


class PostgresQueue:
    """Every verb is one or two calls, each a transaction; what each does is in the module of its name."""

    promises = Promises(POSTGRES.durable, steps_clock=True, shared=POSTGRES.shared_by)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listener = PostgresListener(engine)
        if engine.server_url.fails_over:
            engine.recovery = recovery_of(
                engine, add=admit.add, settle=settle.settle, document=documents.find,
                compare_and_swap=documents.compare_and_swap, now=self.now,
            )  # fmt: skip

    @classmethod
    async def open(cls, url: str, *, clock: Callable[[], int] | None = None, small: bool = False) -> PostgresQueue:
        """Connect, and make or migrate the schema; `clock` is for tests, else the server's decides.

        `small` takes fewer connections: for workers, of which there are many.
        """
        engine = Engine(server_url.parse(url, small=small), clock)
        await engine.open()
        return cls(engine)

    @property
    def place(self) -> str:
        return self._engine.server_url.display_url

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
    claim = verb(claim.claim)
    push = verb(push.push)
    settle = verb(remembered(settle.settle, RecentWrites.settled))
    drop = verb(drop.drop)

    list_tasks = verb(look(inspect.list_tasks))
    find = verb(look(inspect.find))
    dead_groups = verb(look(inspect.dead_groups))
    skipped = verb(inspect.skipped)
    ids = verb(inspect.ids)
    records = verb(inspect.records)
    trim = verb(inspect.trim)

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

    reserve = verb(lanes.reserve)
    set_lane = verb(lanes.set_lane)
    lanes = verb(lanes.listing)

    extend = verb(reap.extend)
    register = verb(reap.register)
    command_worker = verb(reap.set_command)
    workers = verb(reap.workers)
    forget_worker = verb(reap.forget)
    reap = verb(reap.reap)

    diagnose = verb(diagnostics.diagnose)

    async def wait(self, seconds: float) -> None:
        await self._listener.wait(seconds)

    async def now(self) -> int:
        return int(await self._engine.value("SELECT {s}.clock_micros($1)", self._engine.now()))

    async def close(self) -> None:
        await self._listener.close()
        if self._engine.recovery is not None:
            await self._engine.recovery.close()
        await self._engine.close()
