"""The queue contract. A backend is done when tests/conformance passes on it. It is long: there is one of it.

What makes all backends the same, whatever they are built on:

* **Idempotent add.** A task is known by (run, digest). Adding it again answers "known" and changes
  nothing, also long after it was finished.
* **Leases.** A claim hands out tasks under one lease number. Numbers only grow, also over restarts
  and clock steps: max(last + 1, now in µs). Nobody may settle, extend or release what has been
  given to another: every change restates (task, leased, this lease).
* **One step per outcome.** settle() stores records, adds found tasks, moves counters and lanes and
  acknowledges, all or nothing. A run is finished exactly when its open count and its outbox are 0.
* **One outbox.** What a settled task wants done elsewhere is written with its outcome and stays until it
  is acknowledged, so it is done at least once and never for an outcome that did not count; whoever drains it
  does it by key, so that doing it again is harmless. Records are their own outbox (read by seq, trimmed
  when they are safe elsewhere: shoal.runs.relay); everything else that leaves the queue goes through this one.
* **Lanes.** Spacing and concurrency per host are decided when work is handed out, over all workers
  and runs. The sum of in_flight over lanes equals the number of leased tasks. A lane is `host` or
  `host@exit` (core/lane.py), fixed when a task is added; to a queue these are different lanes.
* **Only the store's clock decides** due times and leases. Callers pass durations in seconds.
* **Repeating a verb is harmless**: a lost answer can always be asked for again.

Every verb may raise shoal.errors.Queue*; nothing was changed if it did, or repeating it is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from shoal.core.lane import LaneState, Pace, Slot, WorkerStatus
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.core.task import Admission, Claim, ExportedTask, LaneChange, Outcome, State, Task, Verdict
from shoal.queue.values import (
    CacheEntry,
    CacheStats,
    DeadLetterGroup,
    Document,
    ExtendResult,
    Finding,
    NewCacheEntry,
    PageState,
    Promises,
    PushResult,
    ReapResult,
    RunAction,
    SeenSet,
    StoredEntry,
    StoredRecord,
    TaskFilter,
    TaskView,
    UrlFailures,
)

__all__ = [
    "CACHE_ENTRY_BYTES", "CACHE_KEPT_SECONDS", "CACHE_SHARE", "HEARTBEAT_SECONDS", "LANE_KEPT_SECONDS", "LEASE_SECONDS",
    "LIMIT_SECONDS", "LOST_LIMIT", "MAX_CACHE_BODIES", "MAX_CACHE_KEYS", "MAX_COUNTERS_BYTES", "MAX_COUNTER_NAMES",
    "MAX_FOUND_PER_SETTLE", "MAX_OUTBOX_BYTES", "MAX_OUTBOX_ENTRIES", "MAX_OUTBOX_ENTRY_BYTES", "MAX_OUTBOX_PER_RUN",
    "MAX_PAGE_STATES", "MAX_PAGE_STATE_BYTES", "MAX_PUSH", "MAX_WHOLE_PAGE_STATES", "REAP_EVERY",
    "SLOT_HORIZON_SECONDS", "UNDO_SECONDS", "Admin", "Cache", "CacheEntry", "CacheStats", "DeadLetterGroup",
    "Document", "Documents", "ExtendResult", "Failures", "Finding", "Flow", "Inspect", "Move", "NewCacheEntry",
    "Outbox", "PageState", "PageStates", "Promises", "PushResult", "Queue", "ReapResult", "Registry", "RunAction",
    "Runs", "SeenSet", "SeenSets", "StoredEntry", "StoredRecord", "TaskFilter", "TaskView", "UrlFailures",
]  # fmt: skip

LEASE_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
REAP_EVERY = 2.0
LOST_LIMIT = 3  # a task whose workers died so often is dead with cause "worker_lost"
SLOT_HORIZON_SECONDS = 2.0  # a claim may reserve slots so many seconds ahead
LANE_KEPT_SECONDS = 86_400.0  # a lane that nothing refers to is kept for so long after its last slot
UNDO_SECONDS = 3600.0  # so long the tasks of a cancelled run are kept: its cancel can be undone
LIMIT_SECONDS = 86_400.0  # so long those of a run that its page limit ended: it can go on with a higher one
MAX_COUNTERS_BYTES = 64 * 1024  # bytes of a worker's counters; longer ones are dropped
MAX_PUSH = 1_000  # tasks of one push; more raise ValueError
MAX_FOUND_PER_SETTLE = 2_000  # more found tasks than this go ahead of the outcome as "part" settles
MAX_COUNTER_NAMES = 200  # of a run's counters; what is counted under further names is summed under "other"
MAX_OUTBOX_PER_RUN = 10_000  # while so many entries of a run wait to be drained, no more of it is handed out
MAX_OUTBOX_ENTRIES = 10_000  # of one outcome
MAX_OUTBOX_ENTRY_BYTES = 1_100_000  # kind, key and data of one entry
MAX_OUTBOX_BYTES = 16_000_000  # of the entries of one outcome
MAX_PAGE_STATES = 1_000  # saved in one step
MAX_PAGE_STATE_BYTES = 250_000  # head and body of one
MAX_WHOLE_PAGE_STATES = 100  # with their bodies, in one answer
CACHE_KEPT_SECONDS = 7 * 86_400.0  # no response is in the cache for longer
CACHE_SHARE = 16  # no entry of the cache takes more than this part of the bound
CACHE_ENTRY_BYTES = 300  # what an entry counts for beside its data, URL and host
MAX_CACHE_KEYS = 1_000  # asked for at once; more raise ValueError
MAX_CACHE_BODIES = 20  # likewise with their data


class Runs(Protocol):
    """The life of runs."""

    async def start_run(self, new: NewRun) -> Run:
        """Create a run. A run with the same key that is not ended (running, paused) is returned instead.

        With `once` an ended one is returned, too: so that any number of callers start it only once.
        Raises RunNameTaken if another run has this name.
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
        """pause · resume (a paused run) · cancel (anything not finished) · undo (a cancel) · finish (nothing left).

        Cancel moves ready and leased to cancelled at once; a late settle of a leased task keeps its
        records (the task then counts as done) and drops its links and entries. What was settled before stays
        true: entries that wait in the outbox of a cancelled run, or of one that its page limit ended, are
        drained like any other. What was open is kept for UNDO_SECONDS: undo
        brings the run back as it was, running or paused, with what waited and what is still leased; late answers
        count, and a task whose lease ended meanwhile waits again, charged to nobody (with ack="auto" it stays
        cancelled). Undo is refused when that time is over, and while another run with the same key goes on.
        Finish needs open and outbox to be 0. However many lanes a run has, others wait for none of this.
        Repeating an action is harmless.
        An action that does not fit the state raises UsageError with a message saying why.
        Reviving dead letters of a finished run sets it back to running.
        """
        ...

    async def set_max_pages(self, run: int, max_pages: int) -> Run:
        """Give a run another page limit; 0 is none. One that its limit ended goes on with what was left.

        It is then as after an undo. What was left is kept for LIMIT_SECONDS. UsageError when it is gone, of a run
        that ended otherwise, where so many pages have ended already, and while another run with the same key goes
        on. An open run whose new limit is reached already ends with its next outcome, or when somebody reaps.
        """
        ...


class Flow(Protocol):
    """The way of tasks: in, out under a lease, and settled."""

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        """Add many, one answer per task. `paces` says what this run asks of lanes (default: Pace()).

        "rejected": the run does not take work (cancelled or finished). A duplicate within
        `tasks` is "known". A pace given once per (run, lane) stays; giving it again replaces it.
        New tasks get ascending ids in the order given, above all that the run has.
        Tasks of one run may ask for MAX_NEEDS_SETS combinations of capabilities; one more is a UsageError,
        and among found tasks (settle) a link skipped as "needs".
        "seen": the run has a seen-set, and another run has added this task to it (see SeenSets).
        """
        ...

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
        """Up to `limit` tasks from lanes that are due, under one new lease.

        serves: scraper names or run names this worker has the code for (None: all). A task that needs
        capabilities is handed out only where all of them are declared; to others it is not there: it costs
        their claims nothing, and next_in does not speak of it. Repeating a
        request_id returns what is still leased of its batch as long as the lease lives. Runs of higher priority
        come first, equals share by weight, and who had nothing to do catches up on 64 tasks at most, in a lane
        on 16; of a run's lanes that are due, those with urgent tasks; in a lane, higher bands, then age. So that
        nothing starves, every 16th pick of a (lane, run) takes its oldest task, and every 16th of a lane that
        runs of several priorities want the oldest of any of them.
        A batch comes in the order of start, run priority and band.
        A task with a lost worker comes alone in its claim. Tasks whose TTL ran out become dead ("expired") instead
        of being handed out. At most `max_pages` of a run are ever handed out and not returned; when so many have
        ended, done or dead, the rest is cancelled. A task of a built-in kind (core/task_kind.py: a sitemap) takes up
        a page only while it is leased: once it is done or dead it is counted `aside`, until it is revived, dropped
        or discarded. Of a run with MAX_OUTBOX_PER_RUN entries in its outbox nothing
        is handed out until some are acknowledged.
        A lane that was parked gives one task at a time, marked as a probe, until it is released.
        A lane that runs of other workers want too gives one slot at a time, to whom it gave least.
        Each task carries its slot: start_in ≤ SLOT_HORIZON seconds, at least `spacing` apart per lane.
        """
        ...

    async def push(
        self,
        run: int,
        tasks: Sequence[Task],
        worker: str,
        paces: Mapping[str, Pace] | None = None,
        *,
        lease: float = LEASE_SECONDS,
        capabilities: Collection[str] = (),
        request_id: str = "",
    ) -> PushResult:
        """Add tasks and lease them to a named worker in one step, ahead of what waits in their lanes.

        One answer per task, as in add, or "leased": it is in the claim, under a lease like any other. Only what is
        new is leased, in the order given; known tasks stay where they are. As in a claim, each takes a slot and a
        place of its lane and counts as a pick of its run and towards max_pages. What cannot be leased is "added"
        and waits for any claim: its lane has no slot within the horizon, no place, or is held or parked (a probe is
        a claim's); it is delayed, or needs more than `capabilities`; its run is paused, has no pages left or a full
        outbox. Repeating a request_id leases nothing more, and returns what is still leased of its batch as
        long as the lease lives; so does a claim of that worker with the same request_id.
        """
        ...

    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        """A slot of a lane for a request that is not a task. Creates the lane if it is new.

        A slot further away than `within` seconds is not taken. Such requests take slots but no
        place in flight: in_flight counts leased tasks only. Where the lane is known, the slower of
        its own spacing and the given one counts after this request, unless a person has overridden it.
        """
        ...

    async def extend(
        self, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
    ) -> ExtendResult:
        """Heartbeat. `leases` maps lease numbers to the tasks of it that were started by now."""
        ...

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        """Make outcomes true, each as a whole, all in one commit. Answers per outcome:

        ok       it is done now
        already  this very (task, lease) was settled before (remembered for two leases at least)
        stale    the lease is no longer valid: nothing of the outcome was kept
        away     the part of the queue that has the task is out of reach, others are not: ask again later

        done       records and entries of the outbox stored, found tasks added, acknowledged
        retry      back to ready, due in `after` seconds; one more attempt. With ack="auto" it is dead instead
        dead       a dead letter with cause, attempts and evidence
        released   back to ready in its old place, or due in `after` seconds; costs no attempt
        cancelled  ended without failure (refused by rule after all); `cause` says why
        part       only `found` and `skipped` are taken; the task stays leased. Fenced like all others.

        redirect_digest: if the run has seen that digest as another task, records, found and outbox are dropped
        and the task is done; else the digest is remembered as seen for this task.
        record_keys: likewise, record by record: one whose key the run has seen with another task is dropped, the
        others are stored and their keys remembered. Keys of a task without records (see above) are not.
        Found tasks and entries of a run that has ended are dropped; found tasks its seen-set has are skipped (SEEN).
        Entries beyond the limits above raise ValueError. Lane changes always count when ok.
        `paces` is for the lanes of found tasks, as in add.
        counters are added to those of the run where the answer is ok, but for part. Names that begin with
        "field." are about the records and are dropped with them. A run keeps the first MAX_COUNTER_NAMES
        names. A name of more than 100 letters and a number below 0 or above 2**53 raise ValueError.
        """
        ...

    async def reap(self, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
        """Give back expired leases, and at once all leases of workers known to be dead.

        dead_workers maps a worker to the tasks that were executing when it died: only those are
        charged. Of an expired lease the tasks reported as started by extend are charged, or all
        of them if it was never extended. A task with LOST_LIMIT charges is dead ("worker_lost").
        A task with ack="auto" is dead ("unacknowledged"): nobody knows whether it was done, and it comes once at most.
        Also ends tasks whose TTL ran out while waiting, and removes dead letters whose retention is over
        (NewRun.dead_retention, MIN_DEAD_RETENTION at least): they count as `discarded` from then on, stay known, and
        cannot be revived; find says that they were dead. Bounded work per call.
        Lanes that no run refers to any more, not even one that has ended, go LANE_KEPT_SECONDS after their last
        slot, a few per call; not where a pace was learnt, a person has set something, or the lane is held or parked.
        """
        ...

    async def wait(self, seconds: float) -> None:
        """Return when there may be new work, or after so many seconds at the latest. Only a hint:

        it may return for nothing, and may be late; whoever relies on it asks again anyway.
        """
        ...


class Inspect(Protocol):
    """Looking, which changes nothing, but for one thing: waiting tasks whose TTL ran out are dead at the next look at
    their run (stats, recount, list_tasks, find, dead_groups), also where nobody works; some thousands per look.
    """

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

    async def run_counters(self, run: int) -> dict[str, int]:
        """What outcomes have counted for the run, by name; exact, like stats."""
        ...

    async def orphans(self, run: int, limit: int = 20) -> list[int]:
        """Tasks the run has seen that are in no state at all. Only a damaged store has any.

        Tasks that went when their run was cancelled are not orphans.
        """
        ...

    async def list_tasks(
        self,
        run: int,
        *,
        state: State | None = None,
        where: TaskFilter = TaskFilter(),
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

    async def dead_groups(self, run: int, limit: int = 100) -> list[DeadLetterGroup]:
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

    async def now(self) -> int:
        """The store's clock, UTC microseconds."""
        ...


class Admin(Protocol):
    """What people and maintenance do to what is kept."""

    async def trim(self, run: int, upto: int) -> int:
        """Remove records up to this seq, which are safe elsewhere; says how many.

        They stay in the account as `records` and as `trimmed`, and no seq is given twice.
        """
        ...

    async def drop(
        self,
        run: int,
        where: TaskFilter = TaskFilter(),
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

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        """Dead letters back to ready, with fresh attempts; says how many, at most `limit`, the oldest first.

        Repeated until that is 0, all that match are back; what died again meanwhile comes back again.
        Under max_pages each gives back the page that it took, and comes before what else waits. Of a run that its
        limit ended, what was left and is still kept waits again, too: the limit will end it once more.
        """
        ...

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        """Remove ended runs (a given one, or those ended more than `older_than` seconds ago) whole.

        Workers that were silent for longer than `older_than` leave the registry. A large run goes in steps,
        so that others get their turn; where that was cut short, asking again goes on. Entries of its outbox
        that nobody has drained by then go with it.
        """
        ...

    async def diagnose(self) -> list[Finding]:
        """What a person should know about the server or file behind this queue."""
        ...


class SeenSets(Protocol):
    """Named seen-sets: what one run has had, no other run of the same set takes again.

    A run names its set when it is started. A task that is new to the run and to the set is added to both in
    one step; what the set has already is "seen", unless it is to be revisited. The run's own tasks are
    "known" as ever, however often they are added. A task is in the set from its admission on, whatever
    becomes of it, and for `seen_for` seconds, to the hour. Sets outlive their runs.
    """

    async def seen_sets(self) -> list[SeenSet]:
        """All of them, by name."""
        ...

    async def forget_seen(self, name: str, digests: Sequence[bytes]) -> int:
        """Take tasks out of a set; says how many were in it. Runs that have them still know them."""
        ...

    async def clear_seen(self, name: str) -> int:
        """Empty a set at once, and remove it; says how many were in it. An open run of it begins it anew."""
        ...


class PageStates(Protocol):
    """What a run remembers of its pages, so that a later run can tell what has changed. It goes with the run.

    It is saved before the outcome it belongs to. Where that outcome then does not count, the page is tried again, and
    what is saved then takes the place of it.
    """

    async def save_page_states(self, run: int, states: Sequence[PageState]) -> None:
        """Save them, each in place of what its task had; of a run that is gone, nothing is saved.

        More than MAX_PAGE_STATES, one above MAX_PAGE_STATE_BYTES and tasks of another run raise ValueError.
        """
        ...

    async def page_states(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
    ) -> list[PageState]:
        """By ascending task, starting after `after`; with `tasks`, only those of these tasks.

        whole: with their bodies; then an answer holds MAX_WHOLE_PAGE_STATES at most.
        """
        ...


class Failures(Protocol):
    """How often URLs failed for good, over all runs, and how; see core/failing.py.

    Whatever makes a dead letter (settle, a lost worker, a TTL that ran out) counts one failure of its URL, in the same
    commit; importing one does not. A task of that URL that is done forgets all of them, and so does reviving a dead
    letter. Typed tasks and requests that send something (another method than GET, or a body) count for nothing and
    forget nothing. Counts outlive their runs and dead letters: for KEPT_SECONDS after the last failure, and
    as long as it is one of the last MAX_REMEMBERED of the queue; what is beyond goes with reap.
    """

    async def failures(self, urls: Sequence[str]) -> list[UrlFailures]:
        """What is remembered of these URLs, in the same order; a count of 0 where that is nothing."""
        ...

    async def forget_failures(self, urls: Sequence[str] | None = None) -> int:
        """Forget those of these URLs, or all; says of how many URLs."""
        ...


class Cache(Protocol):
    """Responses that runs share, by key. A cache is never relied on: whatever is in it may be gone the next moment.

    It is bounded in bytes and age: what was put first goes first, at a cost that does not grow with what is in it.
    """

    async def cache_get(self, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
        """The entries with these keys, in the same order; without `bodies`, what is known of them.

        Nothing is there for longer than CACHE_KEPT_SECONDS. See also MAX_CACHE_KEYS and MAX_CACHE_BODIES.
        """
        ...

    async def cache_put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        """Put a response in place of what its key had, as the newest; the oldest go until all take at most `max_bytes`.

        An entry counts for its data, URL, host and CACHE_ENTRY_BYTES. One above a CACHE_SHARE-th of the bound is
        not taken: False, and what its key had is gone.
        """
        ...

    async def cache_list(self, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
        """Newest first, without data; `before`: only those with a lower seq."""
        ...

    async def cache_clear(self, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
        """Remove entries: of a host, with these keys, or all. Says how many, at most `limit`; repeat until it is 0."""
        ...

    async def cache_stats(self) -> CacheStats: ...


class Outbox(Protocol):
    """What settled tasks left to be done elsewhere, by kind; see also MAX_OUTBOX_PER_RUN."""

    async def outbox(self, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
        """The entries of a kind, of all runs, in the order of settling, starting after `after`.

        One that was settled at the same time may show up behind: whoever reads from 0 again misses none.
        """
        ...

    async def acknowledge(self, seqs: Collection[int]) -> int:
        """Remove entries that were done; says how many there were. Repeating it is harmless."""
        ...


class Move(Protocol):
    """A run on its way to another queue."""

    async def export_run(self, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
        """Everything the run has seen, by ascending number, starting after `after`; leased counts as ready.

        Only of a run that is paused or ended and whose outbox is drained, so that it is one state of it.
        """
        ...

    async def import_run(
        self,
        run: int,
        tasks: Sequence[ExportedTask],
        records: Sequence[StoredRecord] = (),
        *,
        paces: Mapping[str, Pace] | None = None,
        counts: Stats | None = None,
        counters: Mapping[str, int] | None = None,
    ) -> None:
        """Import what another queue exported, into a run that is paused. Repeating it is harmless.

        Numbers of tasks and of records (`seq`) stay as they are, new ones come after them; a record's
        task is its number. `counts` sets what cannot be counted: retries, lost, stale, bytes, skipped
        and trimmed; `counters` sets run_counters. A digest may be cut to its first SHORT_DIGEST bytes: the task
        is known by these then. The tasks join the run's seen-set, whoever has had them there.
        """
        ...


class Documents(Protocol):
    """Texts that workers share, by kind, name and version."""

    async def save_document(self, kind: str, name: str, text: str) -> Document:
        """Save a document; a text that differs from the newest version becomes the next one."""
        ...

    async def document(self, kind: str, name: str, version: int = 0) -> Document | None:
        """One version of a document; 0 is the newest."""
        ...

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        """Replace a document if its newest version is still `expected` (0: there is none), else None.

        Earlier versions are not kept. A text of None removes the document; its answer is the one removed.
        The first version of a document made here is the store's clock: made again after it was removed,
        it has no version that somebody may still hold.
        """
        ...

    async def documents(self, kind: str) -> list[Document]:
        """The newest version of every document of a kind, by name."""
        ...


class Registry(Protocol):
    """Lanes and workers, as they are known to all."""

    async def lanes(
        self,
        *,
        run: int | None = None,
        limit: int = 100,
        order: Literal["ready", "name"] = "ready",
        after: str = "",
        like: str = "",
        only: Literal["", "parked", "held", "overridden"] = "",
        names: Collection[str] = (),
    ) -> list[LaneState]:
        """Lanes with the most ready work first. With a run: its lanes, and its own ready work.

        order="name" is for paging: by the bytes of the name, after this one. `like` is a part of it.
        `only`: parked; held (no request before held_until, parked included); overridden
        (a person set its pace or limit). `names`: just these. Filters hold together.
        Thousands of lanes make no first page slow.
        """
        ...

    async def set_lane(self, change: LaneChange) -> None: ...

    async def register(self, status: WorkerStatus) -> str:
        """Worker heartbeat in the registry: creates or updates. Answers what a person asked of this worker.

        seen_at, leased and command are the queue's own to say, whatever the status says. Counters longer than
        MAX_COUNTERS_BYTES are dropped; the rest of the status counts.
        """
        ...

    async def command_worker(self, worker: str, command: Literal["drain", "pause", ""]) -> bool:
        """Set the command that a worker gets with its next heartbeat; False: there is no such worker."""
        ...

    async def workers(self) -> list[WorkerStatus]: ...

    async def forget_worker(self, worker: str) -> None: ...


class Queue(
    Runs, Flow, Inspect, Admin, SeenSets, PageStates, Failures, Cache, Outbox, Move, Documents, Registry, Protocol
):
    """The whole contract. Whoever needs one group of verbs asks for that group."""

    promises: Promises

    async def close(self) -> None: ...
