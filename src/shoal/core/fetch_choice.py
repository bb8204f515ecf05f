"""Fetch choice: whether pages of one shape are complete by plain HTTP, learned by comparing both ways now and then.

A comparison is one page by HTTP and by a browser, both successful and both read by the same handler. It says
that HTTP is enough, or that the browser gives more. The last ones weigh most, so that two of them turn an older
verdict; in doubt it is the browser. Comparisons become rarer while they confirm each other, and never so rare
that a site which has changed is noticed late. A page by HTTP that gives much less than its shape usually does is
compared at once.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

Way = Literal["http", "browser", "compare"]
Label = Literal["", "http", "browser"]

HTTP: Final = "http"
AUTO: Final = "auto"

DECAY = 0.5  # what a comparison still weighs after the next one
LABEL_WEIGHT = 1.5  # of comparisons before there is a verdict: two of them
HTTP_SHARE = 0.75  # of the weight that must say that HTTP is enough
MAX_INTERVAL: dict[Label, int] = {"": 1, "http": 16, "browser": 8}  # pages from one comparison to the next
FAR_FEWER = 4  # suspicious: less than this part of what is usual
LESS_FILLED = 0.7  # likewise, of the share of fields that have a value
MIN_RECORDS, MIN_LINKS = 0.5, 4.0  # where fewer are usual, less says nothing
MAX_QUIET = 8  # suspicious pages in a row that are let through after false alarms
USUAL_WEIGHT = 0.2  # of the last page in what is usual
MAX_COUNT = 2**53

_Weight = Annotated[float, msgspec.Meta(ge=0, le=2)]
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
_Interval = Annotated[int, msgspec.Meta(ge=1, le=max(MAX_INTERVAL.values()))]


class ShapeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the pages of one shape; as it is stored, so that it is bounded."""

    agree: _Weight = 0.0  # of comparisons in which HTTP was enough
    differ: _Weight = 0.0  # in which the browser gave more
    interval: _Interval = 1  # pages from one comparison to the next
    since: _Count = 0  # pages since the last one
    records: _Number = 0.0  # that such a page usually gives
    links: _Number = 0.0
    filled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0  # the share of its records' fields that have a value
    false_alarms: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # suspicious pages in a row that were complete
    quiet: Annotated[int, msgspec.Meta(ge=0, le=MAX_QUIET)] = 0  # so many suspicious pages are not compared
    http: _Count = 0  # pages that were taken by HTTP alone
    browser: _Count = 0  # by the browser alone
    compared: _Count = 0  # by both
    compared_at: _Count = 0  # the last time


class PageSize(msgspec.Struct, frozen=True):
    """How much a page gave."""

    records: int
    links: int
    filled: float = 1.0  # the share of its records' fields that have a value


class PageTaken(msgspec.Struct, frozen=True):
    """A page that was fetched in one way only."""

    way: Literal["http", "browser"]
    size: PageSize
    is_let_through: bool = False  # suspicious, but there were false alarms


class Compared(msgspec.Struct, frozen=True):
    """A page that was fetched in both ways, both successful."""

    is_http_enough: bool
    size: PageSize  # of the one that is recorded
    at: int
    was_suspicious: bool = False


Lesson = PageTaken | Compared


def label(state: ShapeState) -> Label:
    """What comparisons have shown; "" before there were enough."""
    weight = state.agree + state.differ
    if weight < LABEL_WEIGHT:
        return ""
    return "http" if state.agree >= HTTP_SHARE * weight else "browser"


def choose(state: ShapeState) -> Way:
    """How the next page of the shape is fetched."""
    known = label(state)
    if not known or state.since + 1 >= state.interval:
        return "compare"
    return known


def is_suspicious(state: ShapeState, size: PageSize) -> bool:
    """Whether a page by HTTP gives so much less than usual that something may have changed."""
    if state.links >= MIN_LINKS and size.links * FAR_FEWER < state.links:
        return True
    if state.records < MIN_RECORDS:
        return False
    return size.records * FAR_FEWER < state.records or size.filled < LESS_FILLED * state.filled


def learn(state: ShapeState, lesson: Lesson) -> ShapeState:
    if isinstance(lesson, Compared):
        return _after_comparison(state, lesson)
    if lesson.is_let_through:
        return replace(state, quiet=max(0, state.quiet - 1), since=_more(state.since), http=_more(state.http))
    state = _with_usual(state, lesson.size)
    if lesson.way == "http":
        return replace(state, since=_more(state.since), http=_more(state.http))
    return replace(state, since=_more(state.since), browser=_more(state.browser))


def _after_comparison(state: ShapeState, seen: Compared) -> ShapeState:
    before = label(state)
    alarms, quiet = state.false_alarms, state.quiet
    if not seen.is_http_enough:
        alarms = quiet = 0
    elif seen.was_suspicious:
        alarms = min(alarms + 1, 64)
        quiet = min(2**alarms - 1, MAX_QUIET)
    changed = replace(
        _with_usual(state, seen.size),
        agree=state.agree * DECAY + seen.is_http_enough,
        differ=state.differ * DECAY + (not seen.is_http_enough),
        since=0,
        false_alarms=alarms,
        quiet=quiet,
        compared=_more(state.compared),
        compared_at=min(max(seen.at, state.compared_at), MAX_COUNT),
    )
    after = label(changed)
    is_confirmed = after == before and seen.is_http_enough == (after == "http")
    return replace(changed, interval=min(2 * state.interval, MAX_INTERVAL[after]) if is_confirmed else 1)


def _with_usual(state: ShapeState, size: PageSize) -> ShapeState:
    weight = USUAL_WEIGHT if state.http or state.browser or state.compared else 1.0
    return replace(
        state,
        records=state.records + (size.records - state.records) * weight,
        links=state.links + (size.links - state.links) * weight,
        filled=min(1.0, max(0.0, state.filled + (size.filled - state.filled) * weight)),
    )


def _more(count: int) -> int:
    return min(count + 1, MAX_COUNT)
