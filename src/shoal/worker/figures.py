"""Figures: what a worker counts as it works, at next to no cost, for its note and for the registry."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from shoal.core.figures import (
    LANES_KEPT,
    SECONDS,
    SIZES,
    Figures,
    LaneFigures,
    buckets,
    encode,
    error_class,
    place,
)
from shoal.core.task import Outcome

LAG_EVERY = 0.5  # seconds between two looks at how late the event loop is
LAG_KEPT = 20  # of these looks the worst is told
LANES_COUNTED = 1_000  # hosts; above that the idle ones are forgotten


class Counting:
    """Written by the event loop; the heart's thread reads copies, which are single steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sums = Figures(took=buckets(SECONDS), size=buckets(SIZES))
        self._lanes: dict[str, LaneFigures] = {}
        self._before: dict[str, int] = {}
        self._scores: dict[str, float] = {}
        self._lags: deque[float] = deque(maxlen=LAG_KEPT)
        self._expected = 0.0  # when the loop should look again; 0: it is not being watched
        self._timer: asyncio.TimerHandle | None = None

    def settled(self, outcome: Outcome) -> None:
        """An outcome that the queue has taken."""
        sums, attempt, result = self._sums, outcome.attempt, outcome.result
        if attempt is not None:
            sums.took[place(SECONDS, attempt.seconds)] += 1
            sums.took_sum += attempt.seconds
            if attempt.status:
                sums.size[place(SIZES, attempt.size)] += 1
                sums.size_sum += attempt.size
                sums.bytes += attempt.size
        if result == "done":
            sums.done += 1
            sums.records += len(outcome.records)
        elif result == "retry":
            sums.retries += 1
            _count(sums.failed, outcome.cause)
        elif result == "dead":
            _count(sums.failed, outcome.cause)
            _count(sums.dead, outcome.cause)

    def visited(self, lane: str, outcome: Outcome) -> None:
        """What a host has been asked, whether the queue takes the outcome or not."""
        attempt = outcome.attempt
        if attempt is None:
            return
        seen = self._lanes.get(lane)
        if seen is None:
            seen = self._lanes[lane] = LaneFigures()
        if outcome.result == "done":
            seen.done += 1
        elif outcome.result != "cancelled":
            seen.failed += 1
        seen.seconds += attempt.seconds
        seen.bytes += attempt.size

    def asked(self, seconds: float) -> None:
        """One question to the queue and its answer."""
        self._sums.asks += 1
        self._sums.ask_seconds += seconds

    def stale(self) -> None:
        self._sums.stale += 1

    def lost(self, leases: int) -> None:
        self._sums.lost += leases

    def watch(self, tell: Callable[[bytes], None]) -> None:
        """Look now and then how late the event loop is, and tell all sums without the hosts."""
        loop, now = asyncio.get_running_loop(), self._clock()
        if self._expected:
            self._lags.append(max(0.0, now - self._expected))
        self._expected = now + LAG_EVERY
        self._timer = loop.call_later(LAG_EVERY, self.watch, tell)
        tell(self.packed())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._expected = 0.0

    @property
    def lag(self) -> float:
        """The longest that the event loop was held up lately, or is at this moment."""
        now = self._clock() - self._expected if self._expected else 0.0
        return round(max(now, *self._lags, 0.0), 4)

    def packed(self) -> bytes:
        self._sums.lag = self.lag
        return encode(self._sums)

    def report(self) -> Figures:
        """For the registry: everything, with the hosts that are busiest now."""
        return msgspec.structs.replace(self._sums, lag=self.lag, lanes=self._busiest())

    def _busiest(self) -> dict[str, LaneFigures]:
        """Hosts by what they were asked since the last report, earlier ones less and less."""
        lanes = list(self._lanes.items())
        scores: dict[str, float] = {}
        for name, seen in lanes:
            number = seen.done + seen.failed
            scores[name] = self._scores.get(name, 0.0) / 2 + number - self._before.get(name, 0)
            self._before[name] = number
        self._scores = scores
        if len(lanes) > LANES_COUNTED:
            self._forget_idle()
        # Quiet ones, too, while there is room: somebody looks at the history of each.
        return dict(sorted(lanes, key=lambda item: scores[item[0]], reverse=True)[:LANES_KEPT])

    def _forget_idle(self) -> None:
        kept = sorted(self._scores, key=self._scores.__getitem__, reverse=True)[: LANES_COUNTED // 2]
        self._lanes = {name: self._lanes[name] for name in kept}
        self._before = {name: self._before[name] for name in kept}
        self._scores = {name: self._scores[name] for name in kept}


def _count(counts: dict[str, int], cause: str) -> None:
    named = error_class(cause)
    counts[named] = counts.get(named, 0) + 1
