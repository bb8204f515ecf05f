"""PushInbox: tasks that were pushed to this worker, and how much room it has for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.worker.claimer import Claimer
from shoal.worker.leases import Leases
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.crash_note import CrashNote

HAND_BACK_WAIT = 1.0  # seconds for batches that are on their way while the worker is being stopped


class PushInbox:
    def __init__(
        self,
        claimer: Claimer,
        leases: Leases,
        note: CrashNote,
        concurrency: int,
        on_ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._claimer = claimer
        self._leases = leases
        self._note = note
        self._concurrency = concurrency
        self._on_ended = on_ended  # whatever it raised is the worker's to tell
        self._taken = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def put(self, batch: PushedBatch) -> None:
        task = asyncio.create_task(self._take_over(batch), name="take-over")
        self.tasks.add(task)
        task.add_done_callback(self._end)

    def write_load(self) -> None:
        places = self._concurrency if self._claimer.is_taking else 0
        self._note.write_load(len(self._leases), places, self._taken)

    async def settle_down(self) -> None:
        """What is on its way comes, so that it can be handed back with everything else."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=HAND_BACK_WAIT)

    async def _take_over(self, batch: PushedBatch) -> None:
        await self._claimer.take_over(batch.claim, batch.sent)
        self._taken += 1
        self.write_load()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._on_ended(task)
