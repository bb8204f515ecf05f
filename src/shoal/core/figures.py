"""Figures: what a worker process has counted since it started, small enough to travel with every heartbeat."""

from __future__ import annotations

from bisect import bisect_left

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
    """Sums that only grow while the process lives; `lag` and `lanes` are of the last while."""

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
    lag: float = 0.0  # longest time the event loop was held up since the last heartbeat
    lanes: dict[str, LaneFigures] = {}


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
    "redirects": "redirects", "robots": "robots", "blocked": "refused", "refused": "refused",
    "private": "refused", "too_large": "too_large", "decode": "content", "content": "content",
    "parse": "content", "handler": "handler", "error": "handler", "worker_lost": "worker_lost",
    "expired": "expired",
}  # fmt: skip


def encode(figures: Figures) -> bytes:
    return msgspec.msgpack.encode(figures)


def decode(data: bytes) -> Figures:
    """What a worker sent; nothing of one that speaks another version."""
    try:
        return msgspec.msgpack.decode(data, type=Figures) if data else Figures()
    except msgspec.DecodeError:
        return Figures()
