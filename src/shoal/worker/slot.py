"""Slot: the moment at which a lane lets one request go, kept to within a twentieth of its spacing."""

from __future__ import annotations

import asyncio

from shoal.core.lane import Pace
from shoal.errors import Retry
from shoal.worker.tools import Tools

# Of the spacing; whoever comes later takes a new slot, so that slots are never bunched. A twentieth is
# promised, and the way of the queue's answer takes some of it.
TOLERANCE = 0.04
PATIENCE = 60.0  # a slot further away is not worth a place in this worker
_TRIES = 5


class NotNow(Exception):
    """The task cannot go on at this moment, through no fault of its own."""


async def wait_until(tools: Tools, at: float, spacing: float) -> bool:
    """Sleep until `at`; False if that moment was missed."""
    delay = at - tools.clock()
    if delay > 0:
        await asyncio.sleep(delay)
    return tools.clock() - at <= spacing * TOLERANCE


async def wait_for_quiet(tools: Tools, lane: str) -> bool:
    """Wait while a host that asked for quiet is to be left alone; says whether it did."""
    held = tools.holds.seconds(lane)
    if held > PATIENCE:
        raise NotNow(f"{lane} is held for {held:.0f} s")
    if held:
        await asyncio.sleep(held)
    return held > 0


async def take(tools: Tools, lane: str, spacing: float) -> None:
    """A new slot of the task's own lane."""
    patience = max(PATIENCE, 2 * spacing)
    for _ in range(_TRIES):
        slot = await tools.queue.reserve(lane, within=patience)
        if not slot.taken:
            raise NotNow(slot.parked or f"the next slot of {lane} is {slot.wait:.0f} s away")
        if await wait_until(tools, tools.clock() + slot.wait, max(slot.spacing, spacing)):
            return
    raise NotNow(f"too busy to keep a slot of {lane}")


async def take_elsewhere(tools: Tools, lane: str, pace: Pace) -> None:
    """A slot of another lane, where a redirect leads. Handed back, the task would come again at once."""
    held = tools.holds.seconds(lane)
    if held > PATIENCE:
        raise Retry("lane_busy", f"{lane} is held for {held:.0f} s", after=held)
    if held:
        await asyncio.sleep(held)
    for _ in range(_TRIES):
        slot = await tools.queue.reserve(lane, pace, within=max(PATIENCE, 2 * pace.spacing))
        if not slot.taken:
            booked = f"{lane} is booked for {slot.wait:.0f} s"
            raise Retry(
                "lane_busy", f"{lane} is parked: {slot.parked}" if slot.parked else booked, after=slot.wait
            )
        if not slot.wait or await wait_until(tools, tools.clock() + slot.wait, slot.spacing):
            return
    raise NotNow(f"too busy to keep a slot of {lane}")
