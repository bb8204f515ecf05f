"""What a worker process has counted since it started, small enough to go with every heartbeat."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from shoal.core.resources import MachineResources

DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # upper bounds
SIZE_BOUNDS = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000)
MAX_REPORTED_LANES = 20  # of the busiest hosts; the others are in the sums alone

# Every cause belongs to exactly one of these: so many, and no more, are ever shown or exported.
ERROR_CLASSES = (
    "http.429", "http.403", "http.404", "http.4xx", "http.5xx",
    "timeout", "dns", "connect", "tls", "redirects", "robots", "refused",
    "too_large", "content", "browser", "block_page", "handler", "worker_lost", "expired", "other",
)  # fmt: skip
MAX_BLOCK_WAYS, MAX_NOTICED_HOSTS = 64, 20
CODE_ERRORS = ("handler",)  # classes for which the code that reads a page is to blame, and never its host


class LaneCounters(msgspec.Struct, array_like=True, gc=False):
    """What was counted of one host."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    bytes: int = 0
    code_errors: int = 0  # of those failed: in CODE_ERRORS
    transferred: int = 0  # bytes sent and received; `bytes` are those of bodies as they were read
    proxy_bytes: int = 0  # of these: by exits and proxies
    cpu_us: int = 0
    browser_us: int = 0  # for which tabs were open


class ExitCounters(msgspec.Struct, array_like=True, gc=False):
    """What was counted of one exit; its proxies and its last error are as they are now."""

    requests: int = 0
    failures: int = 0
    bytes: int = 0
    proxies: int = 0
    cooling: int = 0  # of the proxies: left alone for a while
    last_error: str = ""
    tors: int = 0  # that are ready, of processes; with their circuits
    circuits: int = 0
    bootstrap: str = ""  # how far one is that is not ready yet


class Counters(msgspec.Struct, omit_defaults=True):
    """Sums that only grow while the process lives; `lag` is of late, `lanes` are the busiest now.

    `machine` and `pressure` are as they are now, in the registry alone.
    """

    done: int = 0
    records: int = 0
    retries: int = 0
    bytes: int = 0
    failed: dict[str, int] = {}  # attempts that failed, by class of error
    dead: dict[str, int] = {}  # tasks given up, by class of error
    stale: int = 0  # answers that came too late and were dropped
    lost: int = 0  # leases taken over by others
    took: list[int] = []  # attempts by seconds, as in DURATION_BOUNDS, one more for what is above
    took_sum: float = 0.0
    size: list[int] = []  # answers by bytes, as in SIZE_BOUNDS
    size_sum: int = 0
    asks: int = 0  # calls of the queue, and the seconds they took
    ask_seconds: float = 0.0
    cache_hits: int = 0  # pages that were in the cache
    cache_misses: int = 0  # that were asked for there and fetched, or found unchanged
    transferred: int = 0  # bytes sent and received, and what else pages have cost
    proxy_bytes: int = 0
    cpu_us: int = 0
    browser_us: int = 0
    noticed: int = 0  # pages that count although they look like block pages
    lag: float = 0.0  # longest time the event loop was held up in the last seconds, or is being held up
    lanes: dict[str, LaneCounters] = {}  # sums, too; which ones are told may differ from one time to the next
    exits: dict[str, ExitCounters] = {}  # likewise sums; in the registry alone
    blocks: dict[str, int] = {}  # likewise: block pages by "fetcher exit"
    noticed_at: dict[str, int] = {}  # likewise, by host
    machine: MachineResources | None = None  # where it runs, as it is now
    pressure: str = ""  # "slow": it claims less, "stop": nothing, because something there is running out
    pressure_reason: str = ""


class WorkerCounters(msgspec.Struct, omit_defaults=True):
    """What one worker had counted at some moment; one that started anew counts from 0."""

    id: str
    started_at: int
    done: int = 0
    failed: int = 0
    counters: Counters = msgspec.field(default_factory=Counters)


def empty_buckets(bounds: tuple[float, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)


def bucket_index(bounds: tuple[float, ...], value: float) -> int:
    """In which bucket a value falls; upper bounds belong to their bucket."""
    return bisect_left(bounds, value)


def error_class(cause: str) -> str:
    """The class of a cause such as "http.503" or "timeout.connect"."""
    if cause in ERROR_CLASSES:
        return cause
    first, _, rest = cause.partition(".")
    if first == "http":
        return f"http.{rest[:1]}xx" if rest[:1] in ("4", "5") else "other"
    named = _CLASS_OF.get(first, "other")
    return named if named in ERROR_CLASSES else "other"


_CLASS_OF = {
    "timeout": "timeout", "dns": "dns", "connect": "connect", "tls": "tls", "redirect": "redirects",
    "redirects": "redirects", "robots": "robots", "robots_unreachable": "robots", "blocked": "refused",
    "refused": "refused", "private": "refused", "scope": "refused", "bad_url": "refused",
    "bad_request": "refused", "too_large": "too_large", "decode": "content", "content": "content",
    "parse": "content", "bad_response": "content", "too_complex": "content", "missing_field": "content",
    "bad_field": "content", "not_a_sitemap": "content", "handler": "handler", "handler_timeout": "handler",
    "memory": "handler", "client": "handler", "no_handler": "handler", "error": "handler", "worker_lost": "worker_lost",
    "unacknowledged": "worker_lost", "expired": "expired", "exit": "connect",
    "session": "refused",
}  # fmt: skip


def combine(one: Counters, other: Counters) -> Counters:
    """The sum of both; of the lanes only the busiest."""
    lanes = dict(one.lanes)
    for name, lane in other.lanes.items():
        lanes[name] = _add_lane(lanes[name], lane) if name in lanes else lane
    return Counters(
        failed=add_counts(one.failed, other.failed),
        dead=add_counts(one.dead, other.dead),
        took=add_buckets(one.took, other.took),
        size=add_buckets(one.size, other.size),
        lag=max(one.lag, other.lag),
        lanes=busiest_lanes(lanes),
        **{name: getattr(one, name) + getattr(other, name) for name in _SUMS},
    )


def combine_exits(one: Mapping[str, ExitCounters], other: Mapping[str, ExitCounters]) -> dict[str, ExitCounters]:
    """Sums of both; of the state of the proxies, which each process learns by itself, the worse."""
    return {name: _add_exit(one.get(name), other.get(name)) for name in {**one, **other}}


def _add_exit(one: ExitCounters | None, other: ExitCounters | None) -> ExitCounters:
    if one is None or other is None:
        return one or other or ExitCounters()
    return ExitCounters(
        one.requests + other.requests,
        one.failures + other.failures,
        one.bytes + other.bytes,
        max(one.proxies, other.proxies),
        max(one.cooling, other.cooling),
        other.last_error or one.last_error,
        one.tors + other.tors,
        one.circuits + other.circuits,
        other.bootstrap or one.bootstrap,
    )


def difference(before: Counters, now: Counters) -> Counters:
    """What was counted between two reports of one process; `lag` is that of the later."""
    sums = {name: max(0, getattr(now, name) - getattr(before, name)) for name in _SUMS}
    failed = _count_differences(before.failed, now.failed)
    code_errors = sum(failed.get(name, 0) for name in CODE_ERRORS)
    costs = (sums[name] for name in COSTS)
    most = LaneCounters(sums["done"], sum(failed.values()), sums["took_sum"], sums["bytes"], code_errors, *costs)
    return Counters(
        failed=failed,
        dead=_count_differences(before.dead, now.dead),
        took=add_buckets(now.took, before.took, -1),
        size=add_buckets(now.size, before.size, -1),
        lag=now.lag,
        lanes={name: _lane_difference(before.lanes.get(name), lane, most) for name, lane in now.lanes.items()},
        **sums,
    )


def maximum(one: Counters, other: Counters) -> Counters:
    """The larger of each sum, of two reports of sums that only grow; without `lag` and `lanes`."""
    return Counters(
        failed=_max_counts(one.failed, other.failed),
        dead=_max_counts(one.dead, other.dead),
        took=_max_buckets(one.took, other.took),
        size=_max_buckets(one.size, other.size),
        **{name: max(getattr(one, name), getattr(other, name)) for name in _SUMS},
    )


def busiest_lanes(lanes: Mapping[str, LaneCounters], most: int = MAX_REPORTED_LANES) -> dict[str, LaneCounters]:
    if len(lanes) <= most:
        return dict(lanes)
    ordered = sorted(lanes.items(), key=lambda item: item[1].done + item[1].failed, reverse=True)
    return dict(ordered[:most])


COSTS = ("transferred", "proxy_bytes", "cpu_us", "browser_us")  # of a lane, and of a worker; in the order of Cost
_SUMS = (
    "done", "records", "retries", "bytes", "stale", "lost", "took_sum", "size_sum", "asks", "ask_seconds",
    "cache_hits", "cache_misses", "noticed", *COSTS,
)  # fmt: skip


def add_buckets(one: list[int], other: list[int], sign: int = 1) -> list[int]:
    """Buckets together; either may be empty, and none falls below 0."""
    if not one or not other:
        return list(one or (other if sign > 0 else ()))
    return [max(0, first + sign * second) for first, second in zip(one, other, strict=False)]


def add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _max_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _max_buckets(one: list[int], other: list[int]) -> list[int]:
    return [*map(max, one, other)] if one and other else list(one or other)


def _count_differences(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: more for name, count in now.items() if (more := count - before.get(name, 0)) > 0}


def _add_lane(one: LaneCounters, other: LaneCounters) -> LaneCounters:
    return LaneCounters(
        one.done + other.done,
        one.failed + other.failed,
        one.seconds + other.seconds,
        one.bytes + other.bytes,
        one.code_errors + other.code_errors,
        *(getattr(one, name) + getattr(other, name) for name in COSTS),
    )


def _lane_difference(before: LaneCounters | None, now: LaneCounters, most: LaneCounters) -> LaneCounters:
    """A lane that was not told of before may have been counted for long: no more than all lanes together."""
    was = before if before is not None and before.done <= now.done else LaneCounters()
    return LaneCounters(
        min(max(0, now.done - was.done), most.done),
        min(max(0, now.failed - was.failed), most.failed),
        min(max(0.0, now.seconds - was.seconds), most.seconds),
        min(max(0, now.bytes - was.bytes), most.bytes),
        min(max(0, now.code_errors - was.code_errors), most.code_errors),
        *(min(max(0, getattr(now, name) - getattr(was, name)), getattr(most, name)) for name in COSTS),
    )


def encode(counters: Counters) -> bytes:
    return msgspec.msgpack.encode(counters)


def decode(data: bytes) -> Counters:
    """What a worker sent; nothing of one that speaks another version."""
    try:
        return msgspec.msgpack.decode(data, type=Counters) if data else Counters()
    except msgspec.DecodeError:
        return Counters()
