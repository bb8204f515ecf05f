"""The model's idea of handing out: what may be given, what must be, and one simple choice.

A backend is free where the contract leaves it free (which lane first, how far ahead slots go), so
its claims are not compared with the model's own choice. They are judged: `may_hand_out` lists every
rule that a claim broke, and `hand_out` then makes the model follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from conformance.model_state import ModelLane, ModelLease, ModelRun, ModelTask, micros
from shoal.core.capability import capability_names
from shoal.core.lane import Pace
from shoal.core.task import ISOLATED, Claim, LeasedTask
from shoal.core.task_kind import is_aside
from shoal.queue.base import SLOT_HORIZON_SECONDS

OLDEST_EVERY = 16
HORIZON = micros(SLOT_HORIZON_SECONDS)
SLACK = 2  # µs lost to rounding


class ModelClaim:
    clock: Callable[[], int]
    all_runs: dict[int, ModelRun]
    tasks: dict[int, ModelTask]
    all_lanes: dict[str, ModelLane]
    leases: dict[int, ModelLease]
    last_lease: int
    virtual_time: float  # of the last pick
    apart = False  # a claim may have several leases, of parts that number their own
    latest: int  # the latest time the clock ever showed: what was due once stays due

    # who is in the game

    def in_flight(self, lane: str) -> int:
        return sum(task.state == "leased" and task.task.lane == lane for task in self.tasks.values())

    def spacing(self, lane: ModelLane) -> float:
        return lane.spacing_override if lane.spacing_override >= 0 else max(lane.learned, self.asked(lane))

    def asked(self, lane: ModelLane) -> float:
        booked = 0.0 if lane.asks else lane.booked
        return max((pace.spacing for pace in self.asking(lane)), default=booked)

    def max_in_flight(self, lane: ModelLane) -> int:
        asked = min((pace.max_in_flight for pace in self.asking(lane) if pace.max_in_flight), default=0)
        return lane.limit if lane.limit >= 0 else asked

    def asking(self, lane: ModelLane) -> list[Pace]:
        """What unfinished runs ask of a lane."""
        runs = [run for run in lane.asks if run in self.all_runs and self.all_runs[run].takes_work]
        return [lane.asks[run] for run in runs]

    def free_places(self, lane: ModelLane) -> int:
        limit = 1 if lane.parked else self.max_in_flight(lane)
        return limit - self.in_flight(lane.name) if limit else 1 << 30

    def is_served(self, run: int, serves: Collection[str] | None) -> bool:
        about = self.all_runs[run].run
        wanted = serves is None or about.scraper in serves or about.name in serves
        return wanted and about.state == "running" and not self.all_runs[run].outbox_is_full

    def takes_page(self, task: ModelTask) -> bool:
        """Whether it takes up one of its run's pages: a built-in kind does so only while it is leased."""
        if task.state in ("done", "dead"):
            return not is_aside(task.task.kind)
        return task.state in ("leased", "discarded")

    def pages_left(self, run: int, *, strict: bool) -> int:
        """How many more a run may hand out; strict counts every page not returned, not only good ones."""
        limit = self.all_runs[run].run.max_pages
        if not limit:
            return 1 << 30
        gone = ("leased", "done", "dead", "discarded", *(("cancelled",) if strict else ()))
        used = [task for task in self.tasks.values() if task.run == run and task.state in gone]
        counted = [task for task in used if task.state in ("leased", "discarded") or not is_aside(task.task.kind)]
        return limit - sum(task.lease > 0 or task.state in ("leased", "dead", "discarded") for task in counted)

    def eligible(self, serves: Collection[str] | None, now: int, has: Collection[str] | None = None) -> list[ModelTask]:
        """Tasks that wait for nothing but their lane, oldest first; `has` is what a worker has (None: all)."""
        return [
            task
            for task in self.tasks.values()
            if task.state == "ready"
            and task.due_at <= max(now, self.latest)
            and not task.is_expired(now)
            and self.is_served(task.run, serves)
            and (has is None or set(task.task.needs) <= set(has))
        ]

    def must_hand_out(self, serves: Collection[str] | None, has: Collection[str] | None = None) -> list[ModelTask]:
        """Tasks that nothing holds back this very moment; a clock that went back excuses waiting."""
        now = self.clock()
        if now < self.latest:
            return []
        return [
            task
            for task in self.eligible(serves, now, has)
            if task.due_at <= now
            and self.all_lanes[task.task.lane].first_slot(now) <= now
            and self.is_spaced(self.all_lanes[task.task.lane], now)
            and self.free_places(self.all_lanes[task.task.lane]) > 0
            and self.pages_left(task.run, strict=True) > 0
        ]

    def is_spaced(self, lane: ModelLane, now: int) -> bool:
        """Whether the last slot given lies far enough back, should the spacing have changed since."""
        return lane.last_slot + micros(self.spacing(lane)) <= now

    # the model's own choice, one task at a time

    def choose(self, serves: Collection[str] | None, has: Collection[str], *, first: bool) -> ModelTask | None:
        now = self.clock()
        lanes = {
            lane.name
            for lane in self.all_lanes.values()
            if lane.first_slot(now) <= now + HORIZON and self.free_places(lane) > 0
        }
        open_tasks = [
            task
            for task in self.eligible(serves, now, has)
            if (first or task.band != ISOLATED)
            and task.task.lane in lanes
            and self.pages_left(task.run, strict=True) > 0
        ]
        if not open_tasks:
            return None
        alone = [task for task in open_tasks if task.band == ISOLATED]
        if alone:
            return alone[0]
        run = min({task.run for task in open_tasks}, key=lambda run: (-self.priority(run), self.turn(run), run))
        mine = [task for task in open_tasks if task.run == run]
        first = min(mine, key=lambda task: (task.band, self.all_lanes[task.task.lane].first_slot(now)))
        lane = self.all_lanes[first.task.lane]
        here = [task for task in open_tasks if task.task.lane == lane.name]
        if (lane.given + 1) % OLDEST_EVERY == 0 and len({self.priority(task.run) for task in here}) > 1:
            return self.oldest(here)
        mine = [task for task in mine if task.task.lane == lane.name]
        if (self.all_runs[run].picks[lane.name] + 1) % OLDEST_EVERY == 0:
            return mine[0]
        return min(mine, key=lambda task: task.band)  # min keeps the oldest of equals

    def priority(self, run: int) -> int:
        return self.all_runs[run].run.priority

    def oldest(self, tasks: list[ModelTask]) -> ModelTask:
        return min(tasks, key=lambda task: (task.due_at, task.id))

    def turn(self, run: int) -> float:
        """When a run is next, in virtual time. One that was idle starts level, it does not catch up."""
        return max(self.all_runs[run].turn, self.virtual_time)

    def take_turn(self, task: ModelTask) -> None:
        run = self.all_runs[task.run]
        self.virtual_time = self.turn(task.run)
        run.turn = self.virtual_time + 1 / run.run.weight
        run.picks[task.task.lane] += 1

    def take_slot(self, lane: ModelLane, at: int, given: float = 0.0) -> None:
        spacing = micros(self.slower(lane, given))
        lane.last_slot, lane.excused = at, False
        if spacing:
            lane.next_at = at + spacing

    def slower(self, lane: ModelLane, given: float) -> float:
        """The spacing after a request that comes with a pace of its own."""
        return lane.spacing_override if lane.spacing_override >= 0 else max(self.spacing(lane), given)

    def next_lease(self) -> int:
        return max(self.last_lease + 1, self.clock())

    def next_in(self, serves: Collection[str] | None, has: Collection[str]) -> float | None:
        now = self.clock()
        waits = [
            max(task.due_at, self.all_lanes[task.task.lane].first_slot(now) - HORIZON) - now
            for task in self.tasks.values()
            if task.state == "ready"
            and not task.is_expired(now)
            and self.is_served(task.run, serves)
            and set(task.task.needs) <= set(has)
            and self.pages_left(task.run, strict=True) > 0
            and self.free_places(self.all_lanes[task.task.lane]) > 0
        ]
        return max(0.0, min(waits) / 1_000_000) if waits else None

    # judging and following another queue

    def may_hand_out(
        self, limit: int, serves: Collection[str] | None, claim: Claim, has: Collection[str] = ()
    ) -> list[str]:
        """Every rule the claim broke; empty when all of it was allowed."""
        if not claim.tasks:
            forgotten = [task.task.url for task in self.must_hand_out(serves, has)]
            wrong = [f"nothing was handed out, though {forgotten} wait for nothing"] if forgotten else []
            return wrong + (["an empty claim has a lease number"] if claim.lease else [])
        wrong = self._wrong_as_a_whole(limit, claim)
        for leased in claim.tasks:
            wrong += self._wrong_with_task(leased, serves, has, claim)
        if not wrong:
            could = self.eligible(serves, self.clock(), has)
            waiting = [task for task in could if task.band != ISOLATED]
            wrong += (
                self._wrong_slots(claim) + self._wrong_bands(claim, waiting) + self._wrong_priorities(claim, waiting)
            )
        return wrong

    def _wrong_as_a_whole(self, limit: int, claim: Claim) -> list[str]:
        wrong = []
        if claim.lease <= self.last_lease and not self.apart:
            wrong.append(f"lease {claim.lease} does not grow beyond {self.last_lease}")
        if claim.lease < self.clock():
            wrong.append(f"lease {claim.lease} is below the clock {self.clock()}")
        if len(claim.tasks) > limit:
            wrong.append(f"{len(claim.tasks)} tasks for a limit of {limit}")
        if len({leased.id for leased in claim.tasks}) < len(claim.tasks):
            wrong.append("one task twice in a claim")
        for run, count in Counter(leased.run for leased in claim.tasks).items():
            if count > self.pages_left(run, strict=False):
                wrong.append(f"run {run} exceeds its max_pages")
        for lane, count in Counter(leased.lane for leased in claim.tasks).items():
            if count > self.free_places(self.all_lanes[lane]):
                wrong.append(f"lane {lane} has too many in flight")
        return wrong

    def _wrong_with_task(
        self, leased: LeasedTask, serves: Collection[str] | None, has: Collection[str], claim: Claim
    ) -> list[str]:
        task, now = self.tasks[leased.id], self.clock()
        wrong = []
        if task.state != "ready":
            wrong.append(f"{task.task.url} was {task.state} and is handed out")
        if task.due_at > max(now, self.latest):
            wrong.append(f"{task.task.url} is handed out {(task.due_at - now) / 1e6} s before it is due")
        if task.is_expired(now):
            wrong.append(f"{task.task.url} is handed out after its TTL")
        if not self.is_served(task.run, serves):
            state = self.all_runs[task.run].run.state
            wrong.append(f"{task.task.url} of a run that is {state} or not served is handed out")
        if not set(task.task.needs) <= set(has):
            wrong.append(f"{task.task.url} needs {task.task.needs} and is handed out to who has {tuple(has)}")
        if leased.needs != capability_names(task.task.needs):
            wrong.append(f"{task.task.url} needs {task.task.needs} and is said to need {leased.needs}")
        if task.band == ISOLATED and len(claim.tasks) > 1:
            wrong.append(f"{task.task.url} has lost a worker and is not alone in its claim")
        if leased.lease != claim.lease and not self.apart:
            wrong.append(f"{task.task.url} carries lease {leased.lease} in a claim of {claim.lease}")
        if (leased.attempts, leased.lost) != (task.attempts, task.lost):
            seen = f"attempts {leased.attempts}, lost {leased.lost}"
            wrong.append(f"{task.task.url} says {seen}, not {task.attempts}, {task.lost}")
        return wrong

    def _wrong_slots(self, claim: Claim) -> list[str]:
        wrong, now = [], self.clock()
        for lane in {leased.lane: self.all_lanes[leased.lane] for leased in claim.tasks}.values():
            earliest, spacing = lane.earliest_slot(now), micros(self.spacing(lane))
            for start_in in sorted(leased.start_in for leased in claim.tasks if leased.lane == lane.name):
                slot = now + micros(start_in)
                if slot < earliest - SLACK:
                    wrong.append(f"a slot of {lane.name} comes {(earliest - slot) / 1e6} s too early")
                if slot > now + HORIZON + SLACK:
                    wrong.append(f"a slot of {lane.name} lies {start_in} s ahead")
                earliest = slot + spacing
        return wrong

    def _wrong_bands(self, claim: Claim, waiting: list[ModelTask]) -> list[str]:
        """Out of the order of bands only every 16th pick may be, and then it is the oldest."""
        wrong = []
        given = {leased.id for leased in claim.tasks}
        for run, lane in {(leased.run, leased.lane) for leased in claim.tasks}:
            here = [task for task in waiting if (task.run, task.task.lane) == (run, lane) and not task.any_band]
            left_bands = [task.band for task in here if task.id not in given and task.due_at <= self.clock()]
            jumped = [task for task in here if task.id in given and task.band > min(left_bands, default=99)]
            picks = self.all_runs[run].picks[lane] + sum(task.id in given for task in here)
            if len(jumped) > picks // OLDEST_EVERY + 1:
                wrong.append(f"{[task.task.url for task in jumped]} were handed out before higher bands")
        return wrong

    def _wrong_priorities(self, claim: Claim, waiting: list[ModelTask]) -> list[str]:
        """Where a more urgent run has work in a lane, only every 16th task there may be another's."""
        wrong, given = [], {leased.id for leased in claim.tasks}
        left = [task for task in waiting if task.id not in given and task.due_at <= self.clock()]
        taken = Counter(leased.run for leased in claim.tasks)
        for lane in {leased.lane for leased in claim.tasks}:
            urgent = [
                self.priority(task.run)
                for task in left
                if task.task.lane == lane and self.pages_left(task.run, strict=True) > taken[task.run]
            ]
            here = [task for task in waiting if task.id in given and task.task.lane == lane]
            jumped = [task for task in here if self.priority(task.run) < max(urgent, default=-(1 << 40))]
            before = self.all_lanes[lane].given
            if len(jumped) > (before + len(here)) // OLDEST_EVERY - before // OLDEST_EVERY:
                wrong.append(f"{[task.task.url for task in jumped]} were handed out before a more urgent run's")
        return wrong

    def hand_out(self, claim: Claim, worker: str, span: float, request_id: str) -> None:
        """Make a claim true in the model, whoever decided it."""
        leases = {
            number: self.open_lease(number, worker, span, request_id)
            for number in dict.fromkeys(leased.lease for leased in claim.tasks)
        }
        for leased in sorted(claim.tasks, key=lambda leased: leased.start_in):
            self.give(self.tasks[leased.id], leases[leased.lease], self.clock() + micros(leased.start_in))

    def open_lease(self, number: int, worker: str, span: float, request_id: str) -> ModelLease:
        self.last_lease = number
        self.leases[number] = ModelLease(number, worker, self.clock() + micros(span), span, request_id)
        return self.leases[number]

    def give(self, task: ModelTask, lease: ModelLease, slot: int) -> None:
        self.take_turn(task)
        task.state, task.lease = "leased", lease.number
        self.all_lanes[task.task.lane].given += 1
        self.take_slot(self.all_lanes[task.task.lane], slot)
        lease.slots[task.id] = slot
