"""Hosting: what people decide about many hosts at once, in steps between which others get their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from shoal.control.acting import LONGEST, Acting
from shoal.core.lane import FOR_GOOD, LaneState
from shoal.core.task import LaneChange
from shoal.errors import Usage
from shoal.queue.base import Queue

STEP = 200  # hosts asked for in one question
TURN = 5  # hosts changed between two moments in which others get their turn
TOLD = 1_000  # names in an answer

Only = Literal["", "parked", "held", "ruled"]


class Which(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter over hosts. Filters hold together; with none of them every host is meant."""

    like: str = ""  # a part of the name
    only: Only = ""
    names: tuple[str, ...] = ()  # just these, at most STEP
    run: int | None = None  # only hosts of this run


class Touched(msgspec.Struct, frozen=True):
    """How many hosts were changed, or would be; `next`: there may be others, after this name."""

    count: int
    names: tuple[str, ...] = ()  # the first TOLD of them
    next: str = ""


# What is to be done is a LaneChange without a name.


def parking(seconds: float | None = None, reason: str = "parked by hand") -> LaneChange:
    """No request for so long, or until it is released."""
    return LaneChange("", park_for=FOR_GOOD if seconds is None else seconds, reason=reason)


def releasing() -> LaneChange:
    return LaneChange("", park_for=0.0)


def pacing(spacing: float | None = None, limit: int | None = None) -> LaneChange:
    """Seconds between two requests, and requests at once; below 0 takes back what was set."""
    return LaneChange("", rule=spacing, limit=limit)


async def count(
    queue: Queue, which: Which, change: LaneChange, *, seconds: float = 0.5, after: str = ""
) -> Touched:
    """Which hosts would be changed, as far as can be told in so many seconds."""
    found: list[str] = []
    ends = time.monotonic() + seconds
    async for page, last in matching(queue, which, change, after=after):
        found += [lane.name for lane in page]
        if last and time.monotonic() > ends:
            return Touched(len(found), tuple(found[:TOLD]), last)
    return Touched(len(found), tuple(found[:TOLD]))


async def change_hosts(
    queue: Queue, who: str, which: Which, change: LaneChange, *, seconds: float = LONGEST, after: str = ""
) -> Touched:
    """Change all that match, for so long at most; kept as one action of `who`, if anybody is named."""
    done: list[str] = []
    next, ends = "", time.monotonic() + seconds
    async for page, last in matching(queue, which, change, after=after):
        for first in range(0, len(page), TURN):
            for lane in page[first : first + TURN]:
                await queue.set_lane(msgspec.structs.replace(change, lane=lane.name))
                done.append(lane.name)
            await asyncio.sleep(0)
        if last and time.monotonic() > ends:
            next = last
            break
    if who:
        await Acting(queue, who).did(word_of(change), words_of(which), count=len(done), **_said(change))
    return Touched(len(done), tuple(done[:TOLD]), next)


async def matching(
    queue: Queue, which: Which, change: LaneChange, *, after: str = ""
) -> AsyncIterator[tuple[list[LaneState], str]]:
    """Hosts by name that match and that the change is for, a page at a time, and the name to go on after."""
    if len(which.names) > STEP:
        raise Usage(f"{len(which.names):,} hosts by name are too many", hint=f"{STEP} at once, or a filter")
    now = await queue.now()
    while True:
        page = await queue.lanes(
            run=which.run,
            limit=STEP,
            order="name",
            after=after,
            like=which.like.lower(),
            only=which.only,
            names=which.names,
        )
        after = page[-1].name if len(page) == STEP and not which.names else ""
        yield [lane for lane in page if _changes(change, lane, now)], after
        if not after:
            return
        await asyncio.sleep(0)


def _changes(change: LaneChange, lane: LaneState, now: int) -> bool:
    """Who is free needs no release, and what nobody has set is not taken back."""
    if change.park_for == 0.0:
        return lane.parked or lane.held_until > now
    if change.rule is not None and change.rule < 0 and change.limit is not None and change.limit < 0:
        return lane.rule >= 0 or lane.limit >= 0
    return True


def word_of(change: LaneChange) -> str:
    if change.park_for is None:
        return "pace"
    return "park" if change.park_for else "release"


def words_of(which: Which) -> str:
    """Which hosts, in words."""
    if len(which.names) == 1:
        return which.names[0]
    said = f"{which.only} hosts" if which.only else "hosts"
    if which.names:
        return f"{len(which.names)} chosen {said}"
    return f"{said} like {which.like}" if which.like else f"all {said}"


def _said(change: LaneChange) -> dict[str, Any]:
    if change.rule == -1.0 and change.limit == -1:
        return {"reset": True}
    seconds = change.park_for if change.park_for and change.park_for < FOR_GOOD else None
    return {"seconds": seconds, "reason": change.reason, "spacing": change.rule, "limit": change.limit}
