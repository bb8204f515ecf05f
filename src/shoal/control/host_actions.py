"""Actions on many hosts at once, in steps between which others get their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from shoal.control.actions import MAX_SECONDS, UserActions
from shoal.core.lane import INDEFINITELY, LaneState
from shoal.core.task import LaneChange
from shoal.errors import UsageError
from shoal.queue.base import Queue

PAGE_SIZE = 200  # hosts asked for in one question
BATCH_SIZE = 5  # hosts changed between two moments in which others get their turn
MAX_NAMES = 1_000  # names in an answer

HostCondition = Literal["", "parked", "held", "overridden"]


class HostSelection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter over hosts. Filters hold together; with none of them every host is meant."""

    like: str = ""  # a part of the name
    only: HostCondition = ""
    names: tuple[str, ...] = ()  # just these, at most STEP
    run: int | None = None  # only hosts of this run


class ChangedHosts(msgspec.Struct, frozen=True):
    """How many hosts were changed, or would be; `next`: there may be others, after this name."""

    count: int
    names: tuple[str, ...] = ()  # the first TOLD of them
    next: str = ""


# What is to be done is a LaneChange without a name.


def park_change(seconds: float | None = None, reason: str = "parked by hand") -> LaneChange:
    """No request for so long, or until it is released."""
    return LaneChange("", park_for=INDEFINITELY if seconds is None else seconds, reason=reason)


def release_change() -> LaneChange:
    return LaneChange("", park_for=0.0)


def forget_change() -> LaneChange:
    """What its answers and its robots.txt taught: a slower pace, a hold, or that it was parked for failing."""
    return LaneChange("", spacing=0.0, park_for=0.0)


def change_for(change: LaneChange, lane: LaneState, now: int) -> LaneChange:
    """The change of one host: one that a person parked until it is released stays so, whatever is forgotten."""
    stays = change.spacing is not None and lane.is_held_indefinitely(now)
    return msgspec.structs.replace(change, lane=lane.name, park_for=None if stays else change.park_for)


def pace_change(spacing: float | None = None, limit: int | None = None) -> LaneChange:
    """Seconds between two requests, and requests at once; below 0 takes back what was set."""
    return LaneChange("", spacing_override=spacing, limit=limit)


async def count_hosts(
    queue: Queue, which: HostSelection, change: LaneChange, *, seconds: float = 0.5, after: str = ""
) -> ChangedHosts:
    """Which hosts would be changed, as far as can be told in so many seconds."""
    found: list[str] = []
    ends = time.monotonic() + seconds
    async for page, last in matching_hosts(queue, which, change, after=after):
        found += [lane.name for lane in page]
        if last and time.monotonic() > ends:
            return ChangedHosts(len(found), tuple(found[:MAX_NAMES]), last)
    return ChangedHosts(len(found), tuple(found[:MAX_NAMES]))


async def change_hosts(
    queue: Queue,
    actor: UserActions | None,
    which: HostSelection,
    change: LaneChange,
    *,
    seconds: float = MAX_SECONDS,
    after: str = "",
) -> ChangedHosts:
    """Change all that match, for so long at most; kept as one action of `actor`, if there is one."""
    done: list[str] = []
    next, ends, now = "", time.monotonic() + seconds, await queue.now()
    async for page, last in matching_hosts(queue, which, change, after=after):
        for first in range(0, len(page), BATCH_SIZE):
            for lane in page[first : first + BATCH_SIZE]:
                await queue.set_lane(change_for(change, lane, now))
                done.append(lane.name)
            await asyncio.sleep(0)
        if last and time.monotonic() > ends:
            next = last
            break
    if actor is not None:
        await actor.log_action(action_name(change), describe_filter(which), count=len(done), **change_details(change))
    return ChangedHosts(len(done), tuple(done[:MAX_NAMES]), next)


async def matching_hosts(
    queue: Queue, which: HostSelection, change: LaneChange, *, after: str = ""
) -> AsyncIterator[tuple[list[LaneState], str]]:
    """Hosts by name that match and that the change is for, a page at a time, and the name to go on after."""
    if len(which.names) > PAGE_SIZE:
        raise UsageError(f"{len(which.names):,} hosts by name are too many", hint=f"{PAGE_SIZE} at once, or a filter")
    now = await queue.now()
    while True:
        page = await queue.lanes(
            run=which.run,
            limit=PAGE_SIZE,
            order="name",
            after=after,
            like=which.like.lower(),
            only=which.only,
            names=which.names,
        )
        after = page[-1].name if len(page) == PAGE_SIZE and not which.names else ""
        yield [lane for lane in page if _would_change(change, lane, now)], after
        if not after:
            return
        await asyncio.sleep(0)


def _would_change(change: LaneChange, lane: LaneState, now: int) -> bool:
    """Who is free needs no release, and what nobody has set or learnt is not taken back."""
    if change.spacing is not None:
        return lane.learned > 0 or (lane.held_until > now and not lane.is_held_indefinitely(now))
    if change.park_for == 0.0:
        return lane.parked or lane.held_until > now
    spacing, limit = change.spacing_override, change.limit
    if spacing is not None and spacing < 0 and limit is not None and limit < 0:
        return lane.spacing_override >= 0 or lane.limit >= 0
    return True


def action_name(change: LaneChange) -> str:
    if change.spacing is not None:
        return "forget"
    if change.park_for is None:
        return "pace"
    return "park" if change.park_for else "release"


def describe_filter(which: HostSelection) -> str:
    """Which hosts, in words."""
    if len(which.names) == 1:
        return which.names[0]
    said = f"{which.only} hosts" if which.only else "hosts"
    if which.names:
        return f"{len(which.names)} selected {said}"
    return f"{said} like {which.like}" if which.like else f"all {said}"


def change_details(change: LaneChange) -> dict[str, Any]:
    if change.spacing_override == -1.0 and change.limit == -1:
        return {"reset": True}
    seconds = change.park_for if change.park_for and change.park_for < INDEFINITELY else None
    return {"seconds": seconds, "reason": change.reason, "spacing": change.spacing_override, "limit": change.limit}
