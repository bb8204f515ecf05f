"""Heart: renews a worker's leases from a thread of its own, so that a slow handler does not lose them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from shoal.core.lane import Mark
from shoal.errors import QueueFull, QueueReadOnly, QueueUnavailable
from shoal.queue.base import Extended, Queue
from shoal.worker.leases import Leases

log = logging.getLogger("shoal.worker")

RETRY = 1.0  # seconds between beats while they fail
SLOWEST = 5.0  # seconds between beats, however long leases last: people look at the registry
_PASSING = (QueueUnavailable, QueueFull, QueueReadOnly)


class Heart:
    """One beat renews every lease with one write and says in the registry that the worker lives."""

    def __init__(
        self,
        worker: str,
        leases: Leases,
        *,
        every: float,
        clock: Callable[[], float],
        heard: Callable[[Extended], None],
        asked: Callable[[str], None],
        mark: Callable[[int], Mark],
    ) -> None:
        self._worker = worker
        self._leases = leases
        self._every = min(every, SLOWEST)
        self._clock = clock
        self._heard = heard  # called in the heart's thread, as the next two are
        self._asked = asked  # what a person wants of this worker, whenever that changes
        self._mark = mark  # how the worker is, at that time of the store
        self._last = ""

    async def beat(self, queue: Queue) -> None:
        report = self._leases.report()
        sent = self._clock()
        if report:
            answer = await queue.extend(self._worker, report, lease=self._leases.seconds)
            self._leases.confirm((number for number in report if number not in answer.lost), sent)
            if answer.lost or answer.cancelled:
                self._heard(answer)
        asked = await queue.register(self._mark(await queue.now()))
        if asked != self._last:
            self._last = asked
            self._asked(asked)

    async def beats(self, queue: Queue, stop: asyncio.Event) -> None:
        """Beat until stopped. What passes is tried again soon: the worker itself watches the time left."""
        failing = False
        while not stop.is_set():
            pause = self._every
            try:
                await self.beat(queue)
                failing = False
            except _PASSING as error:
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
        queue = await self._opened(self._stop)
        if queue is None:
            return
        try:
            if not self._ended.is_set():
                await self._heart.beats(queue, self._stop)
        finally:
            await queue.close()

    async def _opened(self, stop: asyncio.Event) -> Queue | None:
        """A server that is away for a moment is no reason to give up: the worker's own patience decides."""
        while not self._ended.is_set():
            try:
                return await self._open()
            except _PASSING:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RETRY)
        return None
