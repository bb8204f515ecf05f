"""ModelQueue: the queue contract in its plainest form, to judge real backends by.

Everything that can be counted by a scan is counted by a scan, so there are no counters to go wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from conformance.model_cache import ModelCache, ModelCacheEntry
from conformance.model_failing import ModelFailing
from conformance.model_inspect import ModelInspect
from conformance.model_move import ModelMove
from conformance.model_push import ModelPush
from conformance.model_seen import ModelSeen, ModelSeenSet
from conformance.model_settle import ModelSettle
from conformance.model_state import ModelLane, ModelLease, ModelRun, ModelTask, identity, micros
from shoal.core.capability import MAX_CAPABILITIES, Needs, capability_names
from shoal.core.lane import Pace, Slot, WorkerStatus
from shoal.core.needs import MAX_NEEDS_SETS, needs_of, too_many_sets
from shoal.core.run import TASK_BITS, NewRun, Run, run_of
from shoal.core.stats import Stats
from shoal.core.task import (
    DISCARDED,
    DROPPED,
    ISOLATED,
    UNACKNOWLEDGED,
    UNACKNOWLEDGED_MESSAGE,
    Admission,
    Attempt,
    Claim,
    LaneChange,
    LeasedTask,
    Outcome,
    State,
    Task,
    Verdict,
)
from shoal.errors import RunNameTaken, UsageError
from shoal.queue.base import (
    LANE_KEPT_SECONDS,
    LEASE_SECONDS,
    LOST_LIMIT,
    MAX_COUNTERS_BYTES,
    UNDO_SECONDS,
    Document,
    ExtendResult,
    Finding,
    Promises,
    ReapResult,
    RunAction,
    StoredEntry,
    TaskFilter,
    UrlFailures,
)
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.page_limit import limit_refused

FITS: dict[RunAction, tuple[str, ...]] = {
    "pause": ("running", "paused"),
    "resume": ("paused", "running"),
    "cancel": ("running", "paused", "cancelled"),
    "undo": ("running", "paused", "cancelled"),
    "finish": ("running", "paused", "finished"),
}
BECOMES = {"pause": "paused", "resume": "running", "cancel": "cancelled", "finish": "finished"}


class ModelQueue(ModelPush, ModelSettle, ModelInspect, ModelSeen, ModelFailing, ModelCache, ModelMove):
    promises = Promises(durable="nothing: it lives in memory", steps_clock=True, shared="one process")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.latest = 0
        self.last_lease = 0
        self.last_run = 0
        self.last_entry = 0
        self.virtual_time = 0.0
        self.all_runs: dict[int, ModelRun] = {}
        self.tasks: dict[int, ModelTask] = {}
        self.seen: dict[tuple[int, bytes], int] = {}  # (run, digest) -> task
        self.all_seen_sets: dict[str, ModelSeenSet] = {}
        self.all_failures: dict[str, UrlFailures] = {}
        self.failure_numbers: dict[str, int] = {}
        self.cached: dict[bytes, ModelCacheEntry] = {}
        self.last_put = 0
        self.all_lanes: dict[str, ModelLane] = {}
        self.leases: dict[int, ModelLease] = {}  # those with tasks under them
        self.settled: dict[tuple[int, int], int] = {}  # (task, lease) -> remembered until
        self.worker_statuses: dict[str, WorkerStatus] = {}
        self.all_documents: dict[tuple[str, str], list[Document]] = {}

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
        if new.name and any(about.run.name == new.name for about in self.all_runs.values()):
            raise RunNameTaken(f"there is a run called {new.name} already")
        self.last_run += 1
        now = self.clock()
        run = Run(
            self.last_run, new.name, new.scraper, new.key, "running", now, now,
            weight=new.weight, priority=new.priority, max_pages=new.max_pages, spec=new.spec,
            seen_set=new.seen_set, seen_for=new.seen_for, dead_retention=new.keeps_dead,
        )  # fmt: skip
        self.all_runs[run.id] = ModelRun(run)
        self.open_seen_set(run)
        return run

    async def set_run(self, run: int, action: RunAction) -> Run:
        about = self._run(run)
        if about.run.state not in FITS[action]:
            raise UsageError(f"cannot {action} a run that is {about.run.state}")
        if action == "undo":
            return self.undo(about)
        if about.run.state == BECOMES[action]:
            return about.run
        stats = await self.stats(run)
        if action == "finish" and not stats.is_over:
            raise UsageError(f"cannot finish a run with {stats.open} open tasks and {stats.outbox} entries")
        if action == "cancel":
            self.cancel_open(run)
            about.before_cancel = about.run.state
            about.undo_until = self.clock() + micros(UNDO_SECONDS)
        self.set_state(about, BECOMES[action])
        return about.run

    def undo(self, about: ModelRun) -> Run:
        """Back to what it was before it was cancelled."""
        if about.takes_work:
            return about.run
        if about.undo_until <= self.clock():
            raise UsageError("its tasks are gone")
        if any(other.takes_work and other.run.key == about.run.key for other in self.all_runs.values()):
            raise UsageError("another run goes on in its place")
        self.bring_back(about)
        return about.run

    def bring_back(self, about: ModelRun) -> None:
        for task in self.tasks.values():
            if task.run == about.run.id and task.kept:
                task.state, task.kept = task.kept, None
        about.undo_until = 0
        self.set_state(about, about.before_cancel)

    async def set_max_pages(self, run: int, max_pages: int) -> Run:
        about, stats = self._run(run), await self.stats(run)
        if not about.takes_work:
            ended = stats.ended_pages
            if about.run.state != "finished" or not stats.cancelled or not 0 < about.run.max_pages <= ended:
                raise limit_refused("ended", about.run)
            if about.undo_until <= self.clock():
                raise limit_refused("late", about.run)
            if 0 < max_pages <= ended:
                raise limit_refused("reached", about.run, ended)
            if any(other.takes_work and other.run.key == about.run.key for other in self.all_runs.values()):
                raise limit_refused("replaced", about.run, "other")
            self.bring_back(about)
        about.run = replace(about.run, max_pages=max(0, max_pages), changed_at=self.clock())
        return about.run

    def _run(self, run: int) -> ModelRun:
        if run not in self.all_runs:
            raise UsageError(f"there is no run {run}")
        return self.all_runs[run]

    # papers

    async def save_document(self, kind: str, name: str, text: str) -> Document:
        versions = self.all_documents.setdefault((kind, name), [])
        if not versions or versions[-1].text != text:
            version = versions[-1].version + 1 if versions else 1
            versions.append(Document(kind, name, version, text, self.clock()))
        return versions[-1]

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        known = await self.document(kind, name)
        if expected != (known.version if known else 0):
            return None
        if text is None:
            self.all_documents.pop((kind, name), None)
            return known
        made = Document(kind, name, known.version + 1 if known else self.clock(), text, self.clock())
        self.all_documents[kind, name] = [made]
        return made

    async def document(self, kind: str, name: str, version: int = 0) -> Document | None:
        found = [it for it in self.all_documents.get((kind, name), []) if version in (0, it.version)]
        return found[-1] if found else None

    async def documents(self, kind: str) -> list[Document]:
        newest = [versions[-1] for versions in self.all_documents.values()]
        return sorted((it for it in newest if it.kind == kind), key=lambda it: it.name)

    # add

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        if not self._run(run).takes_work:
            return ["rejected"] * len(tasks)
        self._check(tasks)
        refused = self.number_needs(run, tasks)
        if refused:
            raise too_many_sets(refused)
        self.note_time()
        return [self.admit(run, task, paces or {}) for task in tasks]

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        lane = self._lane(task.lane)
        lane.asks[run] = paces.get(task.lane) or lane.asks.get(run) or Pace()
        if (run, identity(task.digest)) in self.seen:
            return "known"
        if self.was_had(run, task):
            return "seen"
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
            msgspec.json.encode((task.meta, task.request_options))
            capability_names(task.needs)

    def number_needs(self, run: int, tasks: Sequence[Task]) -> list[Needs]:
        """Remember the combinations that these tasks ask for; answers those that are too many."""
        known = self.all_runs[run].needs_sets
        fresh = [needs for needs in needs_of(tasks) if needs not in known]
        room = MAX_NEEDS_SETS - len(known)
        known += fresh[:room]
        return fresh[room:]

    # claim, extend, reserve

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE_SECONDS,
        serves: Collection[str] | None = None,
        capabilities: Collection[str] = (),
        request_id: str = "",
    ) -> Claim:
        has = capability_names(capabilities, most=MAX_CAPABILITIES)
        self.note_time()
        again = self.same_request(worker, request_id)
        if again:
            return self.as_claim(again)
        self.expire_waiting()
        number = self.next_lease()
        held: ModelLease | None = None
        for index in range(limit):
            task = self.choose(serves, has, first=index == 0)
            if task is None:
                break
            held = held or self.open_lease(number, worker, lease, request_id)
            self.give(task, held, self._lane(task.task.lane).first_slot(self.clock()))
            if task.band == ISOLATED:
                break
        return self.as_claim(held) if held else Claim(0, (), self.next_in(serves, has))

    def note_time(self) -> None:
        self.latest = max(self.latest, self.clock())

    def same_request(self, worker: str, request_id: str) -> ModelLease | None:
        for lease in reversed(self.leases.values()):
            if request_id and (lease.worker, lease.request_id) == (worker, request_id) and lease.until > self.clock():
                return lease
        return None

    def as_claim(self, lease: ModelLease) -> Claim:
        held = [id for id in lease.slots if self.tasks[id].state == "leased"]
        held.sort(key=lambda id: (lease.slots[id], -self.priority(self.tasks[id].run), self.tasks[id].band))
        return Claim(lease.number, tuple(self._as_leased(id, lease) for id in held))

    def _as_leased(self, id: int, lease: ModelLease) -> LeasedTask:
        task = self.tasks[id]
        what = task.task
        start_in = max(0, lease.slots[id] - self.clock()) / 1_000_000
        return LeasedTask(
            id, lease.number, task.run, what.lane, what.url, what.kind, what.priority, what.depth,
            what.parent, what.meta, task.attempts, task.lost, start_in, self.spacing(self._lane(what.lane)),
            dict(task.failures) or None, what.request_options, self._lane(what.lane).parked, what.ack,
            capability_names(what.needs), expires_at=task.expires_at or 0,
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
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
    ) -> ExtendResult:
        lost, cancelled = set(), set()
        for number, started in leases.items():
            held = self.leases.get(number)
            if held is None or held.worker != worker or held.until <= self.clock():
                lost.add(number)
                continue
            cancelled |= self.prolong(held, started, lease)
        return ExtendResult(frozenset(lost), frozenset(cancelled))

    def prolong(self, held: ModelLease, started: Collection[int], lease: float) -> set[int]:
        """Says what need not be finished: from here on nobody executes it."""
        cancelled = {id for id in held.slots if self.tasks[id].state == "cancelled"}
        held.until, held.span = max(held.until, self.clock() + micros(lease)), max(held.span, lease)
        held.started, held.extended = set(started) - cancelled, True
        return cancelled

    # settle

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        check_outbox(outcomes)
        counter_totals(outcomes)
        for outcome in outcomes:
            self._check(outcome.found)
        self.note_time()
        verdicts = []
        for outcome in outcomes:
            verdicts.append(self.may_answer(outcome)[0])
            self.make_true(outcome, verdicts[-1], paces or {})
        self.stop_settled(outcomes, verdicts)
        return verdicts

    # outbox

    async def outbox(self, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
        entries = [entry for about in self.all_runs.values() for entry in about.entries]
        found = [entry for entry in entries if entry.kind == kind and entry.seq > after]
        return sorted(found, key=lambda entry: entry.seq)[:limit]

    async def acknowledge(self, seqs: Collection[int]) -> int:
        gone = 0
        for about in self.all_runs.values():
            kept = [entry for entry in about.entries if entry.seq not in seqs]
            gone += len(about.entries) - len(kept)
            about.entries = kept
        return gone

    # reap

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
        self.note_time()
        fates: Counter[str] = Counter()
        for lease in list(self.leases.values()):
            if dead_workers and lease.worker in dead_workers:
                charged = set(dead_workers[lease.worker])
            elif lease.until <= self.clock():
                charged = lease.started if lease.extended else set(lease.slots)
            else:
                continue
            fates.update(self.lose(self.tasks[id], charged=id in charged) for id in lease.slots)
            del self.leases[lease.number]
        expired = self.expire_waiting()
        self.discard()
        self.sweep_seen()
        self.forget_old_failures()
        self.remove_idle_lanes()
        for about in self.all_runs.values():
            self.stop_at_limit(about)
            if about.undo_until <= self.clock():
                about.undo_until = 0  # its tasks are removed from here on
        return ReapResult(fates["ready"], fates["dead"], expired)

    def remove_idle_lanes(self) -> None:
        before = self.clock() - micros(LANE_KEPT_SECONDS)
        named = {task.task.lane for task in self.tasks.values()}
        for lane in list(self.all_lanes.values()):
            is_set = lane.learned or lane.parked or lane.spacing_override >= 0 or lane.limit >= 0
            is_asked = lane.name in named or lane.asks.keys() & self.all_runs.keys()
            if not is_set and not is_asked and max(lane.next_at, lane.last_slot, lane.held_until) <= before:
                del self.all_lanes[lane.name]

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        """Take a task from a lost worker; says what became of it."""
        if task.kept == "leased":  # cancelled with its run
            is_kept = self.all_runs[task.run].undo_until > self.clock() and task.task.ack == "manual"
            task.kept = "ready" if is_kept else None
        if task.state != "leased":
            return ""
        if task.task.ack == "auto":
            task.history.append(
                Attempt(self.clock(), self.leases[task.lease].worker, UNACKNOWLEDGED, UNACKNOWLEDGED_MESSAGE)
            )
            self.end(task, "dead", UNACKNOWLEDGED)
            return task.state
        if charged:
            task.lost += 1
            self.all_runs[task.run].lost += 1
        if task.lost >= LOST_LIMIT:
            self.end(task, "dead", "worker_lost")
        else:
            task.state = "ready"
        return task.state

    def expire_waiting(self, run: int | None = None) -> int:
        over = [task for task in self.tasks.values() if task.is_expired(self.clock()) and run in (None, task.run)]
        for task in over:
            self.end(task, "dead", "expired")
        return len(over)

    def discard(self) -> None:
        """Dead letters whose retention is over are removed: only that they were there is left."""
        for task in self.tasks.values():
            retention = micros(self.all_runs[task.run].run.dead_retention)
            if task.state == "dead" and retention and task.finished_at + retention <= self.clock():
                task.state, task.cause = "discarded", DISCARDED
                task.task = Task("", "", task.task.digest)
                task.history, task.evidence, task.lease = [], None, 0
                self.forget_answers(task)

    # acting

    async def drop(
        self, run: int, where: TaskFilter = TaskFilter(), *, state: State = "ready", limit: int = 10_000
    ) -> int:
        self._run(run)
        gone = self.matching(run, state, where)[:limit]
        for task in gone:
            self.end(task, "cancelled", DROPPED)
            task.history.append(Attempt(self.clock(), "", DROPPED, "dropped by a person"))
            task.lease, task.evidence = 0, None
            self.forget_answers(task)
        return len(gone)

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        about = self._run(run)
        again = self.matching(run, "dead", where)[:limit] if about.run.state != "cancelled" else []
        for task in again:
            task.state, task.due_at = "ready", self.clock()
            task.expires_at = None if task.task.ttl is None else self.clock() + micros(task.task.ttl)
            task.attempts, task.lost, task.cause, task.finished_at = 0, 0, "", 0
            task.failures.clear()
            task.any_band = task.comes_first and not about.run.max_pages
            task.comes_first = about.run.max_pages > 0
            self.forget_answers(task)
            self.forget_failures_of(task)
        if again and about.run.state == "finished":
            if about.undo_until > self.clock():
                self.bring_back(about)
            self.set_state(about, "running")
            about.undo_until = 0
            for task in self.tasks.values():
                if task.run == run and task.kept == "ready":
                    task.kept = None
        if again and about.run.max_pages:
            room = sum(task.run == run and self.takes_page(task) for task in self.tasks.values()) + len(again)
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
            silent = [it.id for it in self.worker_statuses.values() if it.seen_at + micros(older_than) < now]
            for worker in silent:
                del self.worker_statuses[worker]
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
        if change.spacing_override is not None:
            lane.spacing_override = change.spacing_override if change.spacing_override >= 0 else -1.0
        if change.limit is not None:
            lane.limit = max(-1, change.limit)
        lane.next_at += max(0, micros(self.spacing(lane)) - micros(before))

    # workers

    async def register(self, mark: WorkerStatus) -> str:
        known = self.worker_statuses.get(mark.id)
        asked = known.command if known else ""
        counters = mark.counters if len(mark.counters) <= MAX_COUNTERS_BYTES else b""
        self.worker_statuses[mark.id] = replace(mark, seen_at=self.clock(), command=asked, leased=0, counters=counters)
        return asked

    async def command_worker(self, worker: str, wanted: str) -> bool:
        if worker in self.worker_statuses:
            self.worker_statuses[worker] = replace(self.worker_statuses[worker], command=wanted)
        return worker in self.worker_statuses

    async def workers(self) -> list[WorkerStatus]:
        return [replace(mark, leased=self.held_by(mark.id)) for mark in self.worker_statuses.values()]

    def held_by(self, worker: str) -> int:
        return sum(len(lease.slots) for lease in self.leases.values() if lease.worker == worker)

    async def forget_worker(self, worker: str) -> None:
        self.worker_statuses.pop(worker, None)

    # hints

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def diagnose(self) -> list[Finding]:
        return [Finding("model", "note", "it forgets everything when the process ends")]

    async def orphans(self, run: int, limit: int = 20) -> list[int]:
        return []

    async def recount(self, run: int) -> Stats:
        return await self.stats(run)
