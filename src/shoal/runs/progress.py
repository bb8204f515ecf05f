"""What a run tells people while it goes on: values, and the protocol of whoever shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, Protocol

import msgspec

from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.core.run_counters import CacheUsage, SitemapUsage
from shoal.core.stats import Stats
from shoal.queue.base import DeadLetterGroup, TaskView
from shoal.runs.host_limits import HostLimit
from shoal.runs.no_records import NoRecords

RunEnd = Literal["complete", "dead", "cancelled", "interrupted", "unbalanced", "no_records"]


class RunInfo(msgspec.Struct, frozen=True):
    """What is known before the first page."""

    run: Run
    stats: Stats
    state: str  # where the state is kept, for people
    resumed: bool = False
    workers: int = 1
    concurrency: int = 16
    robots: bool = True
    pace: str = ""  # "at most 1 page/s per site", for people
    is_reread: bool = False  # saved pages are read again, and no site is asked
    output: str = ""
    notes: tuple[str, ...] = ()  # "Read 500 lines of urls.txt: 488 to fetch, 9 duplicates"


class RunProgress(msgspec.Struct, frozen=True):
    """One look at a run that goes on; rates are worked out by whoever shows it."""

    stats: Stats
    lanes: tuple[LaneState, ...] = ()
    now: int = 0  # the store's clock, to judge lanes by
    workers: int = 0
    paused: bool = False
    limits: tuple[HostLimit, ...] = ()  # what keeps hosts below the pace that the run asks for
    stuck: tuple[TaskView, ...] = ()  # some of what is to be tried again, where nothing else is left to do
    found_at: int = 0  # when a page was last found, by the store's clock; 0: none was
    seeding: bool = False  # URLs are still being added
    missing: tuple[str, ...] = ()  # sentences: "12 tasks need browser, and no worker has it: …"


class RunSummary(msgspec.Struct, frozen=True):
    """What became of it, once nobody works on it any more."""

    run: Run
    stats: Stats
    end: RunEnd
    seconds: float = 0.0  # 0: no work was done for it this time
    output: str = ""
    rows: int = 0
    dead: tuple[DeadLetterGroup, ...] = ()
    changes: str = ""  # "9,870 unchanged, 112 changed, 18 new, 6 gone"
    resume_command: str = ""  # the command that goes on with it
    files: tuple[tuple[str, int, str], ...] = ()  # written: (name, rows, what is in them)
    fill: tuple[tuple[str, int, int], ...] = ()  # (field, records that have it, records)
    warnings: tuple[str, ...] = ()  # sentences: "price is filled in 3 % of records, last time 98 %"
    no_records: NoRecords | None = None  # why there are none
    now: int = 0  # by the store's clock
    is_reread: bool = False  # saved pages were read again, and none was fetched
    empty_page: str = ""  # no record has any of the fields that were asked for: a page to look at
    beyond: int = 0  # lines of its list that are past its page limit
    sitemaps: SitemapUsage | None = None
    budget: str = ""  # that it is used up, and how to go on
    spent: str = ""  # of the budget: the kind for which the run is paused
    cache: CacheUsage | None = None  # how much the cache helped; None: it was not asked
    first: tuple[dict[str, Any], ...] = ()  # a few records, to be shown where no file was asked for


_CAUSE_TEXT = {
    "http.404": "404 not found",
    "http.410": "410 gone",
    "http.403": "403 forbidden",
    "http.401": "401 login needed",
    "http.429": "429 too many requests",
    "dns": "no such host",
    "connect": "no connection",
    "tls": "no trusted certificate",
    "timeout": "no answer in time",
    "block_page": "block pages (captcha, consent, login)",
    "too_large": "too large",
    "too_complex": "too complex to parse",
    "decode": "not what its headers say",
    "bad_response": "invalid response",
    "redirects": "broken redirects",
    "blocked.private": "private addresses (--allow-private)",
    "missing_field": "a required field is missing",
    "bad_field": "a field cannot be read",
    "robots": "forbidden by robots.txt",
    "robots_unreachable": "robots.txt cannot be read",
    "worker_lost": "crashed workers",
    "unacknowledged": "lost with their workers (ack=auto)",
    "not_kept": "not among the saved pages",
    "not_a_sitemap": "not a sitemap",
    "expired": "waited too long",
    "handler": "errors in the handler",
}


def describe_cause(cause: str) -> str:
    """A cause in words: "http.404" is "404 not found", "timeout.total" is "no answer in time"."""
    kind, _, rest = cause.partition(".")
    if cause in _CAUSE_TEXT or kind in _CAUSE_TEXT:
        return _CAUSE_TEXT.get(cause) or _CAUSE_TEXT[kind]
    if kind == "http" and rest.isdecimal():
        return f"{rest} server error" if rest.startswith("5") else f"status {rest}"
    return cause


def describe_failures(dead: Iterable[DeadLetterGroup]) -> str:
    """What failed, by cause: "8 × 404 not found · 3 × no answer in time"."""
    causes: Counter[str] = Counter()
    for group in dead:
        causes[describe_cause(group.cause)] += group.count
    return " · ".join(f"{n:,} × {words}" for words, n in causes.most_common())


class RunUi(Protocol):
    def start(self, info: RunInfo) -> None: ...

    def update(self, progress: RunProgress) -> None:
        """May be called as often as one likes; it shows what is worth showing."""
        ...

    def message(self, text: str) -> None:
        """One line for people, above the live display."""
        ...

    def finish(self, summary: RunSummary) -> None: ...

    def close(self) -> None:
        """Leave the terminal as it was; harmless after finish."""
        ...
