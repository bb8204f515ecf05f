"""MissedSlots: who is too late for a slot, or comes to a host that wants quiet, waits for a new one without a place.

Hosts that are begun together have their slots at the same moments, spacing after spacing. Where these are more than a
worker has places, whoever found none would find none the next time, and so for the whole crawl. So it lets the next
slot pass, and takes one that is not in step with the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from shoal.errors import QueueRefused
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.buffer import BufferedTask, TaskBuffer
from shoal.worker.context import WorkerContext
from shoal.worker.places import Places
from shoal.worker.postponed import TaskPostponed
from shoal.worker.task import slot

RESERVES_AT_ONCE = 16
OUT_OF_STEP = 4.0  # times what a task takes, at most: by then those who came in time have ended


class MissedSlots:
    def __init__(
        self,
        context: WorkerContext,
        buffer: TaskBuffer,
        places: Places,
        release: Callable[[Iterable[BufferedTask]], None],
        on_ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._context = context
        self._buffer = buffer
        self._places = places
        self._release = release
        self._on_ended = on_ended
        self._reserving = asyncio.Semaphore(RESERVES_AT_ONCE)
        self._waiting: dict[asyncio.Task[None], BufferedTask] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def count_within(self, seconds: float) -> int:
        """How many ask for their new slot so soon: each may get one that has come already."""
        last = self._context.clock() + seconds
        return sum(buffered.start_at <= last for buffered in self._waiting.values())

    def must_wait(self, buffered: BufferedTask, now: float) -> bool:
        """Whether a task that could be started is too late for its slot, or too early for its host."""
        task, context = buffered.task, self._context
        is_late = bool(task.spacing) and now - buffered.start_at > task.spacing * slot.TOLERANCE
        if not is_late and not (context.lane_holds and context.lane_holds.remaining(task.lane)):
            return False
        # What is given up unasked needs no slot.
        return not task.garbled and context.health.down_reason(task.lane, now=now, probe=task.probe) is None

    def put(self, buffered: BufferedTask, spacing: float = 0.0) -> None:
        """Get it a new slot. spacing: what its host asks for, where it was in time and found that out too late."""
        task, now = buffered.task, self._context.clock()
        again_at = now if spacing else now + self._seconds_to_other_step(buffered, now)
        again_at = max(again_at, now + self._context.lane_holds.remaining(task.lane))
        if spacing > task.spacing:
            task = replace(task, spacing=spacing)
        waiting = BufferedTask(task, again_at, buffered.missed)
        taking = asyncio.create_task(self._take_new(waiting), name="missed-slot")
        self._waiting[taking] = waiting
        taking.add_done_callback(self._end)

    def _seconds_to_other_step(self, buffered: BufferedTask, now: float) -> float:
        """Until a moment after the next slot of its host, which nobody uses if it has no other tasks under way."""
        late, spacing = now - buffered.start_at, buffered.task.spacing
        found_no_place = self._places.full_until >= buffered.start_at
        if not found_no_place or not spacing * slot.TOLERANCE < late < spacing:
            return 0.0
        return spacing - late + self._context.jitter() * min(spacing, OUT_OF_STEP * self._places.task_seconds())

    def remove(self, leases: Collection[int] | None = None) -> list[BufferedTask]:
        """Remove what belongs to some leases, or everything."""
        removed = []
        for task, buffered in list(self._waiting.items()):
            if leases is None or buffered.task.lease in leases:
                task.cancel()
                del self._waiting[task]
                removed.append(buffered)
        return removed

    async def _take_new(self, buffered: BufferedTask) -> None:
        context, task = self._context, buffered.task
        try:
            if buffered.missed >= slot.MAX_TRIES:
                raise TaskPostponed(f"too busy to use a slot of {task.lane}")
            await slot.wait_for_hold(context, task.lane)
            await asyncio.sleep(buffered.start_at - context.clock())  # where that is later than the end of a hold
            async with self._reserving:
                reserved = await slot.take_new_slot(context, task.lane, task.spacing)
        except (TaskPostponed, QueueRefused, *TRANSIENT_ERRORS):
            self._release([buffered])
        else:
            self._buffer.put([BufferedTask(task, context.clock() + reserved.wait, buffered.missed + 1)])

    def _end(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        self._on_ended(task)
