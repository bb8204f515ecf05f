"""CounterRecorder: what a worker counts as it works, cheaply, for its crash note and for the registry."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from shoal.core.cost import NOTHING, cost_of
from shoal.core.counters import (
    CODE_ERRORS,
    DURATION_BOUNDS,
    MAX_BLOCK_WAYS,
    MAX_NOTICED_HOSTS,
    MAX_REPORTED_LANES,
    SIZE_BOUNDS,
    Counters,
    ExitCounters,
    LaneCounters,
    bucket_index,
    empty_buckets,
    encode,
    error_class,
)
from shoal.core.lane import host_of_lane, lane_without_cache
from shoal.core.run_counters import HITS, block_way, cache_usage, is_noticed
from shoal.core.task import Outcome

LAG_INTERVAL = 0.5  # seconds between two measurements of the event loop's lag
LAG_SAMPLES = 20  # of these the worst is reported
MAX_TRACKED_LANES = 1_000  # hosts; above that the idle ones are forgotten


class CounterRecorder:
    """Written by the event loop; the heartbeat thread reads copies, which are single steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counters = Counters(took=empty_buckets(DURATION_BOUNDS), size=empty_buckets(SIZE_BOUNDS))
        self._lanes: dict[str, LaneCounters] = {}
        self.exits: Callable[[], dict[str, ExitCounters]] = dict  # what was counted of each exit
        self._reported: dict[str, int] = {}
        self._scores: dict[str, float] = {}
        self._lags: deque[float] = deque(maxlen=LAG_SAMPLES)
        self._next_check_at = 0.0  # when the loop should look again; 0: it is not being watched
        self._timer: asyncio.TimerHandle | None = None

    def count_settled(self, outcome: Outcome) -> None:
        """An outcome that the queue has taken."""
        counters, attempt, result = self._counters, outcome.attempt, outcome.result
        if attempt is not None:
            counters.took[bucket_index(DURATION_BOUNDS, attempt.seconds)] += 1
            counters.took_sum += attempt.seconds
            if attempt.status:
                counters.size[bucket_index(SIZE_BOUNDS, attempt.size)] += 1
                counters.size_sum += attempt.size
                counters.bytes += attempt.size
        if outcome.counters:
            usage = cache_usage(outcome.counters)
            if usage is not None:
                counters.cache_hits += usage.hits
                counters.cache_misses += usage.misses + usage.revalidated
            way = block_way(outcome.counters)
            if way and (way in counters.blocks or len(counters.blocks) < MAX_BLOCK_WAYS):
                counters.blocks[way] = counters.blocks.get(way, 0) + 1
        if result == "done":
            counters.done += 1
            counters.records += len(outcome.records)
        elif result == "retry":
            counters.retries += 1
            _increment(counters.failed, outcome.cause)
        elif result == "dead":
            _increment(counters.failed, outcome.cause)
            _increment(counters.dead, outcome.cause)

    def count_attempt(self, lane: str, outcome: Outcome) -> None:
        """What a host has been asked, whether the queue takes the outcome or not."""
        attempt, lane = outcome.attempt, lane_without_cache(lane)
        cost = cost_of(outcome.counters)
        if cost != NOTHING:
            counters = self._counters
            counters.transferred += cost.bytes
            counters.proxy_bytes += cost.proxy
            counters.cpu_us += cost.cpu
            counters.browser_us += cost.browser
        if is_noticed(outcome.counters):
            self._count_noticed(host_of_lane(lane))
        if attempt is None or HITS in outcome.counters:
            return
        lane_counters = self._lanes.get(lane)
        if lane_counters is None:
            lane_counters = self._lanes[lane] = LaneCounters()
        lane_counters.transferred += cost.bytes
        lane_counters.proxy_bytes += cost.proxy
        lane_counters.cpu_us += cost.cpu
        lane_counters.browser_us += cost.browser
        if outcome.result == "done":
            lane_counters.done += 1
        elif outcome.result != "cancelled":
            lane_counters.failed += 1
            lane_counters.code_errors += error_class(outcome.cause) in CODE_ERRORS
        lane_counters.seconds += attempt.seconds
        lane_counters.bytes += attempt.size

    def _count_noticed(self, host: str) -> None:
        counters = self._counters
        counters.noticed += 1
        if host in counters.noticed_at or len(counters.noticed_at) < MAX_NOTICED_HOSTS:
            counters.noticed_at[host] = counters.noticed_at.get(host, 0) + 1

    def count_queue_call(self, seconds: float) -> None:
        """One question to the queue and its answer."""
        self._counters.asks += 1
        self._counters.ask_seconds += seconds

    def count_stale(self) -> None:
        self._counters.stale += 1

    def count_lost(self, leases: int) -> None:
        self._counters.lost += leases

    def watch_lag(self, on_counters: Callable[[bytes], None]) -> None:
        """Measure the event loop's lag at intervals, and pass on all counters but those of hosts."""
        loop, now = asyncio.get_running_loop(), self._clock()
        if self._next_check_at:
            self._lags.append(max(0.0, now - self._next_check_at))
        self._next_check_at = now + LAG_INTERVAL
        self._timer = loop.call_later(LAG_INTERVAL, self.watch_lag, on_counters)
        on_counters(self.encoded())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_check_at = 0.0

    @property
    def lag(self) -> float:
        """The longest that the event loop was held up lately, or is at this moment."""
        now = self._clock() - self._next_check_at if self._next_check_at else 0.0
        return round(max(now, *self._lags, 0.0), 4)

    def encoded(self) -> bytes:
        self._counters.lag = self.lag
        return encode(self._counters)

    def snapshot(self) -> Counters:
        """For the registry: everything, with the hosts that are busiest now."""
        return msgspec.structs.replace(self._counters, lag=self.lag, lanes=self._busiest(), exits=self.exits())

    def _busiest(self) -> dict[str, LaneCounters]:
        """Hosts by what they were asked since the last report, earlier ones less and less."""
        lanes = list(self._lanes.items())
        scores: dict[str, float] = {}
        for name, lane_counters in lanes:
            number = lane_counters.done + lane_counters.failed
            scores[name] = self._scores.get(name, 0.0) / 2 + number - self._reported.get(name, 0)
            self._reported[name] = number
        self._scores = scores
        if len(lanes) > MAX_TRACKED_LANES:
            self._forget_idle()
        # Quiet ones, too, while there is room: somebody looks at the history of each.
        return dict(sorted(lanes, key=lambda item: scores[item[0]], reverse=True)[:MAX_REPORTED_LANES])

    def _forget_idle(self) -> None:
        kept = sorted(self._scores, key=self._scores.__getitem__, reverse=True)[: MAX_TRACKED_LANES // 2]
        self._lanes = {name: self._lanes[name] for name in kept}
        self._reported = {name: self._reported[name] for name in kept}
        self._scores = {name: self._scores[name] for name in kept}


def _increment(counts: dict[str, int], cause: str) -> None:
    error_name = error_class(cause)
    counts[error_name] = counts.get(error_name, 0) + 1
