"""What the verbs of a queue take and give, beyond the tasks, runs and lanes of shoal.core."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.core.task import Ack, Admission, Attempt, Claim, State

RunAction = Literal["pause", "resume", "cancel", "undo", "finish"]


class Promises(msgspec.Struct, frozen=True):
    """What a backend keeps, and the reason where it does not. Printed by `shoal doctor`."""

    durable: str  # what survives power loss
    steps_clock: bool  # its clock can be stepped in tests
    shared: str  # who can share it
    apart: str = ""  # why numbers, priorities and shares of runs hold only within a part of it, if so


class ExtendResult(msgspec.Struct, frozen=True):
    lost: frozenset[int] = frozenset()  # lease numbers that are no longer this worker's
    cancelled: frozenset[int] = frozenset()  # tasks that need not be finished


class ReapResult(msgspec.Struct, frozen=True):
    returned: int = 0  # tasks back to ready
    dead: int = 0  # tasks given up: worker_lost
    expired: int = 0  # tasks whose TTL ran out while they waited


class PushResult(msgspec.Struct, frozen=True):
    answers: tuple[Admission | Literal["leased"], ...] = ()  # one per task
    claim: Claim = Claim(0)  # what was leased


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
    needs: tuple[str, ...] = ()  # likewise
    ack: Ack = "manual"  # of a leased task
    expires_at: int = 0  # likewise: when its TTL runs out; 0 is never


class TaskFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter over tasks. Empty fields match everything."""

    lane: str = ""
    cause: str = ""  # exact, or a prefix ending in "*": "http.5*"
    url: str = ""  # exact, or a glob with "*"
    ids: tuple[int, ...] = ()


class DeadLetterGroup(msgspec.Struct, frozen=True):
    lane: str
    cause: str
    count: int
    sample: str  # one URL
    message: str
    first_at: int
    last_at: int


class Document(msgspec.Struct, frozen=True):
    """A document that workers share, such as a template. Kept ones count from 1; see also swap."""

    kind: str
    name: str
    version: int
    text: str
    made_at: int


class SeenSet(msgspec.Struct, frozen=True):
    """A named seen-set, as people look at it."""

    name: str
    entries: int
    bytes: int  # about what it takes
    seen_for: float  # seconds for which a task is remembered; 0: for ever
    created_at: int
    changed_at: int  # when a task was last added to it


class UrlFailures(msgspec.Struct, frozen=True):
    """How often a URL failed for good in all runs, since it last went well."""

    count: int = 0
    causes: dict[str, int] = {}  # the most frequent may not be the last
    last_at: int = 0


class NewCacheEntry(msgspec.Struct, frozen=True, gc=False):
    """A response to be put into the cache; to the queue its data is opaque."""

    key: bytes  # what the request is known by
    host: str
    url: str
    data: bytes
    fresh_for: float = 0.0  # seconds for which it is fresh by its own headers


class CacheEntry(msgspec.Struct, frozen=True, gc=False):
    """A response in the cache. `age` is seconds since it was put there, by the store's clock."""

    seq: int  # grows with every put
    key: bytes
    host: str
    url: str
    age: float
    fresh_for: float
    size: int  # what counts towards the bound
    data: bytes = b""


class CacheStats(msgspec.Struct, frozen=True):
    entries: int
    bytes: int
    oldest: float = 0.0  # seconds since the oldest was put there


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    seq: int  # grows in the order of settling, within a run
    task: int
    data: bytes  # one JSON object


class PageState(msgspec.Struct, frozen=True, gc=False):
    """What a run remembers of one page; to a queue these are bytes. What is in them: shoal.core.page_memory."""

    task: int
    head: bytes
    body: bytes = b""  # left out where only heads were asked for


class StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the outbox that waits to be drained."""

    seq: int  # grows in the order of settling, within the queue
    run: int
    kind: str
    key: str
    data: bytes


class Finding(msgspec.Struct, frozen=True):
    """What a check-up found, with what to do about it."""

    what: str  # a few words: "version", "eviction"
    level: Literal["ok", "note", "warning", "wrong"]
    words: str
    fix: str = ""
