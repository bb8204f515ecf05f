"""Host limits: what keeps a host below the pace that a run asks for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from shoal.config.load import Settings
from shoal.config.run_settings import SETTINGS_KEY
from shoal.core.forecast import lane_seconds
from shoal.core.lane import UNLIMITED_PACE, LaneState, Pace
from shoal.core.routes import Routes
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.queue.base import Queue
from shoal.runs.identity import is_single_process
from shoal.runs.local_lock import LocalLock

LimitKind = Literal["held", "override", "learned", "other_run", "in_flight"]
MAX_HOSTS = 3  # of a run, those that need the longest
MAX_RIVALS = 20  # other runs among which it is looked for the one that asks for a slower pace
_TOLERANCE = 1.01  # the queue rounds
_EVERY_PRIVATE = PrivateNetworkPolicy(allow_all=True)  # hosts that have no pace unless a run asks for one


class HostLimit(msgspec.Struct, frozen=True):
    """Why one host gets fewer requests than a run asks for."""

    lane: LaneState
    kind: LimitKind
    asked: float = 0.0  # spacing, by the run
    run: str = ""  # the other run whose slower pace counts
    is_idle: bool = False  # nobody works on that run


async def find_host_limits(
    queue: Queue, settings: Settings, run: Run, lanes: Iterable[LaneState], now: int
) -> tuple[HostLimit, ...]:
    """What holds back the hosts that need the longest for what waits; nothing of those that go as fast as asked."""
    busy = sorted((lane for lane in lanes if lane.ready), key=lambda lane: -lane_seconds(lane, now))
    found: list[HostLimit] = []
    for lane in busy:
        limit = host_limit(lane, asked_spacing(run, lane.name), now)
        if limit is not None and limit.kind == "other_run":
            limit = await _slower_run(queue, settings, run, limit)
        if limit is not None:
            found.append(limit)
        if len(found) == MAX_HOSTS:
            break
    return tuple(found)


def host_limit(lane: LaneState, asked: float, now: int) -> HostLimit | None:
    """The one that decides: a hold, then what sets the spacing, then requests in flight."""
    if lane.held_until > now:
        return HostLimit(lane, "held", asked)
    if lane.spacing > asked * _TOLERANCE:
        if lane.spacing_override >= 0:
            return HostLimit(lane, "override", asked)
        return HostLimit(lane, "learned" if lane.learned > lane.requested else "other_run", asked)
    # A host whose next slot has passed unused waits for a place, not for its pace.
    if lane.max_in_flight and lane.in_flight >= lane.max_in_flight and lane.next_at <= now:
        return HostLimit(lane, "in_flight", asked)
    return None


def asked_spacing(run: Run, lane: str) -> float:
    """Seconds between two requests to a host, as the run's own settings have it."""
    given = run.spec.get(SETTINGS_KEY)
    given = given if isinstance(given, dict) else {}
    rate, delay = given.get("rate"), given.get("delay")
    if isinstance(rate, int | float) and rate > 0:
        usual = 1 / rate
    elif isinstance(delay, int | float):
        usual = max(0.0, delay)
    else:
        usual = UNLIMITED_PACE.spacing if _EVERY_PRIVATE.covers(lane) else Settings().delay
    routes = given.get("routes")
    if not isinstance(routes, list) or not routes:
        return usual
    try:
        return _routes(tuple(map(str, routes))).pace(lane, Pace(usual, 0)).spacing
    except UsageError:  # of a newer version, or of nobody who checks
        return usual


@lru_cache(maxsize=100)
def _routes(lines: tuple[str, ...]) -> Routes:
    return Routes(lines)


async def _slower_run(queue: Queue, settings: Settings, run: Run, limit: HostLimit) -> HostLimit | None:
    """The same with the run that asks for it; None where no other does: then it is this run's own pace."""
    others = await queue.runs(states=("running", "paused"), limit=MAX_RIVALS + 1)
    name = limit.lane.name
    for other in others:
        if other.id == run.id or asked_spacing(other, name) * _TOLERANCE < limit.lane.spacing:
            continue
        if await queue.lanes(run=other.id, names=(name,), limit=1):
            return msgspec.structs.replace(limit, run=other.name, is_idle=_is_idle(settings, other))
    return None


def _is_idle(settings: Settings, run: Run) -> bool:
    if run.state == "paused":
        return True
    here = is_single_process(run) and settings.state_file is not None
    return here and LocalLock.is_abandoned(settings.state_folder, run.key)
