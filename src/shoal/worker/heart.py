"""Heart: renews a worker's leases from a thread of its own, so that a slow handler does not lose them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable

import msgspec

from shoal.core.lane import Mark
from shoal.errors import QueueFull, QueueReadOnly, QueueUnavailable
from shoal.queue.base import Extended, Queue
from shoal.version import __version__
from shoal.worker.leases import Leases

log = logging.getLogger("shoal.worker")

RETRY = 1.0  # seconds between beats while they fail


class Heart:
    """One beat renews every lease with one write and says in the registry that the worker lives."""

    def __init__(
        self,
        worker: str,
        name: str,
        leases: Leases,
        *,
        every: float,
        clock: Callable[[], float],
        heard: Callable[[Extended], None],
    ) -> None:
        self._worker = worker
        self._leases = leases
        self._every = every
        self._clock = clock
        self._heard = heard  # called in the heart's thread
        self._mark = Mark(
            id=worker,
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_at=0,
            seen_at=0,
        )

    async def beat(self, queue: Queue) -> None:
        report = self._leases.report()
        sent = self._clock()
        if report:
            answer = await queue.extend(self._worker, report, lease=self._leases.seconds)
            self._leases.confirm((number for number in report if number not in answer.lost), sent)
            if answer.lost or answer.cancelled:
                self._heard(answer)
        await queue.register(self._marked(await queue.now(), sum(map(len, report.values()))))

    def _marked(self, now: int, started: int) -> Mark:
        self._mark = msgspec.structs.replace(
            self._mark,
            started_at=self._mark.started_at or now,
            seen_at=now,
            doing=f"{started} pages" if started else "",
            leased=len(self._leases),
        )
        return self._mark

    async def beats(self, queue: Queue, stop: asyncio.Event) -> None:
        """Beat until stopped. What passes is tried again soon: the worker itself watches the time left."""
        failing = False
        while not stop.is_set():
            pause = self._every
            try:
                await self.beat(queue)
                failing = False
            except (QueueUnavailable, QueueFull, QueueReadOnly) as error:
                if not failing:
                    log.warning("heartbeat_failing", extra={"worker": self._worker, "error": str(error)})
                failing = True
                pause = min(RETRY, self._every)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)


class HeartThread:
    """Runs a heart beside the event loop it must not depend on."""

    def __init__(
        self,
        heart: Heart,
        open_queue: Callable[[], Awaitable[Queue]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._heart = heart
        self._open = open_queue
        self._failed = failed  # called in the heart's thread
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._ended.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop may be closed already
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, 2.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._beats())
        except Exception as error:  # noqa: BLE001 - handed to the worker, which ends with it
            self._failed(error)

    async def _beats(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        queue = await self._open()
        try:
            if not self._ended.is_set():
                await self._heart.beats(queue, self._stop)
        finally:
            await queue.close()
