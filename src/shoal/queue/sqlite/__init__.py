"""The embedded queue: one SQLite file, many processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from shoal.core.lane import LaneState, Mark, Pace, Slot
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.core.task import Admission, Carried, Claim, LaneChange, Outcome, State, Task, Verdict
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
from shoal.queue.sqlite import (
    account,
    admit,
    carry,
    claim,
    drop,
    lanelist,
    lanes,
    look,
    papers,
    purge,
    reap,
    records,
    runs,
    settle,
    workers,
)
from shoal.queue.sqlite.engine import CACHE, SMALL_CACHE, Engine, Synchronous

ACCOUNTS = 250  # runs that are told of in one go


class SqliteQueue:
    """Every verb is one transaction, but for what takes long; what each does is in the module of its name."""

    promises = Promises(
        durable="everything acknowledged (synchronous=full); with synchronous=normal a power loss may undo the last seconds",
        steps_clock=True,
        shared="processes of one machine, on a local disk",
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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

    async def start_run(self, new: NewRun) -> Run:
        return await self._engine.write(runs.start, new)

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
        return self._engine.read(runs.listing, key, name, states, scraper, before, limit)

    async def set_run(self, run: int, action: RunAction) -> Run:
        return await self._engine.write(runs.act, run, action)

    async def add(
        self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        return await self._engine.write(admit.add, run, tasks, paces or {})

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE,
        serves: Collection[str] | None = None,
        request_id: str = "",
    ) -> Claim:
        return await self._engine.hint(claim.claim, worker, limit, lease, serves, request_id)

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        return await self._engine.hint(lanes.reserve, lane, pace, within)

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE
    ) -> Extended:
        return await self._engine.hint(reap.extend, worker, leases, lease)

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        return await self._engine.write(settle.settle, outcomes, paces or {})

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        return await self._engine.write(reap.reap, dead_workers or {})

    async def stats(self, run: int) -> Stats:
        return self._engine.read(account.stats, run)

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        found: list[Stats] = []
        for at in range(0, len(runs), ACCOUNTS):
            if at:
                await asyncio.sleep(0)
            found += self._engine.read(account.stats_of, runs[at : at + ACCOUNTS], len(runs))
        return found

    async def recount(self, run: int) -> Stats:
        return await self._engine.aside(account.recount, run)

    async def strays(self, run: int, limit: int = 20) -> list[int]:
        return await self._engine.aside(account.strays, run, limit)

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
        return self._engine.read(look.look, run, state, where, after, upto, limit)

    async def find(self, run: int, digest: bytes) -> TaskView | None:
        return self._engine.read(look.find, run, digest)

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadGroup]:
        return self._engine.read(look.dead_groups, run, limit)

    async def skipped(self, run: int, limit: int = 100) -> list[tuple[str, str]]:
        return self._engine.read(look.skipped, run, limit)

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        return self._engine.read(look.ids, run, digests)

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        return self._engine.read(records.listing, run, after, limit, tasks)

    async def trim(self, run: int, upto: int) -> int:
        return await self._engine.write(records.trim, run, upto)

    async def drop(
        self,
        run: int,
        where: Where = Where(),
        *,
        state: Literal["ready", "dead"] = "ready",
        limit: int = 10_000,
    ) -> int:
        return await self._engine.write(drop.drop, run, where, state, limit)

    async def revive(self, run: int, where: Where = Where(), *, limit: int = 10_000) -> int:
        while True:
            back = await self._engine.write(runs.revive, run, where, limit)
            if back is not None:
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

    async def carry_out(self, run: int, *, after: int = 0, limit: int = 500) -> list[Carried]:
        return await self._engine.hint(carry.out, run, after, limit)

    async def carry_in(
        self,
        run: int,
        tasks: Sequence[Carried],
        records: Sequence[StoredRecord] = (),
        *,
        paces: Mapping[str, Pace] | None = None,
        counts: Stats | None = None,
    ) -> None:
        await self._engine.write(carry.take, run, tasks, records, paces or {}, counts)

    async def keep_paper(self, kind: str, name: str, text: str) -> Paper:
        return await self._engine.write(papers.keep, kind, name, text)

    async def paper(self, kind: str, name: str, version: int = 0) -> Paper | None:
        return self._engine.read(papers.find, kind, name, version)

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        return await self._engine.write(papers.swap, kind, name, text, expected)

    async def papers(self, kind: str) -> list[Paper]:
        return self._engine.read(papers.listing, kind)

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
        return self._engine.read(lanelist.listing, run, limit, order, after, like, only, names)

    async def set_lane(self, change: LaneChange) -> None:
        await self._engine.write(lanes.change, [change])

    async def register(self, mark: Mark) -> str:
        return await self._engine.hint(workers.register, mark)

    async def ask_worker(self, worker: str, wanted: Literal["drain", "pause", ""]) -> bool:
        return await self._engine.write(workers.ask, worker, wanted)

    async def workers(self) -> list[Mark]:
        return self._engine.read(workers.listing)

    async def forget_worker(self, worker: str) -> None:
        await self._engine.hint(workers.forget, worker)

    async def wait(self, seconds: float) -> None:
        await self._engine.wait(claim.is_waiting, seconds)

    async def checkup(self) -> list[Finding]:
        from shoal.queue.sqlite.checkup import checkup

        try:
            return await asyncio.to_thread(checkup, self._engine.path, self._engine.durable)
        except sqlite3.Error as error:
            raise self._engine.translated(error) from error

    async def now(self) -> int:
        return self._engine.clock()

    async def close(self) -> None:
        self._engine.close()
