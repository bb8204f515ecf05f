"""The queue on PostgreSQL: many workers on many machines, one schema per namespace."""

from __future__ import annotations

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
from shoal.queue.postgres import (
    address,
    admit,
    carry,
    checkup,
    claim,
    drop,
    lanes,
    look,
    papers,
    reap,
    runs,
    settle,
)
from shoal.queue.postgres.ear import Ear
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.runs import stats_of
from shoal.queue.wanted import Wanted


class PostgresQueue:
    """Every verb is one or two calls, each a transaction; what each does is in the module of its name."""

    promises = Promises(
        durable="everything acknowledged, where the server has fsync and synchronous_commit on; a crash of the server may undo the last claims, which only hands their tasks out again",
        steps_clock=True,
        shared="any number of machines that reach the server",
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ear = Ear(engine)

    @classmethod
    async def open(
        cls, url: str, *, clock: Callable[[], int] | None = None, small: bool = False
    ) -> PostgresQueue:
        """Connect, and make or migrate the schema; `clock` is for tests, else the server's decides.

        `small` takes fewer connections: for workers, of which there are many.
        """
        engine = Engine(address.parse(url, small=small), clock)
        await engine.open()
        return cls(engine)

    @property
    def place(self) -> str:
        return self._engine.address.shown

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
        return await claim.claim(self._engine, worker, limit, lease, serves, request_id)

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        return await lanes.reserve(self._engine, lane, pace, within)

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE
    ) -> Extended:
        return await reap.extend(self._engine, worker, leases, lease)

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        return await settle.settle(self._engine, outcomes, paces or {})

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        return await reap.reap(self._engine, dead_workers or {})

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
        return await look.dead_groups(self._engine, run, limit)

    async def skipped(self, run: int, limit: int = 100) -> list[tuple[str, str]]:
        return await look.skipped(self._engine, run, limit)

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        return await look.ids(self._engine, run, digests)

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        return await look.records(self._engine, run, after, limit, tasks)

    async def trim(self, run: int, upto: int) -> int:
        return await look.trim(self._engine, run, upto)

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
        await carry.into(self._engine, run, tasks, records, paces or {}, counts)

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
        await lanes.set_lane(self._engine, change)

    async def register(self, mark: Mark) -> str:
        return await reap.register(self._engine, mark)

    async def ask_worker(self, worker: str, wanted: Literal["drain", "pause", ""]) -> bool:
        return await reap.ask(self._engine, worker, wanted)

    async def workers(self) -> list[Mark]:
        return await reap.workers(self._engine)

    async def forget_worker(self, worker: str) -> None:
        await reap.forget(self._engine, worker)

    async def wait(self, seconds: float) -> None:
        await self._ear.wait(seconds)

    async def checkup(self) -> list[Finding]:
        return await checkup.findings(self._engine)

    async def now(self) -> int:
        return int(await self._engine.value("SELECT {s}.tick($1)", self._engine.now()))

    async def close(self) -> None:
        await self._ear.close()
        await self._engine.close()
