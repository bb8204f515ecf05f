"""Hosts as people see them: who set their pace, and why they get no requests."""

from __future__ import annotations

from difflib import get_close_matches

from shoal.control import actions
from shoal.core.lane import LaneState
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.formatting import format_hold

MAX_CANDIDATES = 200  # hosts among which a name that was mistyped is looked for


def is_adjusted(lane: LaneState, now: int) -> bool:
    """Whether somebody, or its own answers, made it other than it would be."""
    return lane.spacing_override >= 0 or lane.limit >= 0 or lane.parked or lane.held_until > now


def pace_set_by(lane: LaneState) -> str:
    """Who set the pace that is in force."""
    if lane.spacing_override >= 0 or lane.limit >= 0:
        return "a person"
    if lane.learned > lane.requested:
        return "its answers"
    return "the run" if lane.spacing else ""


def hold_reason(lane: LaneState, now: int) -> str:
    """Why it gets no requests now; empty where it does."""
    if lane.held_until <= now:
        return ""
    word = "parked" if lane.parked else "slowed down"
    return f"{word} {format_hold(lane, now)}" + (f": {lane.reason}" if lane.reason else "")


async def rank_hosts(queue: Queue, now: int, *, run: int | None = None, limit: int = 50) -> list[LaneState]:
    """Those that somebody or their answers changed first, then those with the most waiting."""
    first: dict[str, LaneState] = {}
    for only in ("overridden", "held"):
        for lane in await queue.lanes(run=run, only=only, limit=limit):
            first.setdefault(lane.name, lane)
    for lane in await queue.lanes(run=run, limit=limit):
        first.setdefault(lane.name, lane)
    return sorted(first.values(), key=lambda lane: not is_adjusted(lane, now))[:limit]


async def require_host(queue: Queue, host: str) -> LaneState:
    """The host people mean; one that no run has met is an error, with the nearest that there is."""
    word = actions.parse_host(host)
    if word and (found := await actions.find_host(queue, host)) is not None:
        return found
    near = [lane.name for lane in await queue.lanes(like=word, limit=3)] if word else []
    if not near:
        names = [lane.name for lane in await queue.lanes(like=word[:3], limit=MAX_CANDIDATES)] if word else []
        names += [lane.name for lane in await queue.lanes(limit=MAX_CANDIDATES)]
        near = get_close_matches(word, dict.fromkeys(names), n=3, cutoff=0.75)
    raise UsageError(
        f"no run knows the host {word or host}",
        hint=f"did you mean {' or '.join(near)}?" if near else "shoal hosts lists them",
    )
