"""A real queue and the model side by side, through crashes, zombies, lost replies and clock steps.

The queue under test acts first. Where the contract leaves it a choice the model judges the answer
and follows it; where it does not, the two must agree. After every step the accounts are compared.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from conformance.harness import Opener, QueueHarness, page
from conformance.model import ModelQueue
from conformance.model_claim import SLACK
from conformance.model_state import ModelLane, ModelLease, ModelRun, micros
from shoal.core.lane import UNLIMITED_PACE, Pace, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import DROPPED, Attempt, Claim, LaneChange, LeasedTask, OutboxEntry, Outcome, Task, digest
from shoal.errors import UsageError
from shoal.queue.base import Queue, StoredEntry, StoredRecord, TaskFilter

WORKERS = ("w0", "w1", "w2")
PACES = {"free.test": UNLIMITED_PACE, "slow.test": Pace(0.5, 2), "narrow.test": Pace(0.0, 2)}
LANES = tuple(PACES)
STATES = ("seen", "ready", "leased", "done", "dead", "cancelled", "records")
COUNTED = (*STATES, "discarded", "retries", "lost", "stale", "bytes", "skipped", "trimmed", "outbox")
RECOUNTED = (*STATES, "discarded", "delayed", "trimmed", "needs", "outbox")
KINDS = ("follow-up", "feed")  # of the outbox

some = st.integers(0, 99)
rarely = st.sampled_from([False, False, False, True])
worker = st.sampled_from(WORKERS)
results = st.sampled_from(
    ["done", "done", "done", "retry", "retry", "dead", "released", "cancelled", "part", "redirect"]
)
EVERYTHING = ("browser", "exit:de")
NEEDS = (EVERYTHING, ("browser",), (), ())
needs = st.sampled_from(NEEDS)
capabilities = st.sampled_from([(), (), ("browser",), ("exit:de",), EVERYTHING])
actions = st.sampled_from(
    ["pause", "pause", "resume", "resume", "finish", "revive", "revive", "cancel", "undo", "undo"]
)
changes = st.sampled_from(
    ["reserve", "reserve slowly", "hold", "park", "release", "slow", "forget", "rule", "limit", "no override"]
)


def settings_for(examples: int, steps: int, *, shrink: bool) -> settings:
    """Deterministic, and longer with SHOAL_HYPOTHESIS=slow."""
    slow = os.environ.get("SHOAL_HYPOTHESIS") == "slow"
    return settings(
        max_examples=examples * (20 if slow else 1),
        stateful_step_count=steps * (2 if slow else 1),
        deadline=None,
        derandomize=not slow,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


class Held(NamedTuple):
    """What a worker believes to hold; the queue may know better."""

    worker: str
    leased: LeasedTask


class Request(NamedTuple):
    """What a worker asked for, and may ask for again if it heard no answer."""

    worker: str
    limit: int
    words: dict[str, Any]


class Reference(ModelQueue):
    """The model, with the numbers that the queue under test has given."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.ids: dict[tuple[int, bytes], int] = {}

    def new_id(self, run: int, task: Task) -> int:
        assert (run, task.digest) in self.ids, f"{task.url} was not added"
        return self.ids[run, task.digest]


class QueueMachine(RuleBasedStateMachine):
    make_opener: Callable[[], Opener]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.harness = QueueHarness(type(self).make_opener(), Path(self.folder.name))
        self.harness.queue = self.do(self.harness.open())
        self.model = Reference(self.harness.clock)
        self.apart = self.model.apart = bool(self.queue.promises.apart)
        self.runs: list[int] = []
        self.held: list[Held] = []
        self.answers: list[Outcome] = []  # given some time ago
        self.requests = 0
        self.asked: list[Request] = []
        self.documents: dict[str, str | None] = {}

    def teardown(self) -> None:
        self.do(self.harness.close())
        self.runner.close()
        self.folder.cleanup()

    def do(self, verb: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(verb)

    @property
    def queue(self) -> Queue:
        return self.harness.queue

    def run_of(self, number: int) -> int:
        return self.runs[number % len(self.runs)]

    # runs

    @initialize()
    def begin(self) -> None:
        self.start_run(weight=1, priority=0, max_pages=0, seen_set="all", dead_retention=65.0)
        self.add_tasks(self.runs[0], [page(f"p{n}", LANES[n % 3], needs=NEEDS[n % 4]) for n in range(12)])

    @precondition(lambda self: len(self.runs) < 3)
    @rule(
        weight=st.sampled_from([1, 3]),
        priority=st.sampled_from([0, 0, 5]),
        max_pages=st.sampled_from([0, 0, 4]),
        seen_set=st.sampled_from(["", "all", "recent"]),
        dead_retention=st.sampled_from([0.0, 65.0]),
    )
    def start_run(self, weight: int, priority: int, max_pages: int, seen_set: str, dead_retention: float) -> None:
        name, scraper = f"run{len(self.runs)}", f"scraper{len(self.runs) % 2}"
        new = NewRun(
            scraper=scraper, key=name, name=name, weight=weight, priority=priority, max_pages=max_pages,
            seen_set=seen_set, seen_for=3600.0 if seen_set == "recent" else 0.0, dead_retention=dead_retention,
        )  # fmt: skip
        run = self.do(self.queue.start_run(new))
        assert run.id not in self.runs
        self.model.all_runs[run.id] = ModelRun(run)
        self.model.open_seen_set(run)
        self.runs.append(run.id)

    @rule(number=some, action=actions)
    def administer(self, number: int, action: Any) -> None:
        run = self.run_of(number)
        if action == "revive":
            self.revive(run, ["", "http.*", "worker_lost", "expired"][number % 4], 1 + number % 5)
            return
        states = []
        for queue in (self.queue, self.model):
            try:
                states.append(self.do(queue.set_run(run, action)).state)
            except UsageError:
                states.append("refused")
        assert states[0] == states[1], f"{action}: {states[0]}, not {states[1]}"
        if action == "cancel" and self.asked and self.harness.clock() >= self.model.latest:
            self.ask(self.asked[-1])  # as if its answer had been lost

    @rule(number=some, max_pages=st.sampled_from([0, 3, 6, 12]))
    def set_max_pages(self, number: int, max_pages: int) -> None:
        """A run that its limit ended goes on with what was left."""
        run, answers = self.run_of(number), []
        for queue in (self.queue, self.model):
            try:
                changed = self.do(queue.set_max_pages(run, max_pages))
                answers.append((changed.state, changed.max_pages))
            except UsageError:
                answers.append("refused")
        assert answers[0] == answers[1], f"{answers[0]}, not {answers[1]}"

    def revive(self, run: int, cause: str, few: int) -> None:
        if self.model.all_runs[run].run.state != "cancelled":
            where = TaskFilter(cause=cause)
            back = [self.do(queue.revive(run, where, limit=few)) for queue in (self.queue, self.model)]
            assert back[0] == back[1], f"{back[0]} were revived, not {back[1]}"

    @rule(number=some, state=st.sampled_from(["ready", "ready", "dead"]), few=rarely)
    def drop(self, number: int, state: Any, few: bool) -> None:
        """Give up the tasks of one lane, or a few by number."""
        run, where = self.run_of(number), TaskFilter(lane=LANES[number % 3])
        if few:
            views = self.do(self.queue.list_tasks(run, state=state, limit=1 + number % 4))
            where = TaskFilter(ids=tuple(view.id for view in views) or (1,))
        dropped = [self.do(queue.drop(run, where, state=state)) for queue in (self.queue, self.model)]
        assert dropped[0] == dropped[1], f"{dropped[0]} were dropped, not {dropped[1]}"
        gone = tuple(task.id for task in self.model.tasks.values() if task.cause == DROPPED)
        for view in self.do(self.queue.list_tasks(run, where=TaskFilter(ids=gone), limit=1000)) if gone else ():
            assert (view.state, view.cause) == ("cancelled", DROPPED)

    @rule(number=some, kind=st.sampled_from(KINDS), lost_reply=rarely)
    def drain_the_outbox(self, number: int, kind: str, lost_reply: bool) -> None:
        """Some entries are done, not always the first."""
        theirs, ours = self.outboxes(kind)
        chosen = [n for n in range(len(ours)) if (n + number) % 3]
        for _ in range(1 + lost_reply):
            gone = self.do(self.queue.acknowledge([theirs[n].seq for n in chosen]))
            assert gone == self.do(self.model.acknowledge([ours[n].seq for n in chosen])), f"{gone} were acknowledged"

    def outboxes(self, kind: str) -> tuple[list[StoredEntry], list[StoredEntry]]:
        """What waits in the queue and in the model, in the same order if that is kept within parts only."""
        theirs, ours = (self.do(queue.outbox(kind)) for queue in (self.queue, self.model))
        assert [it.seq for it in theirs] == sorted({it.seq for it in theirs})
        if self.apart:
            for entries in (theirs, ours):
                entries.sort(key=lambda it: (it.run, it.key))
        return theirs, ours

    # the flow

    @rule(
        number=some,
        pages=st.lists(st.integers(0, 30), min_size=1, max_size=6),
        priority=st.sampled_from([0, 0, 100, -100]),
        delay=st.sampled_from([0.0, 0.0, 4.0]),
        ttl=st.sampled_from([None, None, 25.0]),
        ack=st.sampled_from(["manual", "manual", "auto"]),
        needs=needs,
        kind=st.sampled_from(["page", "page", "page:sitemap"]),
        revisit=rarely,
        lost_reply=rarely,
    )
    def add(self, number: int, pages: list[int], lost_reply: bool, **more: Any) -> None:
        run = self.run_of(number)
        tasks = [page(f"p{n}", LANES[n % 3], **more) for n in pages]
        self.add_tasks(run, tasks)
        if lost_reply:
            assert "added" not in self.do(self.queue.add(run, tasks, PACES))

    def add_tasks(self, run: int, tasks: list[Task]) -> None:
        answers = self.do(self.queue.add(run, tasks, PACES))
        self.learn(run, tasks)
        assert answers == self.do(self.model.add(run, tasks, PACES))

    def learn(self, run: int, tasks: Any) -> None:
        for task in tasks:
            view = self.do(self.queue.find(run, task.digest))
            if view is not None:
                self.model.ids.setdefault((run, task.digest), view.id)

    @rule(
        worker=worker,
        limit=st.integers(1, 6),
        span=st.sampled_from([5.0, 30.0]),
        serves=st.sampled_from([None, None, None, None, ("scraper0",), ("run1", "scraper1")]),
        has=capabilities,
        lost_reply=rarely,
    )
    def claim(self, worker: str, limit: int, span: float, serves: Any, has: tuple[str, ...], lost_reply: bool) -> None:
        self.requests += 1
        request = Request(
            worker, limit, {"lease": span, "serves": serves, "capabilities": has, "request_id": f"r{self.requests}"}
        )
        self.ask(request)
        if lost_reply:
            self.ask(request)
        self.asked.append(request)

    @rule(
        number=some,
        worker=worker,
        pages=st.lists(st.integers(0, 60), min_size=1, max_size=5),
        priority=st.sampled_from([0, 100]),
        delay=st.sampled_from([0.0, 0.0, 0.0, 4.0]),
        ttl=st.sampled_from([None, None, 25.0]),
        ack=st.sampled_from(["manual", "manual", "auto"]),
        needs=needs,
        has=capabilities,
        lost_reply=rarely,
    )
    def push(
        self, number: int, worker: str, pages: list[int], has: tuple[str, ...], lost_reply: bool, **more: Any
    ) -> None:
        self.requests += 1
        run, tasks = self.run_of(number), [page(f"p{n}", LANES[n % 3], **more) for n in pages]
        words = {"lease": 30.0, "capabilities": has, "request_id": f"r{self.requests}"}
        result = self.do(self.queue.push(run, tasks, worker, PACES, **words))
        self.learn(run, tasks)
        added = ["added" if answer == "leased" else answer for answer in result.answers]
        assert added == self.do(self.model.add(run, tasks, PACES))
        wrong = self.model.wrong_with_push(run, tasks, result, has)
        assert not wrong, "; ".join(wrong)
        if result.claim.tasks:
            self.model.hand_out(result.claim, worker, words["lease"], words["request_id"])
            self.held += [Held(worker, leased) for leased in result.claim.tasks]
        if self.harness.clock() >= self.model.latest:
            told = zip(tasks, result.answers, strict=True)
            self.nothing_was_held_back(run, [task for task, answer in told if answer == "added"], has)
        if lost_reply:
            again = self.do(self.queue.push(run, tasks, worker, PACES, **words))
            assert self.apart or again.claim.lease == result.claim.lease, "the repeated push got another batch"
            assert {it.id for it in again.claim.tasks} == {it.id for it in result.claim.tasks}
        self.asked.append(Request(worker, 5, words | {"serves": None}))

    def nothing_was_held_back(self, run: int, only_added: list[Task], has: tuple[str, ...]) -> None:
        free = {task.task.url for task in self.model.must_hand_out(None, has) if task.run == run}
        for task in only_added:
            could = task.url in free and not self.model.all_lanes[task.lane].parked
            assert not could, f"nothing kept {task.url} from being leased"

    @precondition(lambda self: self.asked and self.harness.clock() >= self.model.latest)
    @rule(number=some)
    def repeat_an_old_request(self, number: int) -> None:
        """Whose batch may have been settled in part, cancelled, or lost with its lease by now."""
        self.ask(self.asked[-1 - number % min(4, len(self.asked))])

    def ask(self, request: Request) -> None:
        worker, limit, words = request
        self.model.note_time()
        known = self.model.same_request(worker, words["request_id"])
        claim = self.do(self.queue.claim(worker, limit, **words))
        if known:
            assert self.apart or claim.lease == known.number, "the repeated request got another batch"
            same = [it for it in self.model.leases.values() if self.is_same(it, known)]
            held = {id for lease in same for id in lease.slots if self.model.tasks[id].state == "leased"}
            more = tuple(task for task in claim.tasks if task.id not in held)
            assert len(claim.tasks) - len(more) == len(held), "the repeated batch is another"
            assert not more or self.apart, "the repeated batch has more"
            if not more:
                return
            # Parts that had not been asked the first time may fill it up.
            claim = Claim(more[0].lease, more)
        expired, serves, has = self.follow_expiry(), words["serves"], words["capabilities"]
        if not claim.tasks and expired and self.model.must_hand_out(serves, has):
            # It may come back with nothing but the expired, if it says that there is more.
            assert claim.next_in is not None, "nothing was handed out and nothing is said to come"
            return
        self.judge(claim, limit, serves, has)
        if claim.tasks:
            self.model.hand_out(claim, worker, words["lease"], words["request_id"])
            self.held += [Held(worker, leased) for leased in claim.tasks]

    def is_same(self, lease: ModelLease, known: ModelLease) -> bool:
        """Whether a lease is of the same request; where all are of one part there is but one."""
        request = (lease.worker, lease.request_id) == (known.worker, known.request_id)
        return lease is known or (self.apart and request and lease.until > self.harness.clock())

    def judge(self, claim: Claim, limit: int, serves: Any, has: tuple[str, ...]) -> None:
        for leased in claim.tasks:
            known = self.model.tasks.get(leased.id)
            assert known is not None, f"{leased.url} was never added"
            assert (known.task.url, known.run, known.task.lane) == (leased.url, leased.run, leased.lane)
        wrong = self.model.may_hand_out(limit, serves, claim, has)
        assert not wrong, "; ".join(wrong)

    def follow_expiry(self) -> int:
        """A claim may end some of the tasks whose time to live is over; ask which."""
        over = [task for task in self.model.tasks.values() if task.is_expired(self.harness.clock())]
        gone = 0
        for task in over:
            view = self.do(self.queue.find(task.run, task.task.digest))
            if view.state == "dead":
                assert view.cause == "expired"
                self.model.end(task, "dead", "expired")
                gone += 1
        return gone

    @precondition(lambda self: self.held)
    @rule(
        picks=st.lists(st.tuples(some, results), min_size=1, max_size=4),
        after=st.sampled_from([0.0, 3.0, 3.0]),
        lost_reply=rarely,
    )
    def settle(self, picks: list[tuple[int, Any]], after: float, lost_reply: bool) -> None:
        outcomes = []
        if self.apart:  # what was seen is compared within a part only
            picks = [(number, "done" if result == "redirect" else result) for number, result in picks]
        if picks[0][1] == "redirect":
            picks = picks[:1]  # what a redirect leads to depends on all that was found before
        sharing = set[int]()  # of runs with a seen-set one may find something: of several any may be the first
        for number, result in picks:
            if self.held and (result != "redirect" or not outcomes):
                run = self.held[number % len(self.held)].leased.run
                sharing |= {run} if self.model.all_runs[run].run.seen_set else set()
                if len(sharing) > 1:
                    break
                held = self.held.pop(number % len(self.held))
                outcomes.append(self.outcome(held.leased, result, after))
                if result == "part":
                    self.held.append(held)
        if not outcomes:
            return
        self.answer(outcomes)
        if lost_reply:
            self.answer(outcomes)
        self.answers += [outcome for outcome in outcomes if outcome.result != "part"]

    def outcome(self, leased: LeasedTask, result: Any, after: float) -> Outcome:
        n = int(leased.url.removeprefix("p").split("/")[0])
        if result == "redirect":  # a page that turns out to be another: kept only if that one was not seen
            record = b'{"lease":%d}' % leased.lease
            return Outcome(
                leased.id, leased.lease, "done", records=(record,), redirect_digest=digest(f"p{n + 1}"),
                record_keys=(digest(f"key {n % 3}"),),
                outbox=(OutboxEntry(KINDS[0], f"redirect {leased.lease}", record),),
                counters={"redirects": 1, "field.lease.number": 1},
            )  # fmt: skip
        asked = (leased.needs, ())  # one of two needs what its page needed
        found = tuple(page(f"p{n}/{leased.attempts}/{i}", LANES[(n + i) % 3], needs=asked[i]) for i in range(2))
        attempt = Attempt(at=1, worker="w", cause="" if result == "done" else "http.500", size=10)
        good, links = result == "done", result in ("done", "part") and leased.url.count("/") < 4
        return Outcome(
            task=leased.id, lease=leased.lease, result=result, attempt=attempt, after=after,
            cause="" if good else "http.500", records=(b'{"lease":%d}' % leased.lease,) if good else (),
            found=found if links else (), skipped=(("scope", "x"),) if good else (),
            lanes=(LaneChange(leased.lane, hold_for=1.0),) if result == "retry" and after else (),
            counters={"pages": 1, "bytes": 10 + n, f"field.f{n % 3}.string": 1} if n % 3 else {},
            # Not of every page, and also of those that are not done, where it must not count.
            outbox=(OutboxEntry(KINDS[n % 2], f"{leased.url} {leased.lease}", b"x"),) if n % 4 < 2 else (),
        )  # fmt: skip

    def answer(self, outcomes: list[Outcome]) -> None:
        self.model.note_time()
        verdicts = self.do(self.queue.settle(outcomes, PACES))
        assert len(verdicts) == len(outcomes)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            allowed = self.model.may_answer(outcome)
            assert verdict in allowed, f"{outcome.result} was {verdict}, not {allowed}"
            if verdict == "ok":
                self.learn(self.model.tasks[outcome.task].run, outcome.found)
            self.model.make_true(outcome, verdict, PACES)
        self.model.stop_settled(outcomes, verdicts)

    @rule(worker=worker, limit=st.integers(1, 6), result=results)
    def work(self, worker: str, limit: int, result: Any) -> None:
        """What goes on most of the time: a worker claims, executes and settles."""
        before = len(self.held)
        self.claim(worker=worker, limit=limit, span=30.0, serves=None, has=EVERYTHING, lost_reply=False)
        if len(self.held) > before:
            self.settle(picks=[(-1, result)] * (len(self.held) - before), after=0.0, lost_reply=False)

    @precondition(lambda self: self.answers)
    @rule(number=some)
    def repeat_an_old_answer(self, number: int) -> None:
        self.answer([self.answers[number % len(self.answers)]])

    @precondition(lambda self: self.held)
    @rule(worker=worker, started=st.sets(some), span=st.sampled_from([5.0, 30.0]))
    def extend(self, worker: str, started: set[int], span: float) -> None:
        mine = [held.leased for held in self.held if held.worker == worker]
        leases = {
            lease: [item.id for n, item in enumerate(mine) if item.lease == lease and n in started]
            for lease in {item.lease for item in mine}
        }
        answer = self.do(self.queue.extend(worker, leases, lease=span))
        cancelled = set()
        for number, begun in leases.items():
            known = self.model.leases.get(number)
            if known is None or known.worker != worker:
                assert number in answer.lost, "a lost lease was extended"
            elif number in answer.lost:
                assert known.until <= self.harness.clock(), "a living lease is said to be lost"
            else:
                cancelled |= self.model.prolong(known, begun, span)
        assert answer.cancelled == cancelled

    @rule(worker=worker)
    def crash(self, worker: str) -> None:
        """A worker is gone with all it knew; its leases run out some day."""
        self.held = [held for held in self.held if held.worker != worker]

    @rule(worker=worker, executing=st.sets(st.integers(0, 5)), known=st.booleans())
    def reap(self, worker: str, executing: set[int], known: bool) -> None:
        """Upkeep. A worker may be taken for dead: it keeps what it holds, and comes back as a zombie."""
        mine = [held.leased.id for held in self.held if held.worker == worker]
        self.reap_with({worker: [task for n, task in enumerate(mine) if n in executing]} if known else {})

    @rule(worker=worker, seconds=st.sampled_from([6.0, 31.0]))
    def overtake(self, worker: str, seconds: float) -> None:
        """Leases run out, and what was too slow goes to another; the slow ones know nothing of it."""
        self.harness.clock.step(seconds)
        self.reap_with({})
        self.claim(worker=worker, limit=4, span=30.0, serves=None, has=EVERYTHING, lost_reply=False)

    def reap_with(self, dead: dict[str, list[int]]) -> None:
        answer = self.do(self.queue.reap(dead))
        assert answer == self.do(self.model.reap(dead))

    # lanes

    @rule(name=st.sampled_from(LANES), change=changes)
    def lane(self, name: str, change: str) -> None:
        lane = self.model.all_lanes[name]
        if change.startswith("reserve"):
            self.reserve(lane, Pace(2.0, 1) if change.endswith("slowly") else None)
        elif change != "park" or lane.held_until <= self.harness.clock():
            words = {
                "hold": LaneChange(name, hold_for=3.0, reason="asked to wait"),
                "park": LaneChange(name, park_for=8.0, reason="blocked"),
                "release": LaneChange(name, park_for=0.0),
                "slow": LaneChange(name, spacing=1.5),
                "forget": LaneChange(name, spacing=0.0),
                "rule": LaneChange(name, spacing_override=0.2),
                "limit": LaneChange(name, limit=1),
                "no override": LaneChange(name, spacing_override=-1.0, limit=-1),
            }
            for queue in (self.queue, self.model):
                self.do(queue.set_lane(words[change]))

    def reserve(self, lane: ModelLane, pace: Pace | None) -> None:
        now = self.harness.clock()
        slot = self.do(self.queue.reserve(lane.name, pace))
        parked = lane.parked and lane.held_until > now
        assert bool(slot.parked) == parked
        if not parked:
            at = now + micros(slot.wait)
            assert at >= lane.earliest_slot(now) - SLACK, "a reserved slot comes too early"
            self.model.take_slot(lane, at, pace.spacing if pace else 0.0)

    @rule(number=some)
    def look_at_what_waits(self, number: int) -> None:
        """Whatever came back is in its place."""
        for view in self.do(self.queue.list_tasks(self.run_of(number), limit=1000)):
            known = self.model.tasks[view.id]
            if view.state in ("ready", "delayed") and known.state == "ready":
                assert view.needs == known.task.needs, f"{view.url} needs {view.needs}, not {known.task.needs}"
                assert view.due_at == known.due_at, f"{view.url} is due {(view.due_at - known.due_at) / 1e6} s late"

    @rule(pages=st.lists(st.integers(0, 30), max_size=4), clear=rarely)
    def forget_what_was_seen(self, pages: list[int], clear: bool) -> None:
        verbs: list[Callable[[Queue | ModelQueue], Coroutine[Any, Any, int]]] = [
            lambda it: it.forget_seen("all", [digest(f"p{n}") for n in set(pages)])
        ]
        if clear:
            verbs.append(lambda it: it.clear_seen("all"))
        for verb in verbs:
            gone = [self.do(verb(queue)) for queue in (self.queue, self.model)]
            assert gone[0] == gone[1], f"{gone[0]} were forgotten, not {gone[1]}"

    # beside the flow

    @rule(number=some, what=st.sampled_from(["trim", "compare_and_swap", "start again", "ask"]), lost_reply=rarely)
    def read_in_thread(self, number: int, what: str, lost_reply: bool) -> None:
        for _ in range(1 + lost_reply):
            if what == "trim":
                self.trim(self.run_of(number), number % 5)
            elif what == "compare_and_swap":
                self.compare_and_swap(f"paper{number % 2}", ["a", "b", None][number % 3], stale=number % 4 == 0)
            elif what == "start again":
                self.start_again(self.model.all_runs[self.run_of(number)].run)
            else:
                self.ask_a_worker(WORKERS[number % 3], ["drain", "pause", ""][number % 2])

    def trim(self, run: int, place: int) -> None:
        kept, known = self.do(self.queue.records(run)), self.model.all_runs[run].records
        if place < len(kept):
            gone = self.do(self.queue.trim(run, kept[place].seq))
            assert gone == self.do(self.model.trim(run, known[place].seq)) == place + 1

    def compare_and_swap(self, name: str, text: str | None, *, stale: bool) -> None:
        known = self.do(self.queue.document("lock", name))
        assert (known.text if known else None) == self.documents.get(name), "a document is not what it was"
        expected = (known.version if known else 0) + stale
        answer = self.do(self.queue.compare_and_swap("lock", name, text, expected))
        if stale or (known is None and text is None):
            assert answer is None, "a document was replaced by who did not know it"
            return
        assert answer is not None
        self.documents[name] = text
        assert text is None or answer.version > expected

    def start_again(self, run: Run) -> None:
        again = NewRun(scraper=run.scraper, key=run.key, name=f"{run.name} again", once=True)
        assert self.do(self.queue.start_run(again)).id == run.id, "a run was started twice"

    def ask_a_worker(self, worker: str, wanted: Any) -> None:
        mark = WorkerStatus(worker, worker, "host", 1, "1", 1, 0)
        for verb in (lambda it: it.command_worker(worker, wanted), lambda it: it.register(mark)):
            assert self.do(verb(self.queue)) == self.do(verb(self.model))

    # time and restarts

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 3.0, 6.0, 31.0, 70.0, 4000.0, -0.5, -4.0, -20.0]))
    def step_clock(self, seconds: float) -> None:
        self.model.note_time()
        self.harness.clock.step(seconds)
        for lane in self.model.all_lanes.values():
            lane.excused |= seconds < 0 and self.model.spacing(lane) == 0

    @rule()
    def reopen(self) -> None:
        self.do(self.harness.reopen())

    # what holds at every moment

    @invariant()
    def no_checkup_findings(self) -> None:
        self.accounts_agree()
        self.run_states_agree()
        self.places_in_flight_are_leased_tasks()
        self.every_record_is_there_exactly_once()
        self.every_entry_waits_until_it_is_acknowledged()
        self.claimable_work_is_seen()
        self.seen_sets_agree()

    def seen_sets_agree(self) -> None:
        ours, theirs = self.do(self.model.seen_sets()), self.do(self.queue.seen_sets())
        if self.apart:  # what a part has of its own begins one anew that was cleared, and leaves it empty
            ours, theirs = ([it for it in sets if it.entries] for sets in (ours, theirs))
        assert [it.name for it in ours] == [it.name for it in theirs]
        # What is remembered no more is removed when somebody comes to it.
        sizes = [[it.entries for it in sets if not it.seen_for] for sets in (ours, theirs)]
        assert sizes[0] == sizes[1], f"{sizes[1]} are in the seen-sets, not {sizes[0]}"

    def accounts_agree(self) -> None:
        for run in self.runs:
            ours, theirs = self.do(self.model.stats(run)), self.do(self.queue.stats(run))
            assert theirs.is_balanced, theirs
            for name in COUNTED:
                found, expected = getattr(theirs, name), getattr(ours, name)
                assert found == expected, f"{name} of run {run} is {found}, not {expected}"
            if self.harness.clock() >= self.model.latest or not self.model.all_runs[run].takes_work:
                assert theirs.delayed == ours.delayed, f"delayed is {theirs.delayed}, not {ours.delayed}"
                assert theirs.needs == ours.needs, f"what is needed is {theirs.needs}, not {ours.needs}"
            assert 0 <= theirs.claimable <= theirs.ready
            assert not self.do(self.queue.orphans(run))
            assert self.do(self.queue.run_counters(run)) == self.do(self.model.run_counters(run))
            recount = self.do(self.queue.recount(run))
            for name in RECOUNTED:
                found, expected = getattr(theirs, name), getattr(recount, name)
                assert found == expected, f"{name} of run {run} is {found}, a recount says {expected}"

    def run_states_agree(self) -> None:
        states = {run.id: run.state for run in self.do(self.queue.runs())}
        assert states == {id: about.run.state for id, about in self.model.all_runs.items()}

    def places_in_flight_are_leased_tasks(self) -> None:
        lanes = self.do(self.queue.lanes())
        for lane in lanes:
            known, expected = self.model.all_lanes[lane.name], self.model.in_flight(lane.name)
            assert lane.in_flight == expected, f"{lane.name} has {lane.in_flight} in flight, not {expected}"
            assert (lane.spacing_override, lane.limit) == (known.spacing_override, known.limit)
            if self.model.asking(known) or known.spacing_override >= 0:
                assert lane.spacing == self.model.spacing(known)
            if self.model.asking(known) or known.limit >= 0:
                assert lane.max_in_flight == self.model.max_in_flight(known)
            held_until = known.held_until if known.held_until > self.harness.clock() else 0
            assert lane.held_until == held_until
        leased = sum(self.do(self.queue.stats(run)).leased for run in self.runs)
        assert sum(lane.in_flight for lane in lanes) == leased

    def every_record_is_there_exactly_once(self) -> None:
        for run in self.runs:
            kept = self.do(self.queue.records(run))
            assert [record.seq for record in kept] == sorted({record.seq for record in kept})
            expected = self.model.all_runs[run].records
            if self.apart:
                self.follow_order(kept, expected)
            assert [(item.task, item.data) for item in kept] == [(item.task, item.data) for item in expected]
            assert len({item.task for item in kept}) == len(kept), "a task has its records twice"

    def follow_order(self, kept: Sequence[StoredRecord], expected: list[StoredRecord]) -> None:
        """Of records that were settled together on several parts any may be the first."""
        places = {(item.task, item.data): place for place, item in enumerate(kept)}
        seqs = [item.seq for item in expected]
        expected.sort(key=lambda item: places.get((item.task, item.data), len(kept)))
        expected[:] = [replace(item, seq=seq) for item, seq in zip(expected, seqs, strict=True)]

    def every_entry_waits_until_it_is_acknowledged(self) -> None:
        for kind in KINDS:
            theirs, ours = self.outboxes(kind)
            found, expected = ([(it.run, it.key, it.data) for it in entries] for entries in (theirs, ours))
            assert found == expected, f"the outbox of {kind} has {found}, not {expected}"

    def claimable_work_is_seen(self) -> None:
        for run in self.runs:
            waiting = [task for task in self.model.must_hand_out(None) if task.run == run]
            assert not waiting or self.do(self.queue.stats(run)).claimable > 0, "claimable work is not seen"


def machine_for(make_opener: Callable[[], Opener]) -> type[QueueMachine]:
    return type("Machine", (QueueMachine,), {"make_opener": staticmethod(make_opener)})


def drive(make_opener: Callable[[], Opener], examples: int, steps: int, *, shrink: bool = True) -> None:
    """Run the machine over a backend; an AssertionError tells what it found."""
    how = settings_for(examples, steps, shrink=shrink)
    run_state_machine_as_test(machine_for(make_opener), settings=how)
