"""The heartbeat: renews a worker's leases from its own thread, so that a slow handler does not lose them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from shoal.core.lane import WorkerStatus
from shoal.queue.base import ExtendResult, Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.leases import Leases

log = logging.getLogger("shoal.worker")

RETRY_INTERVAL = 1.0  # seconds between beats while they fail
MAX_INTERVAL = 5.0  # seconds between beats, however long leases last: people look at the registry


class Heartbeat:
    """One beat renews every lease with one write and says in the registry that the worker lives."""

    def __init__(
        self,
        worker: str,
        leases: Leases,
        *,
        interval: float,
        clock: Callable[[], float],
        on_extended: Callable[[ExtendResult], None],
        on_command: Callable[[str], None],
        worker_status: Callable[[int], WorkerStatus],
    ) -> None:
        self._worker = worker
        self._leases = leases
        self._interval = min(interval, MAX_INTERVAL)
        self._clock = clock
        self._on_extended = on_extended  # called in the heartbeat thread, as the next two are
        self._on_command = on_command  # what a person wants of this worker, whenever that changes
        self._worker_status = worker_status  # how the worker is, at that time of the store
        self._last_command = ""

    async def beat(self, queue: Queue) -> None:
        report = self._leases.started_tasks()
        sent = self._clock()
        if report:
            answer = await queue.extend(self._worker, report, lease=self._leases.seconds)
            self._leases.confirm((number for number in report if number not in answer.lost), sent)
            if answer.lost or answer.cancelled:
                self._on_extended(answer)
        command = await queue.register(self._worker_status(await queue.now()))
        if command != self._last_command:
            self._last_command = command
            self._on_command(command)

    async def run(self, queue: Queue, stop: asyncio.Event) -> None:
        """Beat until stopped. What passes is tried again soon: the worker itself watches the time left."""
        is_failing = False
        while not stop.is_set():
            pause = self._interval
            try:
                await self.beat(queue)
                is_failing = False
            except TRANSIENT_ERRORS as error:
                if not is_failing:
                    log.warning("heartbeat_failing", extra={"worker": self._worker, "error": str(error)})
                is_failing = True
                pause = min(RETRY_INTERVAL, self._interval)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)


class HeartbeatThread:
    """Runs the heartbeat in a thread, independent of the worker's event loop."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        open_queue: Callable[[], Awaitable[Queue]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._heartbeat = heartbeat
        self._open_queue = open_queue
        self._on_failure = on_failure  # called in the heartbeat thread
        self._is_stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._is_stopped.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop may be closed already
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, 2.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._run_until_stopped())
        except Exception as error:  # noqa: BLE001 - handed to the worker, which ends with it
            self._on_failure(error)

    async def _run_until_stopped(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        queue = await self._open_when_reachable(self._stop)
        if queue is None:
            return
        try:
            if not self._is_stopped.is_set():
                await self._heartbeat.run(queue, self._stop)
        finally:
            await queue.close()

    async def _open_when_reachable(self, stop: asyncio.Event) -> Queue | None:
        """A server that is away for a moment is no reason to give up: the worker's outage timeout decides."""
        while not self._is_stopped.is_set():
            try:
                return await self._open_queue()
            except TRANSIENT_ERRORS:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RETRY_INTERVAL)
        return None
