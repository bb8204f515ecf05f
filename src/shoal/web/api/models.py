"""Models of the API: what requests may send, and what the description says they get back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shoal.core.units import MAX_SECONDS

# One line of text, without anything that terminals or databases stumble over.
LINE_PATTERN = r"^[^\x00-\x1f\x7f]*$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
MAX_URLS = 10_000
MAX_ID = 2**63 - 1
MIN_RATE = 1 / MAX_SECONDS

Line = Annotated[str, StringConstraints(max_length=500, pattern=LINE_PATTERN)]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
UrlText = Annotated[str, StringConstraints(min_length=1, max_length=8_192)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]

RunName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=LINE_PATTERN, description="Its name, or a prefix or suffix of it.")
]
TaskId = Annotated[int, Path(ge=1, le=MAX_ID)]
HostName = Annotated[str, Path(min_length=1, max_length=300, pattern=LINE_PATTERN)]
BlockPageName = Annotated[str, Path(pattern="^[0-9a-f]{8}$")]
WorkerName = Annotated[str, Path(min_length=1, max_length=300, pattern=LINE_PATTERN)]
DocumentName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[str, Query(max_length=500, description="`next` of the previous page; empty for the first page.")]
TextQuery = Annotated[str, Query(max_length=500, pattern=LINE_PATTERN)]

HookEvent = Literal["finished", "failed", "cancelled", "stalled"]
RunStateName = Literal["running", "paused", "finished", "cancelled"]
TaskStateName = Literal["ready", "delayed", "leased", "done", "dead", "cancelled"]


def line_query(max_length: int, description: str) -> Any:
    return Query(max_length=max_length, pattern=LINE_PATTERN, description=description)


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TaskSelection(RequestBody):
    """Which tasks. Empty fields match everything, and then `all` must say that this is meant."""

    host: Line = Field("", description="Exactly this host.")
    cause: Line = Field("", description='Exact, or a prefix with a star: "http.5*".')
    url: Annotated[str, StringConstraints(max_length=8_192, pattern=LINE_PATTERN)] = Field(
        "", description="Exact, or with stars."
    )
    ids: list[Annotated[int, Field(ge=1, le=MAX_ID)]] = Field(default_factory=list, max_length=1000)
    all: bool = Field(False, description="All of the run, if nothing else is given.")
    dry_run: bool = Field(False, description="Only count them.")


class DropSelection(TaskSelection):
    state: Literal["ready", "dead"] = Field("ready", description="Waiting tasks (delayed included), or dead letters.")


class ParkRequest(RequestBody):
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)] | None = Field(
        None, description="Default: until it is released."
    )
    reason: Line = "parked by hand"


class PaceRequest(RequestBody):
    """What a person decides about a host, in place of what runs ask for. Only what is given changes."""

    delay: Seconds | None = Field(None, description="Seconds between two requests; 0 is no limit.")
    rate: Annotated[float, Field(ge=MIN_RATE, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="Requests per second; instead of delay."
    )
    in_flight: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Requests in flight at once; 0 is no limit."
    )
    reset: bool = Field(False, description="Remove the override: runs decide again.")


class WorkerSelection(RequestBody):
    """Which hosts or workers."""

    like: Line = Field("", description="A part of the name; for workers a prefix.")
    all: bool = Field(False, description="All of them, if nothing else is given.")
    dry_run: bool = Field(False, description="Only list them.")


class HostSelection(RequestBody):
    """Which hosts. Filters hold together; without any, `all` must say that all are meant."""

    like: Line = Field("", description="A part of the name.")
    only: Literal["", "parked", "held", "overridden"] = Field(
        "", description="Parked; held (parked included); or with limits set by a person."
    )
    hosts: list[Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=LINE_PATTERN)]] = Field(
        default_factory=list, max_length=200, description="Just these."
    )
    all: bool = Field(False, description="All of them, if nothing else is given.")
    dry_run: bool = Field(False, description="Only list and count them.")
    after: Annotated[str, StringConstraints(max_length=300, pattern=LINE_PATTERN)] = Field(
        "", description="`next` of the previous response, if there was more."
    )


class ParkHostsRequest(HostSelection, ParkRequest):
    pass


class PaceHostsRequest(HostSelection, PaceRequest):
    pass


class RunsActionRequest(RequestBody):
    """The same for many runs: those named, or all that match."""

    action: Literal["pause", "resume", "cancel"]
    runs: list[Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=LINE_PATTERN)]] = Field(
        default_factory=list, max_length=500
    )
    scraper: Line = ""
    state: Literal["", "running", "paused"] = ""
    all: bool = Field(False, description="All unfinished ones, if nothing else is given.")
    dry_run: bool = False


class NewHook(RequestBody):
    url: UrlText
    events: list[HookEvent] = Field(
        default=["finished", "failed", "cancelled"],
        min_length=1,
        max_length=4,
        description="`stalled`: it has work, and none of it has finished for a while.",
    )
    stalled_after: Annotated[float, Field(ge=10, le=7 * 86_400, allow_inf_nan=False)] = Field(
        600, description="Seconds without progress until a run counts as stalled."
    )
    secret: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        "", description="The name of one of the server's secrets. Without it, one is created and shown once."
    )


class NewFleetHook(NewHook):
    scraper: Line = Field("", description="Only runs of this scraper.")


Integer = Annotated[int, Field(ge=-(2**53), le=2**53)]
Float = Annotated[float, Field(allow_inf_nan=False)]
SettingValue = bool | Integer | Float | Line | Annotated[list[Line], Field(max_length=100)]


class RouteRule(RequestBody):
    """A rule: what it does not set is left as it is."""

    match: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=LINE_PATTERN)] = Field(
        description="A host (`*.shop.example`), or a URL (`*/urgent/*`, `shop.example/news/*`)."
    )
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None
    ttl: float | Line | None = Field(None, description='Seconds, or "30m"; of two the smaller wins.')
    ack: Literal["manual", "auto"] | None = None
    needs: list[Line] | None = Field(None, max_length=4, description='Capabilities: ["browser"].')
    session: Line | None = Field(None, description="Cookies are kept apart by this name.")
    cache: float | Line | None = Field(None, description="Seconds for which a stored response will do.")
    fetch: Literal["http", "browser", "auto"] | None = Field(None, description="With what such pages are fetched.")
    exit: Line | None = Field(None, max_length=27, description="The exit that such pages are fetched by, or direct.")
    on_block: Line | None = Field(
        None, max_length=32, description="What becomes of block pages: notice, later, browser, exit:NAME, park or off."
    )
    delay: float | Line | None = Field(None, description="Between two requests to the host; rules by host only.")
    rate: float | Line | None = Field(None, description="Requests per second to the host; rules by host only.")
    in_flight: Annotated[int, Field(ge=0, le=100_000)] | None = Field(None, description="Rules by host only.")


class RunSubmission(RequestBody):
    """What to fetch, and what to take from it: a scraper's code, a kept template, or fields in short form."""

    scraper: Name | None = Field(None, description="A scraper whose code the workers have.")
    template: Name | None = Field(None, description="A template stored here.")
    template_version: Annotated[int, Field(ge=1, le=MAX_ID)] | None = None
    fields: dict[Line, Line] = Field(
        default_factory=dict, max_length=200, description='As in `shoal run -f`: {"title": "h1::text"}.'
    )
    urls: list[UrlText] = Field(default_factory=list, max_length=MAX_URLS)
    sitemap: bool | UrlText | Annotated[list[UrlText], Field(max_length=100)] = Field(
        False, description="Sitemaps or feeds to read as well; true: those of the sites that it starts from."
    )
    settings: dict[Line, SettingValue] = Field(
        default_factory=dict, max_length=100, description='Of the run, as flags are: {"rate": 2}.'
    )
    routes: list[Line | RouteRule] = Field(
        default_factory=list,
        max_length=200,
        description='Rules by host or URL, the first that matches wins: "*/urgent/* priority=10 ttl=30m".',
    )
    name: Name | None = Field(None, description="Display name of a run with fields.")
    key: Line | None = Field(None, description="An unfinished run with this key is continued.")
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = Field(
        0, description="Runs of higher priority come first on hosts they share."
    )
    weight: Annotated[int, Field(ge=1, le=1_000)] = Field(1, description="Share relative to other runs.")
    hooks: list[NewHook] = Field(default_factory=list, max_length=10)
    more: bool = Field(False, description="URLs follow: POST /api/v1/runs/{run}/tasks.")
    here: bool = Field(False, description="Done by this server's own processes, not by the fleet's workers.")


OverlapName = Literal["skip", "queue", "cancel-former", "allow"]
_CRON = "`0 3 * * *`, `@daily` or `every 15m`."


class NewSchedule(RequestBody):
    name: Name
    cron: Line = Field(description=f"When: {_CRON}")
    zone: Line = Field("UTC", description="The time zone of `cron`, such as Europe/Berlin.")
    overlap: OverlapName = Field("skip", description="What is done while the former run is still running.")
    run: RunSubmission = Field(description="What each of its runs is; without `here`, `hooks`, `more` and `key`.")


class ScheduleChange(RequestBody):
    """What is left out stays as it is."""

    cron: Line | None = Field(None, description=f"When: {_CRON}")
    zone: Line | None = None
    overlap: OverlapName | None = None


class HookChange(RequestBody):
    """What is left out stays as it is."""

    events: list[HookEvent] | None = Field(None, min_length=1, max_length=4)
    stalled_after: Annotated[float, Field(ge=10, le=7 * 86_400, allow_inf_nan=False)] | None = None
    scraper: Line | None = Field(None, description="Only runs of this scraper; empty: of all.")


# What comes back: for the description. New keys may come, none goes.


class ExtensibleModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemDocument(ExtensibleModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    instance: str | None = None


class ListPage(BaseModel):
    """One page of a list. A page may be empty although more follow."""

    items: list[dict[str, Any]]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class ChangesDocument(ListPage):
    counts: dict[str, Any] = Field(description="unchanged, changed, new, gone and failed pages of the whole run.")


class RunDocument(ExtensibleModel):
    name: str
    scraper: str
    state: RunStateName
    created_at: str | None
    finished_at: str | None
    seen: int
    done: int
    dead: int
    discarded: int = Field(description="Dead letters that were removed when their retention was over.")
    aside: int = Field(description="Of those done and dead, sitemaps: they are no pages.")
    cancelled: int
    open: int
    ready: int
    leased: int
    records: int


class StatusDocument(RunDocument):
    display_state: str
    pages_per_second: float | None
    seconds_left: float | None
    at_least: bool = Field(description="Pages are still being found: `seconds_left` is the least it takes.")
    limits: list[dict[str, Any]]


class TaskDocument(ExtensibleModel):
    id: int | None
    run: str
    url: str
    state: str
    reason: str
    attempts: list[dict[str, Any]]


class HostBlocks(ExtensibleModel):
    pages: list[dict[str, Any]]
    ways: list[dict[str, Any]]


class HostDocument(ExtensibleModel):
    name: str
    spacing: float
    ready: int
    in_flight: int
    parked: bool


class WorkerDocument(ExtensibleModel):
    id: str
    name: str
    host: str
    state: str


class TaskCount(ExtensibleModel):
    """How many tasks; `more`: there are others, and asking again goes on."""

    run: str
    count: int
    more: bool
    dry_run: bool


class HostList(ExtensibleModel):
    """Which hosts, and how many; `next`: there are others, to be asked for with `after`."""

    names: list[str] = Field(description="The first thousand.")
    count: int
    more: bool
    next: str | None
    dry_run: bool


class NameList(ExtensibleModel):
    names: list[str]
    dry_run: bool


class SubmitResult(ExtensibleModel):
    run: str
    status: Literal["submitted", "continued", "finished", "cancelled"]
    added: int
    known: int
    seen: int = Field(default=0, description="In earlier runs of the same seen-set.")
    failing: int = Field(default=0, description="Skipped: they failed too often before (`skip_failing`).")
    rejected: int


class AddResult(ExtensibleModel):
    run: str
    read: int
    added: int
    known: int
    seen: int = Field(default=0, description="In earlier runs of the same seen-set.")
    failing: int = Field(default=0, description="Skipped: they failed too often before (`skip_failing`).")
    rejected: int
    rejects: list[dict[str, Any]] = Field(description="The first hundred, each with the reason.")
    last: bool


class SeenSetDocument(ExtensibleModel):
    name: str
    entries: int
    bytes: int = Field(description="About what it takes in the queue.")
    seen_for: float | None = Field(description="Seconds for which a URL is remembered; null is for ever.")
    created_at: str
    changed_at: str = Field(description="When a URL was last added.")


class SessionDocument(ExtensibleModel):
    name: str
    state: Literal["in", "out", "person", "login"] = Field(
        description="in: somebody is logged in; out: the next worker logs in; person: one is needed; login: one does."
    )
    here: bool = Field(description="Whether this server has it, in its settings.")
    hosts: list[str]
    exit: str = Field(description='Its exit; "" is none.')
    login: str = Field(description='form, json, browser; "" is a person.')
    made_at: str | None = Field(description="When somebody last logged in.")
    source: str = Field(description="login or import.")
    is_confirmed: bool = Field(description="Whether a page was answered to a member since.")
    logins: int
    failures: int = Field(description="Logins in a row that failed.")
    error: str
    login_by: str = Field(description="The worker that logged in last, or does.")
    retry_at: str | None = Field(description="When the next login is tried, after one that failed.")
    workers: int = Field(description="Workers that have it.")
    waiting: int = Field(description="Pages that wait for it.")
    in_flight: int
    hint: str = Field(description="What a person can do.")


class ForgottenUrls(ExtensibleModel):
    name: str
    count: int


class CacheDocument(ExtensibleModel):
    entries: int
    bytes: int = Field(description="What they take, compressed.")
    oldest: float = Field(description="Seconds since the oldest was stored.")


class RemovedResponses(ExtensibleModel):
    count: int


class ScaleRequestBody(RequestBody):
    workers: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        description="How many; null lets the scaler decide again."
    )
    dry_run: bool = Field(False, description="Only check whether it can be done.")


class ScaleDocument(ExtensibleModel):
    acting: bool
    fixed_workers: int | None
    workers: int | None
    decision: dict[str, Any] | None
    problem: str | None


class EventList(ExtensibleModel):
    items: list[dict[str, Any]]


class MachineList(ExtensibleModel):
    items: list[dict[str, Any]]


class TemplateDocument(ExtensibleModel):
    name: str
    version: int
    template: dict[str, Any]


class ScheduleDocument(ExtensibleModel):
    name: str
    cron: str
    paused: bool


class HookDocument(ExtensibleModel):
    id: str
    url: str
    events: list[str]


_STATUS_TEXTS = {
    400: "The request is not understood",
    401: "No token, or a wrong one",
    403: "The token may not do this",
    404: "Not found",
    409: "It conflicts with the current state",
    413: "Too large",
    415: "Another kind of content is expected",
    422: "A value is wrong",
    429: "Too many requests; see Retry-After",
    503: "The queue does not respond",
    507: "No space left where the queue is stored",
}
_COMMON_STATUSES = (400, 401, 403, 413, 422, 429, 503, 507)


def response_docs(model: type[BaseModel], *others: int, status: int = 200, words: str = "") -> dict[int | str, Any]:
    """The responses of an operation: what comes when it goes well, and every way in which it may not."""
    documented: dict[int | str, Any] = {status: {"model": model} | ({"description": words} if words else {})}
    return documented | problem_docs(*others)


def problem_docs(*others: int) -> dict[int | str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        number: {"description": _STATUS_TEXTS[number], "content": content, "model": ProblemDocument}
        for number in sorted({*_COMMON_STATUSES, *others})
    }
