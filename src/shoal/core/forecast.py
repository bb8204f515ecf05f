"""Forecast: when a run ends, and which host decides it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.core.lane import LaneState
from shoal.core.stats import Stats

# Nothing more is expected when none was found for so long, and not while so many pages were fetched.
QUIET_SECONDS, QUIET_PAGES = 30.0, 20


class Forecast(msgspec.Struct, frozen=True):
    seconds: float | None  # None: nobody can tell
    lane: str = ""  # the host that decides the end, if one does
    lane_left: int = 0
    lane_spacing: float = 0.0
    lane_held: float = 0.0  # seconds before it takes any request at all
    others: float = 0.0  # when everything else is done
    at_least: bool = False  # pages are still being found: it takes this long, and longer with each of them


def lane_seconds(lane: LaneState, now: int) -> float:
    """The least time a lane needs for what waits in it."""
    return held_seconds(lane, now) + lane.ready * lane.spacing if lane.ready else 0.0


def held_seconds(lane: LaneState, now: int) -> float:
    return max(0.0, (lane.held_until - now) / 1e6)


def forecast(
    stats: Stats,
    lanes: Sequence[LaneState],
    *,
    rate: float,
    now: int,
    max_pages: int = 0,
    found_at: int = 0,
    seeding: bool = False,
) -> Forecast:
    """Combine the pace of hosts with the pages per second seen lately (0: unknown).

    found_at: when a page was last found that was not known before (0: none was). seeding: some are still added.
    """
    left, room = stats.open, max(0, max_pages - stats.ended_pages)
    if max_pages:
        left = min(left, room)
    if not left:
        return Forecast(0.0, at_least=seeding)
    ahead = _forecast_open(left, lanes, rate=rate, now=now)
    if max_pages and stats.open >= room:
        return ahead  # whatever else is found will not be fetched
    quiet = max(QUIET_SECONDS, QUIET_PAGES / rate if rate > 0 else 0.0)
    growing = seeding or bool(stats.away) or not stats.done or (found_at > 0 and now - found_at < quiet * 1e6)
    return msgspec.structs.replace(ahead, at_least=growing)


def _forecast_open(left: int, lanes: Sequence[LaneState], *, rate: float, now: int) -> Forecast:
    """As if no page were ever found again."""
    if any(lane.ready and lane.is_held_indefinitely(now) for lane in lanes):
        return Forecast(None)
    ranked = sorted(((lane_seconds(lane, now), lane) for lane in lanes), key=lambda pair: -pair[0])
    slowest, lane = ranked[0] if ranked else (0.0, None)
    if lane is not None and lane.spacing:
        slowest = min(slowest, lane_seconds(lane, now) - max(0, lane.ready - left) * lane.spacing)
    flow = left / rate if rate > 0 else None
    if lane is None or slowest <= 0 or (flow is not None and flow > slowest * 1.5):
        return Forecast(flow)
    rest = left - lane.ready
    others = max(ranked[1][0] if len(ranked) > 1 else 0.0, rest / rate if rate > 0 and rest > 0 else 0.0)
    # A host decides when it takes clearly longer than all the others together with it would.
    decides = slowest > others * 1.25
    return Forecast(
        seconds=max(slowest, others),
        lane=lane.name if decides else "",
        lane_left=lane.ready,
        lane_spacing=lane.spacing,
        lane_held=held_seconds(lane, now),
        others=min(others, slowest),
    )
