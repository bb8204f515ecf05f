"""Deliberately broken queues, each against one rule: proof that the suite can fail.

Each class breaks the model in one small place, the way real queues have been broken.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from conformance.model import ModelQueue
from conformance.model_state import ModelLane, ModelLease, ModelRun, ModelTask, identity
from shoal.core.lane import LaneState, Pace, Slot, WorkerStatus, host_of_lane
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import DROPPED, Admission, Claim, ExportedTask, LaneChange, Outcome, State, Task, Verdict
from shoal.queue.base import (
    LEASE_SECONDS,
    DeadLetterGroup,
    Document,
    ExtendResult,
    ReapResult,
    RunAction,
    StoredRecord,
    TaskFilter,
    TaskView,
)


class NoFencing(ModelQueue):
    """A late answer is taken although the task was given to another."""

    def may_answer(self, outcome: Outcome) -> list[Verdict]:
        task = self.tasks.get(outcome.task)
        if task is not None and task.state == "leased":
            return ["ok"]
        return super().may_answer(outcome)


class FencedByLeaseOnly(ModelQueue):
    """Any living lease may settle any task."""

    def may_answer(self, outcome: Outcome) -> list[Verdict]:
        if outcome.lease in self.leases and self.tasks[outcome.task].state == "leased":
            return ["ok"]
        return super().may_answer(outcome)


class EarlyAcknowledgement(ModelQueue):
    """Handing out is taken for done: a crash loses the task."""

    def give(self, task: ModelTask, lease: ModelLease, slot: int) -> None:
        super().give(task, lease, slot)
        task.state = "done"


class ReapForgets(ModelQueue):
    """What a dead worker held is gone from the queue, not given back."""

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        answer = super().lose(task, charged=charged)
        del self.tasks[task.id]
        return answer


class LeaseIsTheClock(ModelQueue):
    """Lease numbers are the time of day, which stands still and steps back."""

    def next_lease(self) -> int:
        return self.clock()


class LeaseStartsAnew(ModelQueue):
    """Lease numbers are counted in memory and begin again after a restart."""

    def next_lease(self) -> int:
        return self.last_lease + 1

    def reopened(self) -> None:
        self.last_lease = 0


class CountersMissFound(ModelQueue):
    """Found tasks are not counted."""

    uncounted = 0

    def keep_links(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        before = len(self.tasks)
        super().keep_links(task, outcome, paces, late=late)
        self.uncounted += len(self.tasks) - before

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        missing = min(self.uncounted, stats.ready)
        return replace(stats, seen=stats.seen - missing, ready=stats.ready - missing)

    async def recount(self, run: int) -> Stats:
        return await super().stats(run)


class CountersDrift(ModelQueue):
    """A task that lost its worker is counted as ready and as leased for ever."""

    drift = 0

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        self.drift += 1
        return super().lose(task, charged=charged)

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        return replace(stats, seen=stats.seen + self.drift, leased=stats.leased + self.drift)


class DoubledRecords(ModelQueue):
    """A repeated settle stores its records again."""

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        super().make_true(outcome, verdict, paces)
        if verdict == "already" and outcome.result == "done":
            self.keep_records(self.tasks[outcome.task], outcome)


class RecordsOfStaleAnswers(ModelQueue):
    """A late answer is refused, but its records were stored before anyone looked."""

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        super().make_true(outcome, verdict, paces)
        if verdict == "stale":
            self.keep_records(self.tasks[outcome.task], outcome)


class SpacingIgnored(ModelQueue):
    """Slots are given without moving the lane."""

    def take_slot(self, lane: ModelLane, at: int, given: float = 0.0) -> None:
        pass


class ReserveTakesNoSlot(ModelQueue):
    """A reserved slot is given to the next claim as well."""

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        before = self._lane(lane).next_at
        slot = await super().reserve(lane, pace, within=within)
        self._lane(lane).next_at = before
        return slot


class ConcurrencyIgnored(ModelQueue):
    """Any number of tasks of a lane is in flight."""

    def free_places(self, lane: ModelLane) -> int:
        return 1 << 30


class InFlightLeaked(ModelQueue):
    """Reap gives the tasks back, but not their places in flight."""

    leaked: tuple[str, ...] = ()

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        self.leaked += (task.task.lane,)
        return super().lose(task, charged=charged)

    def lane_state(self, lane: ModelLane, run: int | None = None) -> LaneState:
        state = super().lane_state(lane, run)
        return replace(state, in_flight=state.in_flight + self.leaked.count(lane.name))


class FoundComeLater(ModelQueue):
    """Found tasks are added in a second step, which a restart or a repeated settle loses."""

    waiting: tuple[int, tuple[Task, ...]] | None = None

    def keep_links(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        self.waiting = (task.run, outcome.found)

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        self.waiting = None
        return await super().settle(outcomes, paces)

    async def claim(self, *args: Any, **words: Any) -> Claim:
        if self.waiting:
            for task in self.waiting[1]:
                self.admit(self.waiting[0], task, {})
            self.waiting = None
        return await super().claim(*args, **words)


class SeenForgotten(ModelQueue):
    """The seen-set holds open tasks only: what is done is crawled again."""

    def finish_task(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        super().finish_task(task, outcome, paces, late=late)
        self.seen.pop((task.run, identity(task.task.digest)), None)


class CancelledHandedOut(ModelQueue):
    """Cancel closes the account, but the tasks are still in line."""

    def cancel_open(self, run: int) -> None:
        pass

    def is_served(self, run: int, serves: Collection[str] | None) -> bool:
        return self.all_runs[run].run.state == "cancelled" or super().is_served(run, serves)


class PausedHandedOut(ModelQueue):
    """A paused run goes on."""

    def is_served(self, run: int, serves: Collection[str] | None) -> bool:
        return self.all_runs[run].run.state == "paused" or super().is_served(run, serves)


class ServesIgnored(ModelQueue):
    """A worker gets work it has no code for."""

    def is_served(self, run: int, serves: Collection[str] | None) -> bool:
        return super().is_served(run, None)


class RetryAtOnce(ModelQueue):
    """A retry does not wait."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, replace(outcome, after=0.0))


class ReleaseCostsAnAttempt(ModelQueue):
    """Handing work back at a shutdown uses up its retries."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, outcome)
        task.attempts += outcome.result == "released"


class RequestForgotten(ModelQueue):
    """A repeated request gets a second batch."""

    def same_request(self, worker: str, request_id: str) -> ModelLease | None:
        return None


class ChargesAll(ModelQueue):
    """Every task of a lost worker is charged, also those it never started."""

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        return super().lose(task, charged=True)


class ChargesNobody(ModelQueue):
    """A task that kills its workers is handed out for ever."""

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        return super().lose(task, charged=False)


class ZombieExtends(ModelQueue):
    """A worker whose lease was lost is told that all is well."""

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
    ) -> ExtendResult:
        answer = await super().extend(worker, leases, lease=lease)
        return replace(answer, lost=frozenset())


class ExtendDoesNothing(ModelQueue):
    """The heartbeat is answered, but the lease runs out all the same."""

    def prolong(self, held: ModelLease, started: Collection[int], lease: float) -> set[int]:
        held.extended, held.started = True, set(started)
        return set()


class ExpiredHandedOut(ModelQueue):
    """Nobody looks at the time to live."""

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        return super().admit(run, replace(task, ttl=None), paces)


class HoldIgnored(ModelQueue):
    """Retry-After is noted and not obeyed."""

    def give(self, task: ModelTask, lease: ModelLease, slot: int) -> None:
        super().give(task, lease, self.clock())

    def choose(self, *args: Any, **how: Any) -> ModelTask | None:
        for lane in self.all_lanes.values():
            lane.held_until = 0
        return super().choose(*args, **how)


class PartAcknowledges(ModelQueue):
    """The first part of a big page is taken for the whole."""

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        super().make_true(outcome, verdict, paces)
        if outcome.result == "part" and verdict == "ok":
            self.end(self.tasks[outcome.task], "done", "")


class LateLinksKept(ModelQueue):
    """Links of a cancelled run's last pages bring it back to life."""

    def keep_links(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        for found in outcome.found:
            self.admit(task.run, found, paces)
        super().keep_links(task, outcome, paces, late=late)


class LateRecordsDropped(ModelQueue):
    """Pages fetched while their run was cancelled are thrown away."""

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        late = self.tasks[outcome.task].state == "cancelled" if outcome.task in self.tasks else False
        super().make_true(replace(outcome, records=()) if late else outcome, verdict, paces)


class ReviveDoubles(ModelQueue):
    """Dead letters are put back and kept as well."""

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        revived = sum(task.run == run and task.evidence == {"revived": True} for task in self.tasks.values())
        return replace(stats, seen=stats.seen + revived, dead=stats.dead + revived)

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        for task in self.matching(run, "dead", where):
            task.evidence = {"revived": True}
        return await super().revive(run, where, **how)


class FinishedTooEarly(ModelQueue):
    """A run is finished while work is out with its workers."""

    async def set_run(self, run: int, action: RunAction) -> Run:
        if action == "finish":
            self.set_state(self._run(run), "finished")
            return self._run(run).run
        return await super().set_run(run, action)


class ForgetsOnRestart(ModelQueue):
    """Leases live in memory: after a restart everything is handed out again."""

    def reopened(self) -> None:
        for task in self.tasks.values():
            if task.state == "leased":
                task.state = "ready"
        self.leases.clear()


class NothingOldest(ModelQueue):
    """High priorities come first, always: low ones starve."""

    def choose(self, *args: Any, **how: Any) -> ModelTask | None:
        for about in self.all_runs.values():
            about.picks.clear()
        return super().choose(*args, **how)


class PriorityIgnored(ModelQueue):
    """First in, first out."""

    def choose(self, *args: Any, **how: Any) -> ModelTask | None:
        for about in self.all_runs.values():
            about.picks.update({lane: 15 - about.picks[lane] for lane in self.all_lanes})
        return super().choose(*args, **how)


class RunPriorityIgnored(ModelQueue):
    """Runs share alike, however urgent one of them is."""

    def priority(self, run: int) -> int:
        return 0


class UrgentRunsOnly(ModelQueue):
    """While an urgent run has work nobody else is served: the others starve."""

    def choose(self, *args: Any, **how: Any) -> ModelTask | None:
        for lane in self.all_lanes.values():
            lane.given = 0
        return super().choose(*args, **how)


class OldestOfItsRun(ModelQueue):
    """At the turn of the oldest any task of a less urgent run will do."""

    def oldest(self, tasks: list[ModelTask]) -> ModelTask:
        return min(tasks, key=lambda task: self.priority(task.run) * 100 + task.band)


class AutoIsRetried(ModelQueue):
    """What is to be done once at most is tried again when it fails."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        asked, task.task = task.task, replace(task.task, ack="manual")
        super().end_attempt(task, outcome)
        task.task = asked


class AutoComesBack(ModelQueue):
    """What is to be done once at most goes back when its worker dies, who may have done it."""

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        asked, task.task = task.task, replace(task.task, ack="manual")
        answer = super().lose(task, charged=charged)
        task.task = asked
        return answer


class ReleasedAtOnce(ModelQueue):
    """What was released for later is ready at once."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, replace(outcome, after=0.0) if outcome.result == "released" else outcome)


class ReleaseLosesItsPlace(ModelQueue):
    """What was released goes to the end of the line."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, outcome)
        if outcome.result == "released":
            self.tasks[task.id] = self.tasks.pop(task.id)
            task.due_at = max(task.due_at, self.clock())


class NotAlone(ModelQueue):
    """A task that lost a worker comes with others, and takes them down again."""

    def choose(self, *args: Any, **how: Any) -> ModelTask | None:
        lost = {id: task.lost for id, task in self.tasks.items()}
        for task in self.tasks.values():
            task.lost = 0
        try:
            return super().choose(*args, **how)
        finally:
            for id, count in lost.items():
                self.tasks[id].lost = count


class UnfairShare(ModelQueue):
    """The first run takes all."""

    def turn(self, run: int) -> float:
        return float(run)


class MaxPagesIgnored(ModelQueue):
    """A run hands out more pages than were asked for."""

    def pages_left(self, run: int, *, strict: bool) -> int:
        return 1 << 30


class SameAsIgnored(ModelQueue):
    """Two addresses of one page are two pages."""

    def finish_task(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        super().finish_task(task, replace(outcome, redirect_digest=None), paces, late=late)


class RecordKeysIgnored(ModelQueue):
    """Records with the same key are all kept."""

    def unclaimed_records(self, task: ModelTask, outcome: Outcome) -> list[bytes]:
        return list(outcome.records)


class RecordKeysTakenByDroppedPage(ModelQueue):
    """A page that is dropped as another's takes the keys of its records with it."""

    def finish_task(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> bool:
        self.unclaimed_records(task, outcome)
        return super().finish_task(task, outcome, paces, late=late)


class SilentExpiry(ModelQueue):
    """Expired tasks vanish instead of becoming dead letters."""

    def expire_waiting(self, run: int | None = None) -> int:
        over = [id for id, task in self.tasks.items() if task.is_expired(self.clock())]
        for id in over:
            del self.tasks[id]
        return len(over)


class HalfABatch(ModelQueue):
    """A batch that fails in the middle leaves its first half behind."""

    def _check(self, tasks: Sequence[Task]) -> None:
        pass

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        super()._check([task])
        return super().admit(run, task, paces)


class CountsTwice(ModelQueue):
    """Reap says that it returned more than it did."""

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
        reaped = await super().reap(dead_workers)
        return replace(reaped, returned=reaped.returned * 2)


class OnceForgotten(ModelQueue):
    """What was to be started once is started again when it has ended."""

    async def start_run(self, new: NewRun) -> Run:
        return await super().start_run(replace(new, once=False))


class RuleIgnored(ModelQueue):
    """A person's spacing is noted, and the slowest still wins."""

    def spacing(self, lane: ModelLane) -> float:
        return max(super().spacing(lane), lane.learned, self.asked(lane))


class LimitIgnored(ModelQueue):
    """A person's limit is noted, and more go out."""

    def free_places(self, lane: ModelLane) -> int:
        kept, lane.limit = lane.limit, -1
        free = super().free_places(lane)
        lane.limit = kept
        return free


class RuleMovesNothing(ModelQueue):
    """A slower rule counts only after the next request."""

    def change_lane(self, change: LaneChange) -> None:
        before = self._lane(change.lane).next_at
        super().change_lane(change)
        if change.spacing_override is not None:
            self._lane(change.lane).next_at = before


class GivenPaceIgnored(ModelQueue):
    """A slower request is followed as soon as any other."""

    def slower(self, lane: ModelLane, given: float) -> float:
        return self.spacing(lane)


class TrimmedUncounted(ModelQueue):
    """Records that went to a store of their own leave the account."""

    async def trim(self, run: int, upto: int) -> int:
        gone = await super().trim(run, upto)
        self._run(run).trimmed -= gone
        return gone


class SeqGivenAgain(ModelQueue):
    """The next record is numbered by those that are left: who reads on from the last one misses it."""

    async def trim(self, run: int, upto: int) -> int:
        gone = await super().trim(run, upto)
        self._run(run).last_record = len(self._run(run).records)
        return gone


class TrimsOneTooMany(ModelQueue):
    """A record that nobody has copied yet goes with the others."""

    async def trim(self, run: int, upto: int) -> int:
        return await super().trim(run, upto + 1)


class LastWriterWins(ModelQueue):
    """Swap does not look at the version."""

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        known = await self.document(kind, name)
        return await super().compare_and_swap(kind, name, text, known.version if known else 0)


class VersionsComeAgain(ModelQueue):
    """A document that was removed and made again looks like the one before."""

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        made = await super().compare_and_swap(kind, name, text, expected)
        if made and text is not None and not expected:
            made = replace(made, version=1)
            self.all_documents[kind, name] = [made]
        return made


class AskedOnce(ModelQueue):
    """A worker hears what was asked of it once, and never again if that answer is lost."""

    async def register(self, mark: WorkerStatus) -> str:
        asked = await super().register(mark)
        self.worker_statuses[mark.id] = replace(self.worker_statuses[mark.id], command="")
        return asked


class LanesStay(ModelQueue):
    """Lanes only come, and never go."""

    def remove_idle_lanes(self) -> None:
        pass


class LanesForgotten(ModelQueue):
    """What was learnt about a host goes with the last run that asked it."""

    def remove_idle_lanes(self) -> None:
        for lane in self.all_lanes.values():
            lane.learned = 0.0
        super().remove_idle_lanes()


class LanesOutOfHistory(ModelQueue):
    """A lane goes while the history of a run still names it."""

    def remove_idle_lanes(self) -> None:
        runs, tasks = self.all_runs, self.tasks
        self.all_runs, self.tasks = {}, {}
        super().remove_idle_lanes()
        self.all_runs, self.tasks = runs, tasks


class SilentWorkersStay(ModelQueue):
    """The registry only grows."""

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        marks = dict(self.worker_statuses)
        gone = await super().purge(run=run, older_than=older_than)
        self.worker_statuses = marks
        return gone


class NumbersInAnyOrder(ModelQueue):
    """Tasks of one call are numbered as the store likes."""

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        return list(reversed(await super().add(run, list(reversed(tasks)), paces)))


class IdsInAnyOrder(ModelQueue):
    """Ids come as the store finds them."""

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        return sorted(await super().ids(run, digests))


class RecordsOfAll(ModelQueue):
    """Who asks for the records of a task gets those of others, too."""

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        return await super().records(run, after=after, limit=limit)


class CarriesOpenOnly(ModelQueue):
    """What is done stays behind, and is crawled again in the new place."""

    async def export_run(self, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
        return [it for it in await super().export_run(run, after=after, limit=limit) if it.state != "done"]


class CarriedTwice(ModelQueue):
    """Carrying in again makes everything once more."""

    async def import_run(self, run: int, tasks: Sequence[ExportedTask], *args: Any, **words: Any) -> None:
        last = self._run(run).numbers
        new = [replace(carried, number=last + n) for n, carried in enumerate(tasks, 1)]
        await super().import_run(run, new, *args, **words)


class CarriedWithoutItsPast(ModelQueue):
    """A task that was moved has all its attempts again."""

    def unpack(self, about: ModelRun, carried: ExportedTask, paces: Mapping[str, Pace]) -> None:
        super().unpack(about, replace(carried, attempts=0, lost=0, history=()), paces)


class RedirectsLeftBehind(ModelQueue):
    """Where redirects led is forgotten on the way."""

    def packed(self, task: ModelTask) -> ExportedTask:
        return replace(super().packed(task), aliases=())


class CarriedInMotion(ModelQueue):
    """A run is carried out while its workers change it."""

    async def export_run(self, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
        about = self._run(run)
        before, about.run = about.run, replace(about.run, state="paused")
        try:
            return await super().export_run(run, after=after, limit=limit)
        finally:
            about.run = before


class CountsLeftBehind(ModelQueue):
    """What cannot be counted is not carried along."""

    async def import_run(self, *args: Any, **words: Any) -> None:
        await super().import_run(*args, **{**words, "counts": None})


class DroppedForgotten(ModelQueue):
    """What was dropped is added again by the next page that links to it."""

    async def drop(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        count = await super().drop(run, where, **how)
        gone = {task.id for task in self.tasks.values() if task.cause == DROPPED}
        self.seen = {key: id for key, id in self.seen.items() if id not in gone}
        return count


class DropTakesLeased(ModelQueue):
    """What a worker has in hand is dropped with the rest."""

    async def drop(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        held = [task for task in self.matching(run, "leased", where) if how.get("state") != "dead"]
        for task in held:
            self.end(task, "cancelled", DROPPED)
        return len(held) + await super().drop(run, where, **how)


class DropMissesDelayed(ModelQueue):
    """Delayed tasks come back after everything that waits was dropped."""

    def matching(self, run: int, state: State | None, where: TaskFilter) -> list[ModelTask]:
        found = super().matching(run, state, where)
        return [task for task in found if state != "ready" or task.due_at <= self.clock()]


class DroppedCountsDead(ModelQueue):
    """A dropped dead letter is still counted as one."""

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        lost = sum(task.cause == DROPPED and bool(task.attempts) for task in self.matching(run, None, TaskFilter()))
        return replace(stats, dead=stats.dead + lost, cancelled=stats.cancelled - lost)


class DroppedComesBack(ModelQueue):
    """Reviving takes what was dropped for dead."""

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        for task in self.matching(run, "cancelled", where):
            if task.cause == DROPPED and task.attempts:
                task.state = "dead"
        return await super().revive(run, where, **how)


class DropWithoutLimit(ModelQueue):
    """However few were asked for, all go."""

    async def drop(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        return await super().drop(run, where, **{**how, "limit": 1 << 30})


class ReviveWithoutLimit(ModelQueue):
    """However few were asked for, all come back."""

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), **how: Any) -> int:
        return await super().revive(run, where, limit=1 << 30)


class StatsByNumber(ModelQueue):
    """The accounts of many runs come in the order of the runs."""

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        return await super().stats_of(sorted(runs))


class UptoExcluded(ModelQueue):
    """The last task of every window is left out."""

    async def list_tasks(self, run: int, **how: Any) -> list[TaskView]:
        return [view for view in await super().list_tasks(run, **how) if view.id != how.get("upto")]


class BeforeIncluded(ModelQueue):
    """Every page of runs begins with the last one of the page before."""

    async def runs(self, *, before: int = 0, **how: Any) -> list[Run]:
        return await super().runs(before=before and before + 1, **how)


class LanesByTheAlphabet(ModelQueue):
    """Names are sorted as people would, and paged as machines would."""

    async def lanes(self, *, order: str = "ready", limit: int = 100, **how: Any) -> list[LaneState]:
        listed = await super().lanes(order=order, limit=1 << 30, **how)
        return (sorted(listed, key=lambda lane: lane.name.lower()) if order == "name" else listed)[:limit]


class LikeIsAPattern(ModelQueue):
    """Signs that are special to the store are special to people, too."""

    async def lanes(self, *, like: str = "", **how: Any) -> list[LaneState]:
        pattern = f"*{like.replace('%', '*').replace('_', '?')}*"
        return [lane for lane in await super().lanes(**how) if fnmatch.fnmatchcase(lane.name, pattern)]


class ParkedForEver(ModelQueue):
    """A lane that was parked is listed as such when its time is long over."""

    def is_only(self, lane: LaneState, only: str) -> bool:
        return super().is_only(lane, only) or (only == "parked" and bool(self.all_lanes[lane.name].parked))


class FiguresOfBefore(ModelQueue):
    """A heartbeat that brings no figures, or too many, leaves the old ones."""

    async def register(self, mark: WorkerStatus) -> str:
        before = self.worker_statuses.get(mark.id)
        asked = await super().register(mark)
        if before is not None and not self.worker_statuses[mark.id].counters:
            self.worker_statuses[mark.id] = replace(self.worker_statuses[mark.id], counters=before.counters)
        return asked


class GroupsRemember(ModelQueue):
    """The groups of dead letters are counted as they die, and not as they go."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: dict[int, list[DeadLetterGroup]] = {}

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadLetterGroup]:
        return self.kept.get(run, [])[:limit]

    async def settle(self, *args: Any, **words: Any) -> list[Verdict]:
        verdicts = await super().settle(*args, **words)
        for run in self.all_runs:
            self.kept[run] = await super().dead_groups(run)
        return verdicts


class RepeatsWhatWasCancelled(ModelQueue):
    """A repeated request brings its batch as it was."""

    def _as_claim(self, lease: ModelLease) -> Claim:
        return Claim(lease.number, tuple(self._as_leased(id, lease) for id in lease.slots))


class RepeatsWhatWasLost(ModelQueue):
    """A repeated request brings its batch although its lease is over."""

    def same_request(self, worker: str, request_id: str) -> ModelLease | None:
        known = [lease for lease in self.leases.values() if (lease.worker, lease.request_id) == (worker, request_id)]
        return known[-1] if request_id and known else None


class NeedsIgnored(ModelQueue):
    """Whoever asks gets a task, whatever it needs."""

    def eligible(self, serves: Collection[str] | None, now: int, has: Collection[str] | None = None) -> list[ModelTask]:
        return super().eligible(serves, now)


class OneCapabilityWillDo(ModelQueue):
    """A task that needs two capabilities goes to who has one of them."""

    def eligible(self, serves: Collection[str] | None, now: int, has: Collection[str] | None = None) -> list[ModelTask]:
        able = super().eligible(serves, now)
        return able if has is None else [it for it in able if not it.task.needs or set(it.task.needs) & set(has)]


class NeedsEndWithTheLease(ModelQueue):
    """What comes back for another try needs nothing more."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, outcome)
        task.task = replace(task.task, needs=())


class NeedsHoldUpOthers(ModelQueue):
    """A lane whose first task needs what a worker lacks gives it nothing."""

    def eligible(self, serves: Collection[str] | None, now: int, has: Collection[str] | None = None) -> list[ModelTask]:
        able = {task.id for task in super().eligible(serves, now, has)}
        blocked, kept = set[str](), list[ModelTask]()
        for task in super().eligible(serves, now):
            if task.id not in able:
                blocked.add(task.task.lane)
            elif task.task.lane not in blocked:
                kept.append(task)
        return kept


class NextInOfAll(ModelQueue):
    """A worker is told to come back soon for what it cannot do."""

    def next_in(self, serves: Collection[str] | None, has: Collection[str]) -> float | None:
        return super().next_in(serves, [name for task in self.tasks.values() for name in task.task.needs])


class NeedsLeftBehind(ModelQueue):
    """A run that moves forgets what its tasks need."""

    def packed(self, task: ModelTask) -> ExportedTask:
        made = super().packed(task)
        return replace(made, task=replace(made.task, needs=()))


class SeenByTheRunItself(ModelQueue):
    """A task that is added again is seen by its own run: a lost answer turns good lines into duplicates."""

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        answer = super().admit(run, task, paces)
        return "seen" if answer == "known" and self.all_runs[run].run.seen_set else answer


class FoundLinksJoinNothing(ModelQueue):
    """Only what is added from outside is put into the seen-set."""

    def keep_links(self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool) -> None:
        before = {name: dict(it.hours) for name, it in self.all_seen_sets.items()}
        super().keep_links(task, outcome, paces, late=late)
        for name, hours in before.items():
            self.all_seen_sets[name].hours = hours


class RememberedForEver(ModelQueue):
    """What a seen-set should have forgotten is still seen."""

    def sweep_seen(self) -> None:
        pass

    def was_had(self, run: int, task: Task) -> bool:
        known = self.seen_set_of(self.all_runs[run].run)
        return known is not None and (identity(task.digest) in known.hours or super().was_had(run, task))


class NothingRevisited(ModelQueue):
    """What is to be revisited is kept away like all that was seen."""

    def was_had(self, run: int, task: Task) -> bool:
        return super().was_had(run, replace(task, revisit=False))


class SetGoesWithItsRun(ModelQueue):
    """Removing a run empties the seen-set it had."""

    async def purge(self, **how: Any) -> int:
        self.all_seen_sets.clear()
        return await super().purge(**how)


class ExitsShareALane(ModelQueue):
    """All exits of a host are one lane."""

    def _lane(self, name: str) -> ModelLane:
        return super()._lane(host_of_lane(name))


class ExpiredUnseen(ModelQueue):
    """What expired is dead when a worker or a supervisor comes along, and not before."""

    def expire_waiting(self, run: int | None = None) -> int:
        return super().expire_waiting() if run is None else 0


class UndoForgetsLeased(ModelQueue):
    """What was in progress when a run was cancelled does not come back with it."""

    def undo(self, about: ModelRun) -> Run:
        for task in self.tasks.values():
            if task.run == about.run.id and task.kept == "leased":
                task.kept = None
        return super().undo(about)


class UndoFetchesAgain(ModelQueue):
    """What came while a run was cancelled is fetched again when that is undone."""

    def undo(self, about: ModelRun) -> Run:
        ended = [task for task in self.tasks.values() if task.run == about.run.id and task.state == "done"]
        undone = super().undo(about)
        for task in ended if about.undo_until == 0 else ():
            task.state = "ready"
        return undone


class UndoForEver(ModelQueue):
    """A cancel can be undone long after the tasks are gone."""

    def undo(self, about: ModelRun) -> Run:
        about.undo_until = self.clock() + 1
        return super().undo(about)


class UndoOfAReplacedRun(ModelQueue):
    """Two runs of the same key go on beside each other."""

    def undo(self, about: ModelRun) -> Run:
        others = {id: other for id, other in self.all_runs.items() if other is not about}
        for id in others:
            del self.all_runs[id]
        undone = super().undo(about)
        self.all_runs = others | {about.run.id: about}
        return undone


class UndoRunsAll(ModelQueue):
    """A run that was paused when it was cancelled is running when that is undone."""

    def undo(self, about: ModelRun) -> Run:
        about.before_cancel = "running"
        return super().undo(about)


class LostWhileCancelled(ModelQueue):
    """A lease that ends after its run was cancelled takes its task with it."""

    def lose(self, task: ModelTask, *, charged: bool) -> str:
        fate = super().lose(task, charged=charged)
        if task.state == "cancelled":
            task.kept = None
        return fate


class DelayedBelowZero(ModelQueue):
    """What was delayed in a run that was cancelled is promoted when its time comes."""

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        kept = [task for task in self.tasks.values() if task.run == run and task.kept == "ready"]
        promoted = sum(task.due_at - task.added_at > 0 and task.due_at <= self.clock() for task in kept)
        return replace(stats, delayed=stats.delayed - promoted)


class EntriesOfFailures(ModelQueue):
    """What a failed attempt wanted done elsewhere is done all the same."""

    def end_attempt(self, task: ModelTask, outcome: Outcome) -> None:
        super().end_attempt(task, outcome)
        self.keep_entries(task, outcome, late=False)


class LateEntriesKept(ModelQueue):
    """A cancelled run goes on leaving work for others."""

    def keep_entries(self, task: ModelTask, outcome: Outcome, *, late: bool) -> None:
        about = self.all_runs[task.run]
        state, about.run = about.run, replace(about.run, state="running")
        super().keep_entries(task, outcome, late=False)
        about.run = state


class AcknowledgedUpTo(ModelQueue):
    """Acknowledging one entry acknowledges all before it."""

    async def acknowledge(self, seqs: Collection[int]) -> int:
        return await super().acknowledge(range(max(seqs, default=0) + 1))


class FinishedWithEntries(ModelQueue):
    """A run is finished although entries of it wait to be drained."""

    async def set_run(self, run: int, action: RunAction) -> Run:
        about = self._run(run)
        entries, about.entries = about.entries, [] if action == "finish" else about.entries
        try:
            return await super().set_run(run, action)
        finally:
            about.entries = entries


class OutboxWithoutBound(ModelQueue):
    """A run goes on filling its outbox, however much waits there."""

    def is_served(self, run: int, serves: Collection[str] | None) -> bool:
        about = self.all_runs[run]
        entries, about.entries = about.entries, []
        try:
            return super().is_served(run, serves)
        finally:
            about.entries = entries


class CountersOfTheStale(ModelQueue):
    """What comes too late counts all the same."""

    def make_true(self, outcome: Outcome, verdict: Verdict, paces: Mapping[str, Pace] = {}) -> None:
        super().make_true(outcome, verdict, paces)
        if verdict == "stale" and outcome.task in self.tasks:
            self.count(self.all_runs[self.tasks[outcome.task].run], outcome, with_records=True)


class FieldsOfDroppedRecords(ModelQueue):
    """Fields of records that were not kept are counted."""

    def count(self, about: ModelRun, outcome: Outcome, *, with_records: bool) -> None:
        super().count(about, outcome, with_records=True)


class CountersWithoutBound(ModelQueue):
    """Every name is kept, however many come."""

    def count(self, about: ModelRun, outcome: Outcome, *, with_records: bool) -> None:
        for name, number in outcome.counters.items():
            if with_records or not name.startswith("field."):
                about.counters[name] = about.counters.get(name, 0) + number
