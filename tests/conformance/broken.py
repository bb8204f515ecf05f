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
from shoal.core.lane import LaneState, Mark, Pace, Slot
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import DROPPED, Admission, Carried, Claim, LaneChange, Outcome, State, Task, Verdict
from shoal.queue.base import (
    LEASE,
    DeadGroup,
    Extended,
    Paper,
    Reaped,
    RunAction,
    StoredRecord,
    TaskView,
    Where,
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

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
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

    def finish_task(
        self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool
    ) -> None:
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
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE
    ) -> Extended:
        answer = await super().extend(worker, leases, lease=lease)
        return replace(answer, lost=frozenset())


class ExtendDoesNothing(ModelQueue):
    """The heartbeat is answered, but the lease runs out all the same."""

    def prolong(self, held: ModelLease, started: Collection[int], lease: float) -> None:
        held.extended, held.started = True, set(started)


class ExpiredHandedOut(ModelQueue):
    """Nobody looks at the time to live."""

    def admit(self, run: int, task: Task, paces: Mapping[str, Pace]) -> Admission:
        return super().admit(run, replace(task, ttl=None), paces)


class HoldIgnored(ModelQueue):
    """Retry-After is noted and not obeyed."""

    def give(self, task: ModelTask, lease: ModelLease, slot: int) -> None:
        super().give(task, lease, self.clock())

    def choose(self, serves: Collection[str] | None, *, first: bool) -> ModelTask | None:
        for lane in self.all_lanes.values():
            lane.held_until = 0
        return super().choose(serves, first=first)


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

    async def revive(self, run: int, where: Where = Where(), **how: Any) -> int:
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

    def choose(self, serves: Collection[str] | None, *, first: bool) -> ModelTask | None:
        for about in self.all_runs.values():
            about.picks.clear()
        return super().choose(serves, first=first)


class PriorityIgnored(ModelQueue):
    """First in, first out."""

    def choose(self, serves: Collection[str] | None, *, first: bool) -> ModelTask | None:
        for about in self.all_runs.values():
            about.picks.update({lane: 15 - about.picks[lane] for lane in self.all_lanes})
        return super().choose(serves, first=first)


class NotAlone(ModelQueue):
    """A task that lost a worker comes with others, and takes them down again."""

    def choose(self, serves: Collection[str] | None, *, first: bool) -> ModelTask | None:
        lost = {id: task.lost for id, task in self.tasks.items()}
        for task in self.tasks.values():
            task.lost = 0
        try:
            return super().choose(serves, first=first)
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

    def finish_task(
        self, task: ModelTask, outcome: Outcome, paces: Mapping[str, Pace], *, late: bool
    ) -> None:
        super().finish_task(task, replace(outcome, same_as=None), paces, late=late)


class SilentExpiry(ModelQueue):
    """Expired tasks vanish instead of becoming dead letters."""

    def expire_waiting(self) -> int:
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

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
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
        if change.rule is not None:
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

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        known = await self.paper(kind, name)
        return await super().swap(kind, name, text, known.version if known else 0)


class VersionsComeAgain(ModelQueue):
    """A document that was removed and made again looks like the one before."""

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        made = await super().swap(kind, name, text, expected)
        if made and text is not None and not expected:
            made = replace(made, version=1)
            self.all_papers[kind, name] = [made]
        return made


class AskedOnce(ModelQueue):
    """A worker hears what was asked of it once, and never again if that answer is lost."""

    async def register(self, mark: Mark) -> str:
        asked = await super().register(mark)
        self.marks[mark.id] = replace(self.marks[mark.id], asked="")
        return asked


class SilentWorkersStay(ModelQueue):
    """The registry only grows."""

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        marks = dict(self.marks)
        gone = await super().purge(run=run, older_than=older_than)
        self.marks = marks
        return gone


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

    async def carry_out(self, run: int, *, after: int = 0, limit: int = 500) -> list[Carried]:
        return [it for it in await super().carry_out(run, after=after, limit=limit) if it.state != "done"]


class CarriedTwice(ModelQueue):
    """Carrying in again makes everything once more."""

    async def carry_in(self, run: int, tasks: Sequence[Carried], *args: Any, **words: Any) -> None:
        last = self._run(run).numbers
        new = [replace(carried, number=last + n) for n, carried in enumerate(tasks, 1)]
        await super().carry_in(run, new, *args, **words)


class CarriedWithoutItsPast(ModelQueue):
    """A task that was moved has all its attempts again."""

    def unpack(self, about: ModelRun, carried: Carried, paces: Mapping[str, Pace]) -> None:
        super().unpack(about, replace(carried, attempts=0, lost=0, history=()), paces)


class RedirectsLeftBehind(ModelQueue):
    """Where redirects led is forgotten on the way."""

    def packed(self, task: ModelTask) -> Carried:
        return replace(super().packed(task), also=())


class CarriedInMotion(ModelQueue):
    """A run is carried out while its workers change it."""

    async def carry_out(self, run: int, *, after: int = 0, limit: int = 500) -> list[Carried]:
        about = self._run(run)
        before, about.run = about.run, replace(about.run, state="paused")
        try:
            return await super().carry_out(run, after=after, limit=limit)
        finally:
            about.run = before


class CountsLeftBehind(ModelQueue):
    """What cannot be counted is not carried along."""

    async def carry_in(self, *args: Any, **words: Any) -> None:
        await super().carry_in(*args, **{**words, "counts": None})


class DroppedForgotten(ModelQueue):
    """What was dropped is added again by the next page that links to it."""

    async def drop(self, run: int, where: Where = Where(), **how: Any) -> int:
        count = await super().drop(run, where, **how)
        gone = {task.id for task in self.tasks.values() if task.cause == DROPPED}
        self.seen = {key: id for key, id in self.seen.items() if id not in gone}
        return count


class DropTakesLeased(ModelQueue):
    """What a worker has in hand is dropped with the rest."""

    async def drop(self, run: int, where: Where = Where(), **how: Any) -> int:
        held = [task for task in self.matching(run, "leased", where) if how.get("state") != "dead"]
        for task in held:
            self.end(task, "cancelled", DROPPED)
        return len(held) + await super().drop(run, where, **how)


class DropMissesDelayed(ModelQueue):
    """Delayed tasks come back after everything that waits was dropped."""

    def matching(self, run: int, state: State | None, where: Where) -> list[ModelTask]:
        found = super().matching(run, state, where)
        return [task for task in found if state != "ready" or task.due_at <= self.clock()]


class DroppedCountsDead(ModelQueue):
    """A dropped dead letter is still counted as one."""

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        lost = sum(
            task.cause == DROPPED and bool(task.attempts) for task in self.matching(run, None, Where())
        )
        return replace(stats, dead=stats.dead + lost, cancelled=stats.cancelled - lost)


class DroppedComesBack(ModelQueue):
    """Reviving takes what was dropped for dead."""

    async def revive(self, run: int, where: Where = Where(), **how: Any) -> int:
        for task in self.matching(run, "cancelled", where):
            if task.cause == DROPPED and task.attempts:
                task.state = "dead"
        return await super().revive(run, where, **how)


class DropWithoutLimit(ModelQueue):
    """However few were asked for, all go."""

    async def drop(self, run: int, where: Where = Where(), **how: Any) -> int:
        return await super().drop(run, where, **{**how, "limit": 1 << 30})


class ReviveWithoutLimit(ModelQueue):
    """However few were asked for, all come back."""

    async def revive(self, run: int, where: Where = Where(), **how: Any) -> int:
        return await super().revive(run, where, limit=1 << 30)


class StatsByNumber(ModelQueue):
    """The accounts of many runs come in the order of the runs."""

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        return await super().stats_of(sorted(runs))


class UptoExcluded(ModelQueue):
    """The last task of every window is left out."""

    async def look(self, run: int, **how: Any) -> list[TaskView]:
        return [view for view in await super().look(run, **how) if view.id != how.get("upto")]


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

    async def register(self, mark: Mark) -> str:
        before = self.marks.get(mark.id)
        asked = await super().register(mark)
        if before is not None and not self.marks[mark.id].figures:
            self.marks[mark.id] = replace(self.marks[mark.id], figures=before.figures)
        return asked


class GroupsRemember(ModelQueue):
    """The groups of dead letters are counted as they die, and not as they go."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: dict[int, list[DeadGroup]] = {}

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadGroup]:
        return self.kept.get(run, [])[:limit]

    async def settle(self, *args: Any, **words: Any) -> list[Verdict]:
        verdicts = await super().settle(*args, **words)
        for run in self.all_runs:
            self.kept[run] = await super().dead_groups(run)
        return verdicts
