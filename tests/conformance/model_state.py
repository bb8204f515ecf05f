"""The nouns of the model: plain mutable values, nothing counted that can be scanned."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shoal.core.lane import Pace
from shoal.core.run import Run, RunState
from shoal.core.task import ISOLATED, SHORT_DIGEST, Attempt, State, Task, band
from shoal.queue.base import MAX_OUTBOX_PER_RUN, PageState, StoredEntry, StoredRecord

ENDED = ("cancelled", "finished")


def identity(digest: bytes) -> bytes:
    """What every queue keeps of a digest."""
    return digest[:SHORT_DIGEST]


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


@dataclass
class ModelRun:
    run: Run
    numbers: int = 0  # of the last task added
    retries: int = 0
    lost: int = 0
    stale: int = 0
    bytes: int = 0
    turn: float = 0.0  # virtual time of the weighted share
    picks: Counter[str] = field(default_factory=Counter)  # by lane
    skipped: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[str, str]] = field(default_factory=list)
    records: list[StoredRecord] = field(default_factory=list)
    last_record: int = 0  # seq
    needs_sets: list[tuple[str, ...]] = field(default_factory=list)  # combinations that its tasks ever asked for
    undo_until: int = 0  # 0: there is no cancel to undo
    before_cancel: RunState = "running"
    trimmed: int = 0
    page_states: dict[int, PageState] = field(default_factory=dict)  # by task
    counters: dict[str, int] = field(default_factory=dict)
    entries: list[StoredEntry] = field(default_factory=list)  # that nobody has acknowledged

    @property
    def outbox_is_full(self) -> bool:
        return len(self.entries) >= MAX_OUTBOX_PER_RUN

    @property
    def takes_work(self) -> bool:
        return self.run.state not in ENDED


@dataclass
class ModelTask:
    id: int
    run: int
    task: Task
    added_at: int
    due_at: int
    expires_at: int | None
    state: State = "ready"  # "delayed" is ready with a later due time
    kept: State | None = None  # cancelled with its run: what it was, and is again when that is undone
    attempts: int = 0
    lost: int = 0
    lease: int = 0  # the last one it was handed out under
    finished_at: int = 0
    cause: str = ""
    first_record: int = 0
    records: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    history: list[Attempt] = field(default_factory=list)
    evidence: dict[str, object] | None = None
    bare: bool = False  # only its identity is left
    comes_first: bool = False  # it was revived under a page limit
    any_band: bool = False  # and later without one: it may come first, or not

    @property
    def band(self) -> int:
        return ISOLATED if self.lost else 0 if self.comes_first else band(self.task.priority)

    def is_expired(self, now: int) -> bool:
        return self.state == "ready" and self.expires_at is not None and self.expires_at <= now

    def shown(self, now: int) -> State:
        return "delayed" if self.state == "ready" and self.due_at > now else self.state


@dataclass
class ModelLane:
    name: str
    next_at: int = 0
    booked: float = 0.0  # the spacing it was first reserved with, before any run asked something of it
    last_slot: int = 0  # the last one given
    excused: bool = False  # the clock stepped back: a lane without spacing of its own may forget its next slot
    learned: float = 0.0
    held_until: int = 0
    parked: int = 0  # times in a row; while held it is shown to people as parked
    reason: str = ""
    asks: dict[int, Pace] = field(default_factory=dict)  # by run
    spacing_override: float = -1.0  # what a person set; below 0: nothing
    limit: int = -1
    given: int = 0  # tasks ever handed out

    def first_slot(self, now: int) -> int:
        """When the next request may start at the earliest."""
        return max(now, self.next_at, self.held_until)

    def earliest_slot(self, now: int) -> int:
        """When it may start if all that is excused is made use of."""
        return max(now, self.held_until) if self.excused else self.first_slot(now)


@dataclass
class ModelLease:
    number: int
    worker: str
    until: int
    span: float
    request_id: str
    slots: dict[int, int] = field(default_factory=dict)  # tasks still under it, and when they may start
    started: set[int] = field(default_factory=set)
    extended: bool = False
