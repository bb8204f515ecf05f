"""Models: what may be sent to the API, and what its description says comes back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

LINE = r"^[^\x00-\x1f\x7f]*$"  # one line of text, without anything that terminals or databases stumble over
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
MOST_URLS = 10_000
BIGGEST = 2**63 - 1

Line = Annotated[str, StringConstraints(max_length=500, pattern=LINE)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Address = Annotated[str, StringConstraints(min_length=1, max_length=8_192)]
Seconds = Annotated[float, Field(ge=0, le=10 * 365 * 86_400, allow_inf_nan=False)]

RunName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=LINE, description="Its name, the beginning or end of it.")
]
TaskId = Annotated[int, Path(ge=1, le=BIGGEST)]
HostName = Annotated[str, Path(min_length=1, max_length=300, pattern=LINE)]
WorkerName = Annotated[str, Path(min_length=1, max_length=300, pattern=LINE)]
DocumentName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]

Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]
Cursor = Annotated[
    str, Query(max_length=500, description="`next` of the page before; empty for the first page.")
]
Word = Annotated[str, Query(max_length=500, pattern=LINE)]

Event = Literal["finished", "failed", "cancelled", "stalled"]
RunStateName = Literal["running", "paused", "finished", "cancelled"]
TaskStateName = Literal["ready", "delayed", "leased", "done", "dead", "cancelled"]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Filter(Body):
    """Which tasks. Empty fields match everything, and then `all` must say that this is meant."""

    host: Line = Field("", description="Exactly this host.")
    cause: Line = Field("", description='Exact, or a beginning with a star: "http.5*".')
    url: Annotated[str, StringConstraints(max_length=8_192, pattern=LINE)] = Field(
        "", description="Exact, or with stars."
    )
    ids: list[Annotated[int, Field(ge=1, le=BIGGEST)]] = Field(default_factory=list, max_length=1000)
    all: bool = Field(False, description="All of the run, where nothing else is given.")
    dry_run: bool = Field(False, description="Only say how many there are.")


class DropFilter(Filter):
    state: Literal["ready", "dead"] = Field(
        "ready", description="What waits (delayed, too), or dead letters."
    )


class Parking(Body):
    seconds: Annotated[float, Field(gt=0, le=10 * 365 * 86_400, allow_inf_nan=False)] | None = Field(
        None, description="Until it is released unless given."
    )
    reason: Line = "parked by hand"


class Pacing(Body):
    """What a person decides about a host, in place of what runs ask for. Only what is given changes."""

    delay: Seconds | None = Field(None, description="Seconds between two requests; 0 is no limit.")
    rate: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="Requests per second; the same said the other way."
    )
    in_flight: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Requests under way at once; 0 is no limit."
    )
    reset: bool = Field(False, description="Take back what was set: runs decide again.")


class Many(Body):
    """Which hosts or workers."""

    like: Line = Field("", description="A part of the name; for workers its beginning.")
    all: bool = Field(False, description="All of them, where nothing else is given.")
    dry_run: bool = Field(False, description="Only say which they are.")


class HostFilter(Body):
    """Which hosts. Filters hold together; without any, `all` must say that all are meant."""

    like: Line = Field("", description="A part of the name.")
    only: Literal["", "parked", "held", "ruled"] = Field(
        "", description="Parked; held back, too; or with a pace that a person set."
    )
    hosts: list[Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=LINE)]] = Field(
        default_factory=list, max_length=200, description="Just these."
    )
    all: bool = Field(False, description="All of them, where nothing else is given.")
    dry_run: bool = Field(False, description="Only say which they are, and how many.")
    after: Annotated[str, StringConstraints(max_length=300, pattern=LINE)] = Field(
        "", description="`next` of the answer before, which did not come to the end."
    )


class ParkHosts(HostFilter, Parking):
    pass


class PaceHosts(HostFilter, Pacing):
    pass


class RunsAction(Body):
    """The same for many runs: those named, or all that match."""

    action: Literal["pause", "resume", "cancel"]
    runs: list[Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=LINE)]] = Field(
        default_factory=list, max_length=500
    )
    scraper: Line = ""
    state: Literal["", "running", "paused"] = ""
    all: bool = Field(False, description="All that have not ended, where nothing else is given.")
    dry_run: bool = False


class NewHook(Body):
    url: Address
    events: list[Event] = Field(
        default=["finished", "failed", "cancelled"],
        min_length=1,
        max_length=4,
        description="`stalled`: it has work, and none of it has ended for a while.",
    )
    stalled_after: Annotated[float, Field(ge=10, le=7 * 86_400, allow_inf_nan=False)] = Field(
        600, description="Seconds without any end until a run counts as stalled."
    )
    secret: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        "", description="The name of one of the server's secrets. Without it one is made, and shown once."
    )


class NewFleetHook(NewHook):
    scraper: Line = Field("", description="Only runs of this scraper.")


Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Value = bool | Whole | Number | Line | Annotated[list[Line], Field(max_length=100)]


class NewRun(Body):
    """What to fetch, and what to take from it: a scraper's code, a kept template, or fields in short form."""

    scraper: Name | None = Field(None, description="A scraper that workers have the code of.")
    template: Name | None = Field(None, description="A template that is kept here.")
    template_version: Annotated[int, Field(ge=1, le=BIGGEST)] | None = None
    fields: dict[Line, Line] = Field(
        default_factory=dict, max_length=200, description='As in `shoal run -f`: {"title": "h1::text"}.'
    )
    urls: list[Address] = Field(default_factory=list, max_length=MOST_URLS)
    settings: dict[Line, Value] = Field(
        default_factory=dict, max_length=100, description='Of the run, as flags are: {"rate": 2}.'
    )
    name: Name | None = Field(None, description="What a run with fields is called in lists.")
    key: Line | None = Field(None, description="A run with this key that has not ended is gone on with.")
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    weight: Annotated[int, Field(ge=1, le=1_000)] = Field(1, description="Its share beside other runs.")
    hooks: list[NewHook] = Field(default_factory=list, max_length=10)
    more: bool = Field(False, description="Addresses follow: POST /api/v1/runs/{run}/tasks.")
    here: bool = Field(False, description="Done by this server's own processes, not by the fleet's workers.")


# What comes back: for the description. New keys may come, none goes.


class Given(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemDocument(Given):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    instance: str | None = None


class Page(BaseModel):
    """One page of a list. A page may be empty although others follow."""

    items: list[dict[str, Any]]
    next: str | None = Field(description="The cursor of the page that follows; null at the end.")


class RunDocument(Given):
    name: str
    scraper: str
    state: RunStateName
    created_at: str | None
    finished_at: str | None
    seen: int
    done: int
    dead: int
    cancelled: int
    open: int
    ready: int
    leased: int
    records: int


class StatusDocument(RunDocument):
    standing: str
    pages_per_second: float | None
    seconds_left: float | None
    limits: list[dict[str, Any]]


class TaskDocument(Given):
    id: int | None
    run: str
    url: str
    state: str
    reason: str
    attempts: list[dict[str, Any]]


class HostDocument(Given):
    name: str
    spacing: float
    ready: int
    in_flight: int
    parked: bool


class WorkerDocument(Given):
    id: str
    name: str
    host: str
    state: str


class Counted(Given):
    """How many tasks; `more`: there are others, and asking again goes on."""

    run: str
    count: int
    more: bool
    dry_run: bool


class Hosts(Given):
    """Which hosts, and how many; `next`: there are others, to be asked for with `after`."""

    names: list[str] = Field(description="The first thousand.")
    count: int
    more: bool
    next: str | None
    dry_run: bool


class Names(Given):
    names: list[str]
    dry_run: bool


class Submitted(Given):
    run: str
    status: Literal["submitted", "continued", "finished", "cancelled"]
    added: int
    known: int
    rejected: int


class Added(Given):
    run: str
    read: int
    added: int
    known: int
    rejected: int
    rejects: list[dict[str, Any]] = Field(description="The first hundred, each with the reason.")
    last: bool


class TemplateDocument(Given):
    name: str
    version: int
    template: dict[str, Any]


class ScheduleDocument(Given):
    name: str
    cron: str
    paused: bool


class HookDocument(Given):
    id: str
    url: str
    events: list[str]


_WORDS = {
    400: "Not understood",
    401: "No token, or a wrong one",
    403: "The token may not do this",
    404: "There is no such thing",
    409: "It does not fit the state it is in",
    413: "Too large",
    415: "Another kind of content is expected",
    422: "A value is wrong",
    429: "Too much at once; Retry-After says when to ask again",
    503: "The queue does not answer",
    507: "No room left where the queue is kept",
}
_USUAL = (400, 401, 403, 413, 422, 429, 503, 507)


def described(
    model: type[BaseModel], *others: int, status: int = 200, words: str = ""
) -> dict[int | str, Any]:
    """The responses of an operation: what comes when it goes well, and every way in which it may not."""
    said: dict[int | str, Any] = {status: {"model": model} | ({"description": words} if words else {})}
    return said | problems(*others)


def problems(*others: int) -> dict[int | str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        number: {"description": _WORDS[number], "content": content, "model": ProblemDocument}
        for number in sorted({*_USUAL, *others})
    }
