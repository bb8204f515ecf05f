"""Figures: what a worker process has counted since it started, small enough to go with every heartbeat."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # upper bounds
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000)
LANES_KEPT = 20  # of the busiest hosts; the others are in the sums alone

# Every cause belongs to exactly one of these: so many, and no more, are ever shown or exported.
CLASSES = (
    "http.429", "http.403", "http.404", "http.4xx", "http.5xx",
    "timeout", "dns", "connect", "tls", "redirects", "robots", "refused",
    "too_large", "content", "handler", "worker_lost", "expired", "other",
)  # fmt: skip


class LaneFigures(msgspec.Struct, array_like=True, gc=False):
    """What was seen of one host."""

    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    bytes: int = 0


class Figures(msgspec.Struct, omit_defaults=True):
    """Sums that only grow while the process lives; `lag` is of late, `lanes` are the busiest now."""

    done: int = 0
    records: int = 0
    retries: int = 0
    bytes: int = 0
    failed: dict[str, int] = {}  # attempts that failed, by class of error
    dead: dict[str, int] = {}  # tasks given up, by class of error
    stale: int = 0  # answers that came too late and were dropped
    lost: int = 0  # leases taken over by others
    took: list[int] = []  # attempts by seconds, as in SECONDS, one more for what is above
    took_sum: float = 0.0
    size: list[int] = []  # answers by bytes, as in SIZES
    size_sum: int = 0
    asks: int = 0  # questions to the queue, and the seconds they took
    ask_seconds: float = 0.0
    lag: float = 0.0  # longest time the event loop was held up in the last seconds, or is being held up
    lanes: dict[str, LaneFigures] = {}  # sums, too; which ones are told may differ from one time to the next


def buckets(bounds: tuple[float, ...]) -> list[int]:
    return [0] * (len(bounds) + 1)


def place(bounds: tuple[float, ...], value: float) -> int:
    """In which bucket a value falls; upper bounds belong to their bucket."""
    return bisect_left(bounds, value)


def error_class(cause: str) -> str:
    """The class of a cause such as "http.503" or "timeout.connect"."""
    if cause in CLASSES:
        return cause
    first, _, rest = cause.partition(".")
    if first == "http":
        return f"http.{rest[:1]}xx" if rest[:1] in ("4", "5") else "other"
    named = _CLASS_OF.get(first, "other")
    return named if named in CLASSES else "other"


_CLASS_OF = {
    "timeout": "timeout", "dns": "dns", "connect": "connect", "tls": "tls", "redirect": "redirects",
    "redirects": "redirects", "robots": "robots", "robots_unreachable": "robots", "blocked": "refused",
    "refused": "refused", "private": "refused", "scope": "refused", "bad_url": "refused",
    "bad_request": "refused", "too_large": "too_large", "decode": "content", "content": "content",
    "parse": "content", "bad_response": "content", "too_complex": "content", "missing_field": "content",
    "bad_field": "content", "handler": "handler", "handler_timeout": "handler", "memory": "handler",
    "client": "handler", "no_handler": "handler", "error": "handler", "worker_lost": "worker_lost",
    "expired": "expired",
}  # fmt: skip


def plus(one: Figures, other: Figures) -> Figures:
    """Both together; of the lanes the busiest."""
    lanes = dict(one.lanes)
    for name, lane in other.lanes.items():
        lanes[name] = _lane_plus(lanes[name], lane) if name in lanes else lane
    return Figures(
        failed=counts_plus(one.failed, other.failed),
        dead=counts_plus(one.dead, other.dead),
        took=buckets_plus(one.took, other.took),
        size=buckets_plus(one.size, other.size),
        lag=max(one.lag, other.lag),
        lanes=busiest(lanes),
        **{name: getattr(one, name) + getattr(other, name) for name in _SUMS},
    )


def since(before: Figures, now: Figures) -> Figures:
    """What was counted between two reports of one process; `lag` is that of the later."""
    sums = {name: max(0, getattr(now, name) - getattr(before, name)) for name in _SUMS}
    failed = _counts_since(before.failed, now.failed)
    most = LaneFigures(sums["done"], sum(failed.values()), sums["took_sum"], sums["bytes"])
    return Figures(
        failed=failed,
        dead=_counts_since(before.dead, now.dead),
        took=buckets_plus(now.took, before.took, -1),
        size=buckets_plus(now.size, before.size, -1),
        lag=now.lag,
        lanes={name: _lane_since(before.lanes.get(name), lane, most) for name, lane in now.lanes.items()},
        **sums,
    )


def highest(one: Figures, other: Figures) -> Figures:
    """Of two looks at sums that only grow, the higher of each; without `lag` and `lanes`."""
    return Figures(
        failed=_counts_highest(one.failed, other.failed),
        dead=_counts_highest(one.dead, other.dead),
        took=_buckets_highest(one.took, other.took),
        size=_buckets_highest(one.size, other.size),
        **{name: max(getattr(one, name), getattr(other, name)) for name in _SUMS},
    )


def busiest(lanes: Mapping[str, LaneFigures], most: int = LANES_KEPT) -> dict[str, LaneFigures]:
    if len(lanes) <= most:
        return dict(lanes)
    ordered = sorted(lanes.items(), key=lambda item: item[1].done + item[1].failed, reverse=True)
    return dict(ordered[:most])


_SUMS = (
    "done", "records", "retries", "bytes", "stale", "lost", "took_sum", "size_sum", "asks", "ask_seconds",
)  # fmt: skip


def buckets_plus(one: list[int], other: list[int], sign: int = 1) -> list[int]:
    """Buckets together; either may be empty, and none falls below 0."""
    if not one or not other:
        return list(one or (other if sign > 0 else ()))
    return [max(0, first + sign * second) for first, second in zip(one, other, strict=False)]


def counts_plus(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _counts_highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _buckets_highest(one: list[int], other: list[int]) -> list[int]:
    return [*map(max, one, other)] if one and other else list(one or other)


def _counts_since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: more for name, count in now.items() if (more := count - before.get(name, 0)) > 0}


def _lane_plus(one: LaneFigures, other: LaneFigures) -> LaneFigures:
    return LaneFigures(
        one.done + other.done,
        one.failed + other.failed,
        one.seconds + other.seconds,
        one.bytes + other.bytes,
    )


def _lane_since(before: LaneFigures | None, now: LaneFigures, most: LaneFigures) -> LaneFigures:
    """A lane that was not told of before may have been counted for long: no more than all lanes together."""
    was = before if before is not None and before.done <= now.done else LaneFigures()
    return LaneFigures(
        min(max(0, now.done - was.done), most.done),
        min(max(0, now.failed - was.failed), most.failed),
        min(max(0.0, now.seconds - was.seconds), most.seconds),
        min(max(0, now.bytes - was.bytes), most.bytes),
    )


def encode(figures: Figures) -> bytes:
    return msgspec.msgpack.encode(figures)


def decode(data: bytes) -> Figures:
    """What a worker sent; nothing of one that speaks another version."""
    try:
        return msgspec.msgpack.decode(data, type=Figures) if data else Figures()
    except msgspec.DecodeError:
        return Figures()
