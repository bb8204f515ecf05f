"""Task: one piece of work, from being found to being settled.

States: ready -> leased -> done | dead | cancelled. A retry is leased -> ready with a later due
time; a release is leased -> ready that costs no attempt; a revived dead letter is dead -> ready.
Absolute times are UTC microseconds (`…_at`); durations are seconds.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

State = Literal["ready", "delayed", "leased", "done", "dead", "cancelled"]
Result = Literal["done", "retry", "dead", "released", "cancelled", "part"]
Verdict = Literal["ok", "already", "stale", "away"]
Admission = Literal["added", "known", "seen", "rejected"]
Ack = Literal["manual", "auto"]
Fetch = Literal["", "http", "browser", "auto"]  # with what a page is fetched; "": as somebody else says

BANDS = 8
REVIVED = "revived"  # the cause that marks, in a task's history, where a person gave it a fresh start
SEEN = "seen"  # the reason for which a found link is skipped that another run of the same seen-set has had
DROPPED = "dropped"  # the cause of a task that a person gave up
DISCARDED = "discarded"  # the cause of a dead letter that was removed when its retention was over
GARBLED = "garbled"  # the cause of a task of which the queue keeps what nobody can read
UNACKNOWLEDGED = "unacknowledged"  # the cause of an auto-acknowledged task whose lease ended before it was settled
UNACKNOWLEDGED_MESSAGE = "its lease ended before it was settled, and it is handed out once at most"
SHORT_DIGEST = 10  # bytes of a digest that every queue keeps; some keep no more
ISOLATED = -1  # the band of a task that has lost a worker: it is claimed by itself, before all others


def band(priority: int) -> int:
    """Map any integer priority to one of eight bands; 0 is handed out first."""
    if priority > 0:
        return 0 if priority >= 100 else 1 if priority >= 10 else 2 if priority >= 3 else 5 - priority
    return 5 if priority == 0 else 6 if priority > -10 else 7


def digest(request: str) -> bytes:
    """The identity of a canonical request: the first 16 bytes of its SHA-256."""
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).digest()[:16]


def built_in_digest(kind: str, request: bytes) -> bytes:
    """The identity of a task of a built-in kind: not that of the page at its URL, whose digest is given."""
    return digest(f"{kind} {request.hex()}")


class RequestOptions(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a task's URL is requested where a plain GET will not do."""

    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    session: str = ""  # cookies are kept apart by this name
    proxy: str = ""  # the name of a secret: URLs with passwords are not kept in queues
    auth: str = ""  # the name of a secret
    exit: str = ""  # by which it leaves, if not the usual way; not part of its identity
    rule_session: str = ""  # likewise, where `session` is empty, as a route says: not part of its identity
    again: int = 0  # not 0: asked for although the run has had it; how many pages in a row were
    cache: float = 0.0  # seconds for which a stored response will do; not part of its identity
    fetch: Fetch = ""  # with what it is fetched; not part of its identity
    steps: tuple[str, ...] = ()  # what a browser does on the page, as in core/browser_step.py
    on_block: str = ""  # as in core/block_rule.py; "": as the run says; not part of its identity

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain page at its URL, whatever routes have added."""
        plain = msgspec.structs.replace(self, rule_session="", cache=0.0, fetch="", exit="", on_block="")
        return plain == RequestOptions()


def is_plain(options: RequestOptions | None) -> bool:
    """Whether it is the plain page at a URL that is asked for."""
    return options is None or options.is_plain


class Task(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Work to be added. `lane` is the host, or host@exit (core/lane.py); or a synthetic lane for work without one."""

    url: str
    lane: str
    digest: bytes
    kind: str = "page"
    priority: int = 0
    depth: int = 0
    parent: int | None = None  # id of the task that found it; None for a start URL
    meta: dict[str, Any] | None = None  # travels to the handler as page.meta; JSON values only
    delay: float = 0.0
    ttl: float | None = None
    request_options: RequestOptions | None = None
    # manual: at least once, until it is settled. auto: at most once; whatever goes wrong, it is never tried again.
    ack: Ack = "manual"
    needs: tuple[str, ...] = ()  # capabilities, such as "browser"; only a worker that declares all of them gets it
    revisit: bool = False  # added although its run's seen-set has it


class LeasedTask(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A task as a worker holds it: (id, lease) is what every later word about it must repeat."""

    id: int
    lease: int
    run: int
    lane: str
    url: str
    kind: str = "page"
    priority: int = 0
    depth: int = 0
    parent: int | None = None
    meta: dict[str, Any] | None = None
    attempts: int = 0  # finished attempts before this one
    lost: int = 0  # workers that died with it
    start_in: float = 0.0  # its reserved slot, in seconds after the claim
    spacing: float = 0.0  # the lane's spacing when claimed; 0 means its requests need no slots
    failures: dict[str, int] | None = None  # earlier failures by cause, for the retry policy
    request_options: RequestOptions | None = None
    probe: int = 0  # not 0: its lane was parked so often in a row, and this request is to find out
    ack: Ack = "manual"
    needs: tuple[str, ...] = ()
    garbled: str = ""  # not empty: what of it cannot be read; it cannot be worked on
    expires_at: int = 0  # when its TTL runs out; 0: never


class Claim(msgspec.Struct, frozen=True):
    lease: int  # 0 when nothing was handed out
    tasks: tuple[LeasedTask, ...] = ()
    next_in: float | None = None  # seconds until a lane comes due; None if nothing waits for time


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What happened the last time a task was tried; kept for `shoal why` and dead letters."""

    at: int
    worker: str
    cause: str = ""  # empty when it went well
    message: str = ""
    status: int = 0
    seconds: float = 0.0
    size: int = 0


class LaneChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What an answer taught about a host. Every field is optional and only what is set changes."""

    lane: str
    hold_for: float | None = None  # no request to this lane for so many seconds (Retry-After)
    spacing: float | None = None  # learned spacing (Crawl-delay, slow-down); 0 forgets it
    park_for: float | None = None  # a hold, after which one request at a time goes out until 0 releases it
    reason: str = ""
    # Spacing set by a person, in place of all others; below 0 takes it back.
    spacing_override: float | None = None
    limit: int | None = None  # requests at once set by a person, in place of all others; below 0 likewise


class ExportedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task as it is moved from one queue to another. Its number within its run is the same in both."""

    number: int
    task: Task  # with `delay` and `ttl` as what is left of them, and `parent` as a number within the run
    # seen: only its identity is left; discarded: likewise, of a dead letter
    state: Literal["ready", "done", "dead", "cancelled", "seen", "discarded"]
    attempts: int = 0
    lost: int = 0
    added_at: int = 0
    finished_at: int = 0
    cause: str = ""
    history: tuple[Attempt, ...] = ()
    evidence: dict[str, Any] | None = None
    first_record: int = 0  # the seq of its first record; the others follow one another. 0: it has none
    records: int = 0
    aliases: tuple[bytes, ...] = ()  # other digests of this task: where its redirects led


class OutboxEntry(msgspec.Struct, frozen=True, gc=False):
    """What a settled task wants done elsewhere. `key` is what makes doing it twice harmless."""

    kind: str  # who drains it
    key: str
    data: bytes


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one leased task; `settle` makes all of it true in one step, or none."""

    task: int
    lease: int
    result: Result
    attempt: Attempt | None = None
    after: float = 0.0  # with retry and released: seconds until it is due
    cause: str = ""  # with retry, dead, cancelled
    evidence: dict[str, Any] | None = None  # with dead: what a person needs to judge it
    records: tuple[bytes, ...] = ()  # each one JSON object
    record_keys: tuple[bytes, ...] = ()  # empty, or a digest for each record; b"" where it has none (see Queue.settle)
    found: tuple[Task, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # (reason, url) of links refused by rule
    lanes: tuple[LaneChange, ...] = ()
    redirect_digest: bytes | None = None  # digest of the URL that a redirect led to (see Queue.settle)
    outbox: tuple[OutboxEntry, ...] = ()  # with done
    counters: dict[str, int] = {}  # sums for its run, by name; see shoal.core.run_counters


def failures(history: Iterable[Attempt]) -> dict[str, int]:
    """How often each cause made a task fail, since a person last gave it a fresh start."""
    counted: Counter[str] = Counter()
    for attempt in history:
        if attempt.cause == REVIVED:
            counted.clear()
        elif attempt.cause:
            counted[attempt.cause] += 1
    return dict(counted)
