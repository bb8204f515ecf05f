"""MissedSlots: who is too late for a slot, or comes to a host that wants quiet, waits for a new one without a place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from shoal.errors import QueueRefused
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.buffer import BufferedTask, TaskBuffer
from shoal.worker.context import WorkerContext
from shoal.worker.postponed import TaskPostponed
from shoal.worker.task import slot

RESERVES_AT_ONCE = 16


class MissedSlots:
    def __init__(
        self,
        context: WorkerContext,
        buffer: TaskBuffer,
        release: Callable[[Iterable[BufferedTask]], None],
        on_ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._context = context
        self._buffer = buffer
        self._release = release
        self._on_ended = on_ended
        self._reserving = asyncio.Semaphore(RESERVES_AT_ONCE)
        self._waiting: dict[asyncio.Task[None], BufferedTask] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def must_wait(self, buffered: BufferedTask, now: float) -> bool:
        """Whether a task that could be started is too late for its slot, or too early for its host."""
        task, context = buffered.task, self._context
        is_late = bool(task.spacing) and now - buffered.start_at > task.spacing * slot.TOLERANCE
        if not is_late and not (context.lane_holds and context.lane_holds.remaining(task.lane)):
            return False
        # What is given up unasked needs no slot.
        return not task.garbled and context.health.down_reason(task.lane, now=now, probe=task.probe) is None

    def put(self, buffered: BufferedTask, spacing: float = 0.0) -> None:
        """Get it a new slot; spacing: what its host asks for, where that is more than its task knows."""
        if spacing > buffered.task.spacing:
            buffered = BufferedTask(replace(buffered.task, spacing=spacing), buffered.start_at, buffered.missed)
        task = asyncio.create_task(self._take_new(buffered), name="missed-slot")
        self._waiting[task] = buffered
        task.add_done_callback(self._end)

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
            async with self._reserving:
                reserved = await slot.take_new_slot(context, task.lane, task.spacing)
        except (TaskPostponed, QueueRefused, *TRANSIENT_ERRORS):
            self._release([buffered])
        else:
            self._buffer.put([BufferedTask(task, context.clock() + reserved.wait, buffered.missed + 1)])

    def _end(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        self._on_ended(task)
