"""Slot: the moment at which a lane lets one request go, kept to within a twentieth of its spacing."""

from __future__ import annotations

import asyncio
import random

from shoal.core.lane import Pace, Slot
from shoal.errors import Retry
from shoal.worker.context import WorkerContext
from shoal.worker.postponed import TaskPostponed

# Of the spacing; whoever comes later takes a new slot, so that slots are never bunched. A twentieth is
# promised, and the way of the queue's answer takes some of it.
TOLERANCE = 0.04
MAX_SLOT_WAIT = 60.0  # a slot further away is not worth waiting for in this worker
MAX_TRIES = 5


class NewSlotNeeded(Exception):
    """Nothing of the task has been asked for yet, and it has to wait for another slot: it need not take up a place."""

    def __init__(self, spacing: float) -> None:
        super().__init__(spacing)
        self.spacing = spacing


async def wait_until(context: WorkerContext, at: float, spacing: float) -> bool:
    """Sleep until `at`; False if that moment was missed."""
    delay = at - context.clock()
    if delay > 0:
        await asyncio.sleep(delay)
    return context.clock() - at <= spacing * TOLERANCE


async def wait_for_jitter(jitter: float, spacing: float, asked: float) -> None:
    """Wait for some of the jitter after a slot: from one request to the next it is the spacing ± the jitter.

    Only where the spacing is what the run itself asks for: of a crawl-delay nothing is taken away.
    """
    if 0 < spacing <= asked * (1 + TOLERANCE):
        await asyncio.sleep(random.uniform(0.0, min(jitter, spacing)))


async def wait_for_hold(context: WorkerContext, lane: str) -> bool:
    """Wait while a host that asked for quiet is to be left alone; says whether it did."""
    held = context.lane_holds.remaining(lane)
    if held > MAX_SLOT_WAIT:
        raise TaskPostponed(f"{lane} is held for {held:.0f} s")
    if held:
        await asyncio.sleep(held)
    return held > 0


async def take_new_slot(context: WorkerContext, lane: str, spacing: float) -> Slot:
    """The next slot of the task's own lane."""
    reserved = await context.queue.reserve(lane, within=max(MAX_SLOT_WAIT, 2 * spacing))
    if not reserved.taken:
        raise TaskPostponed(reserved.parked or f"the next slot of {lane} is {reserved.wait:.0f} s away")
    return reserved


async def reserve(context: WorkerContext, lane: str, spacing: float) -> None:
    """Wait for a new slot of the task's own lane."""
    for _ in range(MAX_TRIES):
        reserved = await take_new_slot(context, lane, spacing)
        if await wait_until(context, context.clock() + reserved.wait, max(reserved.spacing, spacing)):
            return
    raise TaskPostponed(f"too busy to use a slot of {lane}")


async def reserve_other_lane(context: WorkerContext, lane: str, pace: Pace) -> None:
    """A slot of another lane, where a redirect leads. Handed back, the task would come again at once."""
    held = context.lane_holds.remaining(lane)
    if held > MAX_SLOT_WAIT:
        raise Retry("lane_busy", f"{lane} is held for {held:.0f} s", after=held)
    if held:
        await asyncio.sleep(held)
    for _ in range(MAX_TRIES):
        reserved = await context.queue.reserve(lane, pace, within=max(MAX_SLOT_WAIT, 2 * pace.spacing))
        if not reserved.taken:
            booked = f"{lane} is booked for {reserved.wait:.0f} s"
            raise Retry(
                "lane_busy", f"{lane} is parked: {reserved.parked}" if reserved.parked else booked, after=reserved.wait
            )
        if not reserved.wait or await wait_until(context, context.clock() + reserved.wait, reserved.spacing):
            return
    raise TaskPostponed(f"too busy to use a slot of {lane}")
