"""ProcessWorker: the shoal worker of one process of Celery, in a thread with an event loop of its own.

It claims only while a message is being worked on; what it has claimed it finishes. It maintains the queue as
any worker does, also between messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Self, TypeVar

from shoal import app as parts
from shoal.control import schedule_runner
from shoal.control.celery.broker import Broker
from shoal.control.celery.engine import CeleryEngine
from shoal.control.celery.work_messages import WorkMessages
from shoal.control.maintenance import Maintenance, PeriodicJob
from shoal.integrations.celery.message_gate import MessageGate
from shoal.integrations.celery.setup import CelerySetup
from shoal.launch.job import FleetJob
from shoal.launch.scraper_set import ScraperSet
from shoal.launch.worker_context import FleetContextFactory, fleet_plan
from shoal.launch.worker_pool import unused_supervisor_name
from shoal.queue.base import REAP_EVERY, Queue
from shoal.queue.reconnect import reconnecting
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.relay import Relay
from shoal.store.results.base import ResultBackend, open_results
from shoal.worker.loop import Worker
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.recovery import recover_dead_workers
from shoal.worker.task.handler_runner import handler_task_factory

T = TypeVar("T")
log = logging.getLogger("shoal.celery")
OPEN_TIMEOUT = 30.0  # seconds for a queue that is not up yet
STOP_TIMEOUT = 8.0  # seconds for handing work back


class ProcessWorker:
    """Made in the process that works, never before a fork; its methods are for Celery's own thread."""

    def __init__(self, setup: CelerySetup, app: Any, worker_pid: int, *, claims: bool = True) -> None:
        """claims: False where a pool of shoal's own does the pages, and messages only wait for them."""
        self.setup = setup
        self._claims = claims
        self.pid = os.getpid()
        self._app = app
        self._worker_pid = worker_pid  # of Celery's main process: all that it started share one rate
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(handler_task_factory)
        self._thread = threading.Thread(target=self._run_loop, name="shoal-worker", daemon=True)
        self._stopping = asyncio.Event()
        self._opened: Future[None] = Future()
        self.queue: Queue
        self.store: ResultBackend | None = None
        self.scraper_set: ScraperSet
        self.maintenance: Maintenance
        self.messages: WorkMessages
        self._gate: MessageGate
        self._worker: Worker
        self._main: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        self._parts: dict[type, Any] = {}

    def start(self) -> None:
        """Open the queue and register; raises what a person must act on."""
        self._thread.start()
        self._opened.result()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not (self._main is not None and self._main.done())

    @property
    def is_stopping(self) -> bool:
        """Whether Celery's worker shuts down and waits for what is in progress."""
        return stop_mark(self.setup, self._worker_pid).exists()

    @property
    def finished(self) -> int:
        """Attempts so far."""
        return self._worker.finished

    @property
    def is_idle(self) -> bool:
        return self._worker.is_idle

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the event loop; what interrupts the waiting thread ends it there, too."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the worker of this process has ended") from None
        except BaseException:
            future.cancel()
            raise

    def sleep(self, seconds: float) -> None:
        """Wait in Celery's thread while the worker works."""
        self._ended.wait(max(0.0, seconds))

    def part(self, kind: type[T], make: Callable[[], T]) -> T:
        """Something of this process's own, made when it is first needed."""
        if kind not in self._parts:
            self._parts[kind] = make()
        found: T = self._parts[kind]
        return found

    @contextlib.contextmanager
    def working(self) -> Iterator[Self]:
        """Claim and work for as long as this lasts."""
        if not self._claims:
            yield self
            return
        self._loop.call_soon_threadsafe(self._open_gate)
        try:
            yield self
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._gate.close)

    def _open_gate(self) -> None:
        self._gate.open()
        self._worker.wake()

    def stop(self) -> None:
        """Hand back what is unfinished and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(STOP_TIMEOUT)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._work())
        try:
            self._loop.run_until_complete(self._main)
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            raise
        finally:
            self._ended.set()
            self._loop.close()

    async def _work(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            working = asyncio.create_task(self._worker.run(), name="worker")
            maintaining = asyncio.create_task(self.maintenance.run(self._stopping), name="maintenance")
            stopping = asyncio.create_task(self._stopping.wait())
            self._opened.set_result(None)
            try:
                await asyncio.wait((working, maintaining, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._stopping.set()
                self._worker.stop()
                await asyncio.wait((working, maintaining), timeout=STOP_TIMEOUT)
                for task in (working, maintaining, stopping):
                    task.cancel()
                for ended in await asyncio.gather(working, maintaining, stopping, return_exceptions=True):
                    if isinstance(ended, Exception):  # the next message starts another worker
                        log.error("process_worker_ended", extra={"error": f"{type(ended).__name__}: {ended}"})

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        setup, settings = self.setup, self.setup.settings
        queue = self.queue = await reconnecting(lambda: parts.open_queue(settings), OPEN_TIMEOUT)
        stack.push_async_callback(queue.close)
        if settings.store:
            self.store = await open_results(settings.store)
            stack.push_async_callback(self.store.close)
        folder = parts.crash_notes_folder(settings)
        await recover_dead_workers(queue, folder)
        name = await unused_supervisor_name(queue, settings)
        job = FleetJob(settings, name, setup.targets, rate_name=rate_name(self._worker_pid))
        self.scraper_set = ScraperSet.load(job)
        note = CrashNote.create(folder, name)
        stack.callback(note.close)
        context = FleetContextFactory(job, self.scraper_set, queue).worker_context(note)
        stack.push_async_callback(context.close)
        context.supervised = False
        self._gate = MessageGate(context.start_limit)
        context.start_limit = self._gate
        self._worker = Worker(context, fleet_plan(job, self.scraper_set))
        engine = CeleryEngine(queue, settings, Broker(setup.options, self._app), at_least=1)
        self.messages = engine.messages
        self.maintenance = Maintenance(
            queue,
            retention=settings.retention * 86_400.0,
            after_purge=lambda: remove_leftovers(queue, settings),
            tick=schedule_runner.tick,
            relay=Relay(queue, self.store) if self.store is not None else None,
            stale_after=settings.stale_after,
            extra_jobs=[
                *engine.duties(messages=self._claims),
                # What a killed process of this machine held goes back at once.
                PeriodicJob("recover", REAP_EVERY, lambda: recover_dead_workers(queue, folder), is_shared=False),
            ],
        )


def rate_name(worker_pid: int) -> str:
    """The worker whose processes share one rate of starting pages."""
    return f"celery-{worker_pid}"


def stop_mark(setup: CelerySetup, worker_pid: int) -> Path:
    """The file that says that Celery's worker shuts down: its processes hear of it by nothing else."""
    return setup.settings.state_folder / "rates" / f"celery-{worker_pid}.stopping"
