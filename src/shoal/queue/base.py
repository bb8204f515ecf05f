"""The queue contract. A backend is done when tests/conformance passes on it.

What makes all backends the same, whatever they are built on:

* **Idempotent add.** A task is known by (run, digest). Adding it again answers "known" and changes
  nothing, also long after it was finished.
* **Leases.** A claim hands out tasks under one lease number. Numbers only grow, also over restarts
  and clock steps: max(last + 1, now in µs). Nobody may settle, extend or release what has been
  given to another: every change restates (task, leased, this lease).
* **One step per outcome.** settle() stores records, adds found tasks, moves counters and lanes and
  acknowledges, all or nothing. A run is finished exactly when its open count is 0.
* **Lanes.** Spacing and concurrency per host are decided when work is handed out, over all workers
  and runs. The sum of in_flight over lanes equals the number of leased tasks.
* **Only the store's clock decides** due times and leases. Callers pass durations in seconds.
* **Repeating a verb is harmless**: a lost answer can always be asked for again.

Every verb may raise shoal.errors.Queue*; nothing was changed if it did, or repeating it is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from shoal.core.lane import LaneState, Mark, Pace, Slot
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.core.task import Admission, Attempt, Carried, Claim, LaneChange, Outcome, State, Task, Verdict

LEASE = 30.0
HEARTBEAT = 10.0
REAP_EVERY = 2.0
LOST_LIMIT = 3  # a task whose workers died so often is dead with cause "worker_lost"
SLOT_HORIZON = 2.0  # a claim may reserve slots so many seconds ahead
FIGURES_CAP = 64 * 1024  # bytes of a worker's figures; longer ones are not kept
FOUND_CAP = 2_000  # more found tasks than this go ahead of the outcome as "part" settles

RunAction = Literal["pause", "resume", "cancel", "finish"]


class Promises(msgspec.Struct, frozen=True):
    """What a backend keeps, and the reason where it does not. Printed by `shoal doctor`."""

    durable: str  # what survives power loss
    steps_clock: bool  # its clock can be stepped in tests
    shared: str  # who can share it


class Extended(msgspec.Struct, frozen=True):
    lost: frozenset[int] = frozenset()  # lease numbers that are no longer this worker's
    cancelled: frozenset[int] = frozenset()  # tasks that need not be finished


class Reaped(msgspec.Struct, frozen=True):
    returned: int = 0  # tasks back to ready
    dead: int = 0  # tasks given up: worker_lost
    expired: int = 0  # tasks whose TTL ran out while they waited


class TaskView(msgspec.Struct, frozen=True):
    """A task as people look at it."""

    id: int
    run: int
    url: str
    lane: str
    state: State
    kind: str = "page"
    priority: int = 0
    depth: int = 0
    parent: int | None = None
    attempts: int = 0
    lost: int = 0
    added_at: int = 0
    due_at: int = 0
    finished_at: int = 0
    lease: int = 0
    worker: str = ""  # of a leased task
    leased_until: int = 0
    cause: str = ""
    records: int = 0
    history: tuple[Attempt, ...] = ()
    evidence: dict[str, object] | None = None
    meta: dict[str, object] | None = None  # of tasks that are open or dead


class Where(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter over tasks. Empty fields match everything."""

    lane: str = ""
    cause: str = ""  # exact, or a prefix ending in "*": "http.5*"
    url: str = ""  # exact, or a glob with "*"
    ids: tuple[int, ...] = ()


class DeadGroup(msgspec.Struct, frozen=True):
    lane: str
    cause: str
    count: int
    sample: str  # one URL
    message: str
    first_at: int
    last_at: int


class Paper(msgspec.Struct, frozen=True):
    """A document that workers share, such as a template. Kept ones count from 1; see also swap."""

    kind: str
    name: str
    version: int
    text: str
    made_at: int


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    seq: int  # grows in the order of settling, within a run
    task: int
    data: bytes  # one JSON object


class Finding(msgspec.Struct, frozen=True):
    """What a check-up found, with what to do about it."""

    what: str  # a few words: "version", "eviction"
    level: Literal["ok", "note", "warning", "wrong"]
    words: str
    fix: str = ""


class Queue(Protocol):
    promises: Promises

    # runs
    async def start_run(self, new: NewRun) -> Run:
        """Create a run. A run with the same key that is not ended (running, paused) is returned instead.

        With `once` an ended one is returned, too: so that any number of callers start it only once.
        """
        ...

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
        """Newest first. `name` also matches a unique beginning of a name; `before`: only ids below it."""
        ...

    async def set_run(self, run: int, action: RunAction) -> Run:
        """pause · resume (a paused run) · cancel (anything not finished) · finish (only when open == 0).

        Cancel moves ready and leased to cancelled at once; a late settle of a leased task keeps its
        records (the task then counts as done) and drops its links. Repeating an action is harmless.
        An action that does not fit the state raises Usage with a message saying why.
        Reviving dead letters of a finished run sets it back to running.
        """
        ...

    # the flow
    async def add(
        self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        """Add many, one answer per task. `paces` says what this run asks of lanes (default: Pace()).

        "rejected": the run does not take work (cancelled or finished). A duplicate within
        `tasks` is "known". A pace given once per (run, lane) stays; giving it again replaces it.
        """
        ...

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE,
        serves: Collection[str] | None = None,
        request_id: str = "",
    ) -> Claim:
        """Up to `limit` tasks from lanes that are due, under one new lease.

        serves: scraper names or run names this worker has the code for (None: all). Repeating a
        request_id returns the same batch as long as its lease lives. Runs share by weight; in a
        lane, higher bands first, then age; every 16th pick of a (lane, run) takes its oldest task.
        A task with a lost worker comes alone in its claim. Tasks whose TTL ran out become dead
        ("expired") instead of being handed out. At most `max_pages` of a run are ever handed out
        and not returned; when so many have ended, done or dead, the rest is cancelled.
        A lane that was parked gives one task at a time, marked as a probe, until it is released.
        A lane that runs of other workers want too gives one slot at a time, to whom it gave least.
        Each task carries its slot: start_in ≤ SLOT_HORIZON seconds, at least `spacing` apart per lane.
        """
        ...

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        """A slot of a lane for a request that is not a task. Creates the lane if it is new.

        A slot further away than `within` seconds is not taken. Such requests take slots but no
        place in flight: in_flight counts leased tasks only. Where the lane is known, the slower of
        its own spacing and the given one counts after this request, unless a person set a rule.
        """
        ...

    async def extend(
        self,
        worker: str,
        leases: Mapping[int, Collection[int]],
        *,
        lease: float = LEASE,
    ) -> Extended:
        """Heartbeat. `leases` maps lease numbers to the tasks of it that were started by now."""
        ...

    async def settle(
        self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
    ) -> list[Verdict]:
        """Make outcomes true, each as a whole, all in one commit. Answers per outcome:

        ok       it is done now
        already  this very (task, lease) was settled before (remembered for two leases at least)
        stale    the lease is no longer valid: nothing of the outcome was kept

        done       records stored, found tasks added, acknowledged
        retry      back to ready, due in `after` seconds; one more attempt
        dead       a dead letter with cause, attempts and evidence
        released   back to ready as it was; costs no attempt
        cancelled  ended without failure (refused by rule after all); `cause` says why
        part       only `found` and `skipped` are taken; the task stays leased. Fenced like all others.

        same_as: if the run has seen that digest as another task, records and found are dropped and
        the task is done; else the digest is remembered as seen for this task.
        Found tasks of a run that was cancelled are dropped. Lane changes always count when ok.
        `paces` is for the lanes of found tasks, as in add.
        """
        ...

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> Reaped:
        """Give back expired leases, and at once all leases of workers known to be dead.

        dead_workers maps a worker to the tasks that were executing when it died: only those are
        charged. Of an expired lease the tasks reported as started by extend are charged, or all
        of them if it was never extended. A task with LOST_LIMIT charges is dead ("worker_lost").
        Also ends tasks whose TTL ran out while waiting. Bounded work per call.
        """
        ...

    # looking
    async def stats(self, run: int) -> Stats: ...

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        """What stats says of many runs, in one question and the same order; an unknown one is empty.

        Claimable is exact where few lanes are due. Of more a part is looked at and the others are taken to
        be like it; the more runs are asked for, the smaller the part.
        """
        ...

    async def recount(self, run: int) -> Stats:
        """The same account counted from the tasks themselves, slowly; must equal stats at rest.

        Whoever else uses this queue is not held up by it.
        """
        ...

    async def strays(self, run: int, limit: int = 20) -> list[int]:
        """Tasks the run has seen that are in no state at all. Only a damaged store has any.

        Tasks that went when their run was cancelled are not strays.
        """
        ...

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
        """Page through tasks by ascending id, starting after `after`; with `upto`, none above it.

        So a filter that matches little looks at no more than upto - after tasks, however many there are.
        The first page of a state costs the same whatever else the run has in other states.
        """
        ...

    async def find(self, run: int, digest: bytes) -> TaskView | None:
        """One task by identity, in whatever state it is. A purged one has what is left of it."""
        ...

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadGroup]:
        """What is dead now, by lane and cause, the largest first."""
        ...

    async def skipped(self, run: int, limit: int = 100) -> list[tuple[str, str]]:
        """Samples of refused links: (reason, url)."""
        ...

    async def ids(self, run: int, digests: Sequence[bytes]) -> list[int]:
        """The tasks with these identities (as in `find`), in the same order; 0 for what was not seen."""
        ...

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        """In the order of settling, starting after `after`; with `tasks`, only those of these tasks."""
        ...

    async def trim(self, run: int, upto: int) -> int:
        """Remove records up to this seq, which are safe elsewhere; says how many.

        They stay in the account as `records` and as `trimmed`, and no seq is given twice.
        """
        ...

    # acting
    async def drop(
        self,
        run: int,
        where: Where = Where(),
        *,
        state: Literal["ready", "dead"] = "ready",
        limit: int = 10_000,
    ) -> int:
        """Give up what waits ("ready": delayed, too), or dead letters: they become cancelled ("dropped").

        Says how many, at most `limit`; repeated until that is 0, all that match are gone. What is
        leased is left alone. A dropped task stays known, its history ends with an attempt "dropped",
        and under max_pages it counts no more. Of an ended run nothing waits; its dead letters can go.
        """
        ...

    async def revive(self, run: int, where: Where = Where(), *, limit: int = 10_000) -> int:
        """Dead letters back to ready, with fresh attempts; says how many, at most `limit`, the oldest first.

        Repeated until that is 0, all that match are back; what died again meanwhile comes back again.
        """
        ...

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        """Remove ended runs (a given one, or those ended more than `older_than` seconds ago) whole.

        Workers that were silent for longer than `older_than` leave the registry. A large run goes in steps,
        so that others get their turn; where that was cut short, asking again goes on.
        """
        ...

    # moving house
    async def carry_out(self, run: int, *, after: int = 0, limit: int = 500) -> list[Carried]:
        """Everything the run has seen, by ascending number, starting after `after`; leased counts as ready.

        Only of a run that is paused or ended, so that it is one state of it.
        """
        ...

    async def carry_in(
        self,
        run: int,
        tasks: Sequence[Carried],
        records: Sequence[StoredRecord] = (),
        *,
        paces: Mapping[str, Pace] | None = None,
        counts: Stats | None = None,
    ) -> None:
        """Take over what another queue carried out, into a run that is paused. Repeating it is harmless.

        Numbers of tasks and of records (`seq`) stay as they are, new ones come after them; a record's
        task is its number. `counts` sets what cannot be counted: retries, lost, stale, bytes, skipped
        and trimmed. A digest may be cut to its first SHORT_DIGEST bytes: the task is known by these then.
        """
        ...

    # papers
    async def keep_paper(self, kind: str, name: str, text: str) -> Paper:
        """Keep a document; a text that differs from the newest version becomes the next one."""
        ...

    async def paper(self, kind: str, name: str, version: int = 0) -> Paper | None:
        """One version of a document; 0 is the newest."""
        ...

    async def swap(self, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
        """Replace a document if its newest version is still `expected` (0: there is none), else None.

        Earlier versions are not kept. A text of None removes the document; its answer is the one removed.
        The first version of a document made here is the store's clock: made again after it was removed,
        it has no version that somebody may still hold.
        """
        ...

    async def papers(self, kind: str) -> list[Paper]:
        """The newest version of every document of a kind, by name."""
        ...

    # registries
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
        """Lanes with the most ready work first. With a run: its lanes, and its own ready work.

        order="name" is for paging: by the bytes of the name, after this one. `like` is a part of it.
        `only`: parked; held (no request before held_until, parked included); ruled (a person set its pace
        or limit). `names`: just these. Filters hold together. Thousands of lanes make no first page slow.
        """
        ...

    async def set_lane(self, change: LaneChange) -> None: ...

    async def register(self, mark: Mark) -> str:
        """Worker heartbeat in the registry: creates or updates. Answers what a person asked of this worker.

        seen_at, leased and asked are the queue's own to say, whatever the mark says. Figures longer than
        FIGURES_CAP are kept as nothing: the rest of the mark counts.
        """
        ...

    async def ask_worker(self, worker: str, wanted: Literal["drain", "pause", ""]) -> bool:
        """Leave word for a worker, which it hears with its next heartbeat; False: there is no such worker."""
        ...

    async def workers(self) -> list[Mark]: ...

    async def forget_worker(self, worker: str) -> None: ...

    async def wait(self, seconds: float) -> None:
        """Return when there may be new work, or after so many seconds at the latest. Only a hint:

        it may return for nothing, and may be late; whoever relies on it asks again anyway.
        """
        ...

    async def checkup(self) -> list[Finding]:
        """What a person should know about the server or file behind this queue."""
        ...

    async def now(self) -> int:
        """The store's clock, UTC microseconds."""
        ...

    async def close(self) -> None: ...
