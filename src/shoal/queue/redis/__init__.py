"""The queue on Redis or Valkey: many machines, everything in memory, one script per verb."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from shoal.core.lane import LaneState, Mark, Pace, Slot
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.core.task import Admission, Carried, Claim, LaneChange, Outcome, State, Task, Verdict
from shoal.errors import QueueRefused
from shoal.queue.base import (
    LEASE,
    DeadGroup,
    Extended,
    Finding,
    Paper,
    Promises,
    Reaped,
    RunAction,
    StoredRecord,
    TaskView,
    Where,
)

try:
    import hiredis as _  # noqa: F401
except ImportError as error:
    raise QueueRefused(
        "the Redis queue needs the package hiredis", hint="pip install 'shoal[redis]'"
    ) from error

from shoal.queue.redis import (
    admit,
    carry,
    checkup,
    claim,
    drop,
    groups,
    lanes,
    look,
    papers,
    records,
    runs,
    settle,
    upkeep,
)
from shoal.queue.redis.address import Address
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.hints import Hints
from shoal.queue.redis.packing import pack_change
from shoal.queue.redis.runs import stats_of
from shoal.queue.wanted import Wanted

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
        self._hints = Hints(engine)
        self.promises = Promises(
            durable=_DURABLE[engine.aof],
            steps_clock=engine.clock is not None,
            shared="any number of machines",
        )

    @classmethod
    async def open(cls, url: str, *, clock: Callable[[], int] | None = None) -> RedisQueue:
        """Connect and check the server; only tests give a clock, else the server's own decides."""
        engine = Engine(Address.parse(url), clock=clock)
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        return cls(engine)

    @property
    def is_logged(self) -> bool:
        """Whether the server keeps a log: without one its restart undoes work."""
        return bool(self._engine.aof)

    async def start_run(self, new: NewRun) -> Run:
        return await runs.start(self._engine, new)

    async def runs(
        self,
        *,
        key: str = "",
        name: str = "",
        states: Collection[RunState] = (),
        scraper: str = "",
        before: int = 0,
        limit: int = 100,
    ) -> list[Run]:
        return await runs.listing(self._engine, key, name, states, scraper, before, limit)

    async def set_run(self, run: int, action: RunAction) -> Run:
        return await runs.act(self._engine, run, action)

    async def add(
        self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        return await admit.add(self._engine, run, tasks, paces or {})

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE,
        serves: Collection[str] | None = None,
        request_id: str = "",
    ) -> Claim:
        self._hints.serves = serves
        return await claim.claim(self._engine, worker, limit, lease, serves, request_id)

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        return await claim.reserve(self._engine, lane, pace, within)

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE
    ) -> Extended:
        return await claim.extend(self._engine, worker, leases, lease)

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        return await settle.settle(self._engine, outcomes, paces or {})

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        return await upkeep.reap(self._engine, dead_workers or {})

    async def stats(self, run: int) -> Stats:
        return await runs.stats(self._engine, run)

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        return await stats_of(self._engine, runs)

    async def recount(self, run: int) -> Stats:
        return await runs.recount(self._engine, run)

    async def strays(self, run: int, limit: int = 20) -> list[int]:
        return await runs.strays(self._engine, run, limit)

    async def look(
        self,
        run: int,
        *,
        state: State | None = None,
        where: Where = Where(),
        after: int = 0,
        upto: int = 0,
        limit: int = 100,
    ) -> list[TaskView]:
        return await look.look(self._engine, run, state, where, after, upto, limit)

    async def find(self, run: int, digest: bytes) -> TaskView | None:
        return await look.find(self._engine, run, digest)

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadGroup]:
        return await groups.listing(self._engine, run, limit)

    async def skipped(self, run: int, limit: int = 100) -> list[tuple[str, str]]:
        return await look.skipped(self._engine, run, limit)

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        return await look.ids(self._engine, run, digests)

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        return await records.page(self._engine, run, after, limit, tasks)

    async def trim(self, run: int, upto: int) -> int:
        return await records.trim(self._engine, run, upto)

    async def drop(
        self,
        run: int,
        where: Where = Where(),
        *,
        state: Literal["ready", "dead"] = "ready",
        limit: int = 10_000,
    ) -> int:
        return await drop.drop(self._engine, run, where, state, limit)

    async def revive(self, run: int, where: Where = Where(), *, limit: int = 10_000) -> int:
        return await runs.revive(self._engine, run, where, limit)

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        return await runs.purge(self._engine, run, older_than)

    async def carry_out(self, run: int, *, after: int = 0, limit: int = 500) -> list[Carried]:
        return await carry.out(self._engine, run, after, limit)

    async def carry_in(
        self,
        run: int,
        tasks: Sequence[Carried],
        records: Sequence[StoredRecord] = (),
        *,
        paces: Mapping[str, Pace] | None = None,
        counts: Stats | None = None,
    ) -> None:
        await carry.in_(self._engine, run, tasks, records, paces or {}, counts)

    async def keep_paper(self, kind: str, name: str, text: str) -> Paper:
        return await papers.keep(self._engine, kind, name, text)

    async def paper(self, kind: str, name: str, version: int = 0) -> Paper | None:
        return await papers.find(self._engine, kind, name, version)

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        return await papers.swap(self._engine, kind, name, text, expected)

    async def papers(self, kind: str) -> list[Paper]:
        return await papers.listing(self._engine, kind)

    async def lanes(
        self,
        *,
        run: int | None = None,
        limit: int = 100,
        order: Literal["ready", "name"] = "ready",
        after: str = "",
        like: str = "",
        only: Literal["", "parked", "held", "ruled"] = "",
        names: Collection[str] = (),
    ) -> list[LaneState]:
        wanted = Wanted(order, after, like, only, names)
        return await lanes.listing(self._engine, run, limit, wanted)

    async def set_lane(self, change: LaneChange) -> None:
        await self._engine.run("set_lane", change.lane, pack_change(change), change.reason)

    async def register(self, mark: Mark) -> str:
        return await upkeep.register(self._engine, mark)

    async def ask_worker(self, worker: str, wanted: Literal["drain", "pause", ""]) -> bool:
        return await upkeep.ask(self._engine, worker, wanted)

    async def workers(self) -> list[Mark]:
        return await upkeep.workers(self._engine)

    async def forget_worker(self, worker: str) -> None:
        await upkeep.forget(self._engine, worker)

    async def wait(self, seconds: float) -> None:
        await self._hints.wait(seconds)

    async def checkup(self) -> list[Finding]:
        return await checkup.checkup(self._engine)

    async def now(self) -> int:
        return await self._engine.now()

    async def close(self) -> None:
        self._hints.close()
        self._engine.close()
        await asyncio.sleep(0)  # the loop closes connections, if it is let
