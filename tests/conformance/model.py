"""ModelQueue: the queue contract in its plainest form, to judge real backends by.

Everything that can be counted by a scan is counted by a scan, so there are no counters to go wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from conformance.model_carry import Carrying
from conformance.model_claim import Handing
from conformance.model_look import Looking
from conformance.model_settle import Settling
from conformance.model_state import ModelLane, ModelLease, ModelRun, ModelTask, identity, micros
from shoal.core.lane import Mark, Pace, Slot
from shoal.core.run import TASK_BITS, NewRun, Run, run_of
from shoal.core.stats import Stats
from shoal.core.task import (
    ALONE,
    DROPPED,
    Admission,
    Attempt,
    Claim,
    LaneChange,
    Leased,
    Outcome,
    State,
    Task,
    Verdict,
)
from shoal.errors import Usage
from shoal.queue.base import (
    FIGURES_CAP,
    LEASE,
    LOST_LIMIT,
    Extended,
    Finding,
    Paper,
    Promises,
    Reaped,
    RunAction,
    Where,
)

FITS: dict[RunAction, tuple[str, ...]] = {
    "pause": ("running", "paused"),
    "resume": ("paused", "running"),
    "cancel": ("running", "paused", "cancelled"),
    "finish": ("running", "paused", "finished"),
}
BECOMES = {"pause": "paused", "resume": "running", "cancel": "cancelled", "finish": "finished"}


class ModelQueue(Handing, Settling, Looking, Carrying):
    promises = Promises(durable="nothing: it lives in memory", steps_clock=True, shared="one process")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.latest = 0
        self.last_lease = 0
        self.last_run = 0
        self.virtual_time = 0.0
        self.all_runs: dict[int, ModelRun] = {}
        self.tasks: dict[int, ModelTask] = {}
        self.seen: dict[tuple[int, bytes], int] = {}  # (run, digest) -> task
        self.all_lanes: dict[str, ModelLane] = {}
        self.leases: dict[int, ModelLease] = {}  # those with tasks under them
        self.settled: dict[tuple[int, int], int] = {}  # (task, lease) -> remembered until
        self.marks: dict[str, Mark] = {}
        self.all_papers: dict[tuple[str, str], list[Paper]] = {}

    async def now(self) -> int:
        return self.clock()

    async def close(self) -> None:
        pass

    def reopened(self) -> None:
        """Called when a test opens the same store again."""

    # runs

    async def start_run(self, new: NewRun) -> Run:
        same_key = [about for about in self.all_runs.values() if about.run.key == new.key]
        for known in same_key:
            if known.takes_work:
                return known.run
        if new.once and same_key:
            return same_key[-1].run
        self.last_run += 1
        now = self.clock()
        run = Run(
            self.last_run, new.name, new.scraper, new.key, "running", now, now,
            weight=new.weight, max_pages=new.max_pages, spec=new.spec,
        )  # fmt: skip
        self.all_runs[run.id] = ModelRun(run)
        return run

    async def set_run(self, run: int, action: RunAction) -> Run:
        about = self._run(run)
        if about.run.state not in FITS[action]:
            raise Usage(f"cannot {action} a run that is {about.run.state}")
        if about.run.state == BECOMES[action]:
            return about.run
        stats = await self.stats(run)
        if action == "finish" and stats.open:
            raise Usage(f"cannot finish a run with {stats.open} open tasks")
        if action == "cancel":
            self.cancel_open(run)
        self.set_state(about, BECOMES[action])
        return about.run

    def _run(self, run: int) -> ModelRun:
        if run not in self.all_runs:
            raise Usage(f"there is no run {run}")
        return self.all_runs[run]

    # papers

    async def keep_paper(self, kind: str, name: str, text: str) -> Paper:
        versions = self.all_papers.setdefault((kind, name), [])
        if not versions or versions[-1].text != text:
            version = versions[-1].version + 1 if versions else 1
            versions.append(Paper(kind, name, version, text, self.clock()))
        return versions[-1]

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        known = await self.paper(kind, name)
        if expected != (known.version if known else 0):
            return None
        if text is None:
            self.all_papers.pop((kind, name), None)
            return known
        made = Paper(kind, name, known.version + 1 if known else self.clock(), text, self.clock())
        self.all_papers[kind, name] = [made]
        return made

    async def paper(self, kind: str, name: str, version: int = 0) -> Paper | None:
        found = [it for it in self.all_papers.get((kind, name), []) if version in (0, it.version)]
        return found[-1] if found else None

    async def papers(self, kind: str) -> list[Paper]:
        newest = [versions[-1] for versions in self.all_papers.values()]
        return sorted((it for it in newest if it.kind == kind), key=lambda it: it.name)

    # add

    async def add(
        self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        if not self._run(run).takes_work:
            return ["rejected"] * len(tasks)
        self._check(tasks)
        self.note_time()
        return [self.admit(run, task, paces or {}) for task in tasks]

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        lane = self._lane(task.lane)
        lane.asks[run] = paces.get(task.lane) or lane.asks.get(run) or Pace()
        if (run, identity(task.digest)) in self.seen:
            return "known"
        now = self.clock()
        expires_at = None if task.ttl is None else now + micros(task.ttl)
        new = ModelTask(self.new_id(run, task), run, task, now, now + micros(task.delay), expires_at)
        self.tasks[new.id] = new
        self.seen[run, identity(task.digest)] = new.id
        return "added"

    def new_id(self, run: int, task: Task) -> int:
        about = self.all_runs[run]
        about.numbers += 1
        return run << TASK_BITS | about.numbers

    def _lane(self, name: str) -> ModelLane:
        return self.all_lanes.setdefault(name, ModelLane(name))

    def _check(self, tasks: Sequence[Task]) -> None:
        """Refuse what no store could keep, before anything has changed."""
        for task in tasks:
            msgspec.json.encode((task.meta, task.ask))

    # claim, extend, reserve

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE,
        serves: Collection[str] | None = None,
        request_id: str = "",
    ) -> Claim:
        self.note_time()
        again = self.same_request(worker, request_id)
        if again:
            return self._as_claim(again)
        self.expire_waiting()
        number = self.next_lease()
        held: ModelLease | None = None
        for index in range(limit):
            task = self.choose(serves, first=index == 0)
            if task is None:
                break
            held = held or self.open_lease(number, worker, lease, request_id)
            self.give(task, held, self._lane(task.task.lane).first_slot(self.clock()))
            if task.band == ALONE:
                break
        return self._as_claim(held) if held else Claim(0, (), self.next_in(serves))

    def note_time(self) -> None:
        self.latest = max(self.latest, self.clock())

    def same_request(self, worker: str, request_id: str) -> ModelLease | None:
        for lease in self.leases.values():
            if request_id and (lease.worker, lease.request_id) == (worker, request_id):
                return lease if lease.until > self.clock() else None
        return None

    def _as_claim(self, lease: ModelLease) -> Claim:
        return Claim(lease.number, tuple(self._as_leased(id, lease) for id in lease.slots))

    def _as_leased(self, id: int, lease: ModelLease) -> Leased:
        task = self.tasks[id]
        what = task.task
        start_in = max(0, lease.slots[id] - self.clock()) / 1_000_000
        return Leased(
            id, lease.number, task.run, what.lane, what.url, what.kind, what.priority, what.depth,
            what.parent, what.meta, task.attempts, task.lost, start_in, self.spacing(self._lane(what.lane)),
            dict(task.failures) or None, what.ask, self._lane(what.lane).parked,
        )  # fmt: skip

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        new, here, now = lane not in self.all_lanes, self._lane(lane), self.clock()
        if new:
            here.booked = (pace or Pace()).spacing
        if here.parked and here.held_until > now:
            wait = (here.held_until - now) / 1_000_000
            return Slot(wait, here.reason or "parked", self.spacing(here), taken=False)
        at, given = here.first_slot(now), pace.spacing if pace else 0.0
        spacing = self.slower(here, given)
        if within is not None and at - now > within * 1_000_000:
            return Slot((at - now) / 1_000_000, spacing=spacing, taken=False)
        self.take_slot(here, at, given)
        return Slot((at - now) / 1_000_000, spacing=spacing)

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE
    ) -> Extended:
        lost, cancelled = set(), set()
        for number, started in leases.items():
            held = self.leases.get(number)
            if held is None or held.worker != worker or held.until <= self.clock():
                lost.add(number)
                continue
            self.prolong(held, started, lease)
            cancelled |= {id for id in held.slots if self.tasks[id].state == "cancelled"}
        return Extended(frozenset(lost), frozenset(cancelled))

    def prolong(self, held: ModelLease, started: Collection[int], lease: float) -> None:
        held.until, held.span = max(held.until, self.clock() + micros(lease)), max(held.span, lease)
        held.started, held.extended = set(started), True

    # settle

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        for outcome in outcomes:
            self._check(outcome.found)
        self.note_time()
        verdicts = []
        for outcome in outcomes:
            verdicts.append(self.may_answer(outcome)[0])
            self.make_true(outcome, verdicts[-1], paces or {})
        return verdicts

    # reap

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        self.note_time()
        fates: Counter[str] = Counter()
        for lease in list(self.leases.values()):
            if dead_workers and lease.worker in dead_workers:
                charged = set(dead_workers[lease.worker])
            elif lease.until <= self.clock():
                charged = lease.started if lease.extended else set(lease.slots)
            else:
                continue
            del self.leases[lease.number]
            fates.update(self.lose(self.tasks[id], charged=id in charged) for id in lease.slots)
        expired = self.expire_waiting()
        for about in self.all_runs.values():
            self.stop_at_limit(about)
        return Reaped(fates["ready"], fates["dead"], expired)

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        """Take a task from a lost worker; says what became of it."""
        if task.state != "leased":
            return ""
        if charged:
            task.lost += 1
            self.all_runs[task.run].lost += 1
        if task.lost >= LOST_LIMIT:
            self.end(task, "dead", "worker_lost")
        else:
            task.state = "ready"
        return task.state

    def expire_waiting(self) -> int:
        over = [task for task in self.tasks.values() if task.is_expired(self.clock())]
        for task in over:
            self.end(task, "dead", "expired")
        return len(over)

    # acting

    async def drop(
        self, run: int, where: Where = Where(), *, state: State = "ready", limit: int = 10_000
    ) -> int:
        self._run(run)
        gone = self.matching(run, state, where)[:limit]
        for task in gone:
            self.end(task, "cancelled", DROPPED)
            task.history.append(Attempt(self.clock(), "", DROPPED, "given up by a person"))
            task.lease, task.evidence = 0, None
            self.forget_answers(task)
        return len(gone)

    async def revive(self, run: int, where: Where = Where(), *, limit: int = 10_000) -> int:
        about = self._run(run)
        again = self.matching(run, "dead", where)[:limit] if about.run.state != "cancelled" else []
        for task in again:
            task.state, task.due_at = "ready", self.clock()
            task.expires_at = None if task.task.ttl is None else self.clock() + micros(task.task.ttl)
            task.attempts, task.lost, task.cause, task.finished_at = 0, 0, "", 0
            task.failures.clear()
            self.forget_answers(task)
        if again and about.run.state == "finished":
            self.set_state(about, "running")
        if again and about.run.max_pages:
            used = [task for task in self.tasks.values() if task.run == run]
            room = sum(task.state in ("done", "dead", "leased") for task in used) + len(again)
            about.run = replace(about.run, max_pages=max(about.run.max_pages, room))
        return len(again)

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        now = self.clock()
        gone = [
            id
            for id, about in self.all_runs.items()
            if not about.takes_work
            and run in (None, id)
            and (older_than is None or about.run.finished_at + micros(older_than) < now)
        ]
        for id in gone:
            del self.all_runs[id]
            self.tasks = {key: task for key, task in self.tasks.items() if task.run != id}
            self.seen = {key: task for key, task in self.seen.items() if key[0] != id}
            held = [(task, lease.number) for lease in self.leases.values() for task in lease.slots]
            for task, number in held:
                if run_of(task) == id:
                    self.leave_lease(task, number)
        if older_than is not None:
            silent = [it.id for it in self.marks.values() if it.seen_at + micros(older_than) < now]
            for worker in silent:
                del self.marks[worker]
        return len(gone)

    async def set_lane(self, change: LaneChange) -> None:
        self.change_lane(change)

    def change_lane(self, change: LaneChange) -> None:
        lane, now = self._lane(change.lane), self.clock()
        if change.hold_for is not None:
            lane.held_until = max(lane.held_until, now + micros(change.hold_for))
            lane.reason = change.reason
        if change.park_for is not None:
            again = not lane.parked or lane.held_until <= now
            lane.parked = lane.parked + again if change.park_for > 0 else 0
            lane.held_until = max(lane.held_until, now + micros(change.park_for)) if lane.parked else 0
            lane.reason = change.reason
        before = self.spacing(lane)
        if change.spacing is not None:
            lane.learned = change.spacing
        if change.rule is not None:
            lane.rule = change.rule if change.rule >= 0 else -1.0
        if change.limit is not None:
            lane.limit = max(-1, change.limit)
        lane.next_at += max(0, micros(self.spacing(lane)) - micros(before))

    # workers

    async def register(self, mark: Mark) -> str:
        known = self.marks.get(mark.id)
        asked = known.asked if known else ""
        figures = mark.figures if len(mark.figures) <= FIGURES_CAP else b""
        self.marks[mark.id] = replace(mark, seen_at=self.clock(), asked=asked, leased=0, figures=figures)
        return asked

    async def ask_worker(self, worker: str, wanted: str) -> bool:
        if worker in self.marks:
            self.marks[worker] = replace(self.marks[worker], asked=wanted)
        return worker in self.marks

    async def workers(self) -> list[Mark]:
        return [replace(mark, leased=self.held_by(mark.id)) for mark in self.marks.values()]

    def held_by(self, worker: str) -> int:
        return sum(len(lease.slots) for lease in self.leases.values() if lease.worker == worker)

    async def forget_worker(self, worker: str) -> None:
        self.marks.pop(worker, None)

    # hints

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def checkup(self) -> list[Finding]:
        return [Finding("model", "note", "it forgets everything when the process ends")]

    async def strays(self, run: int, limit: int = 20) -> list[int]:
        return []

    async def recount(self, run: int) -> Stats:
        return await self.stats(run)
