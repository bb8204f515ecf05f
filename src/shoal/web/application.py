"""Application: everything of a server but its sockets: the queue, its maintenance, and what answers requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from pathlib import Path
from typing import Self

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from shoal import app
from shoal.config.load import Settings
from shoal.control import idempotency, schedule_runner
from shoal.control.document_gc import INTERVAL as TIDY_EVERY
from shoal.control.document_gc import DocumentGc
from shoal.control.maintenance import Maintenance, PeriodicJob
from shoal.control.stalls import INTERVAL as STALLS_EVERY
from shoal.errors import ActionRequired
from shoal.launch.broker_relay import is_carried, relay_on
from shoal.launch.scaler import make_autoscaler
from shoal.queue.base import Queue
from shoal.queue.reconnect import reconnecting
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.relay import Relay
from shoal.store.results.base import ResultBackend, open_results
from shoal.view.metric_family import MetricFamily
from shoal.view.metrics import FleetCounters, fleet_families, server_families
from shoal.view.snapshot import Snapshot
from shoal.web.auth.authenticate import TokenAuthenticator
from shoal.web.context import ServerContext
from shoal.web.fastapi_app import build_app, problem_response
from shoal.web.http.limits import RequestLimits
from shoal.web.http.prefix import PrefixedPages
from shoal.web.http.startup_gate import StartupGate
from shoal.web.loop_watchdog import LoopWatchdog
from shoal.web.pages.render import compile_templates
from shoal.web.submit import url_lists
from shoal.web.submit.inline_templates import INTERVAL as INLINE_TEMPLATES_EVERY
from shoal.web.submit.inline_templates import InlineTemplates
from shoal.web.webhooks import INTERVAL as HOOKS_EVERY
from shoal.web.webhooks import WebhookSender, stall_detector, webhook_dispatcher

QUEUE_TIMEOUT = 60.0  # seconds for a queue that is not up yet
SHUTDOWN_GRACE = 5  # seconds for requests that are in progress when told to stop


class Application:
    """`startup_gate` answers requests; `async with` it, and it does so from the queue until left or stopped."""

    def __init__(self, settings: Settings, *, host: str, maintenance: bool = True, role: str = "server") -> None:
        """host: the address that requests come to, which decides whether a token is needed."""
        self.settings = settings
        self.host = host
        self.token_file: Path | None = None  # of the local token; None where there is none
        self.name = settings.name or socket.gethostname()
        self.role = role
        self.context: ServerContext | None = None
        self.authenticator: TokenAuthenticator | None = None
        self.app: FastAPI | None = None
        self.stopping = asyncio.Event()
        self._with_maintenance = maintenance
        self.maintenance: Maintenance | None = None
        self._began = time.monotonic()
        self.startup_gate = StartupGate({"status": "ok", "role": role, "name": self.name})
        self._tasks: list[asyncio.Task[None]] = []
        self._background_tasks: list[asyncio.Task[None]] = []  # what ends with it, at any moment
        self._limits: RequestLimits | None = None
        self._queue: Queue | None = None
        self._store: ResultBackend | None = None
        self._webhook_sender: WebhookSender | None = None
        self.fleet_count = FleetCounters()  # so that sums in /metrics never fall
        self.watchdog = LoopWatchdog()  # started by whoever has a loop of their own

    async def __aenter__(self) -> Self:
        """Open the queue, waiting for one that is not up yet."""
        try:
            self._queue = await self._open_queue()
            if self._queue is not None:
                await self._start(self._queue)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def stopped(self) -> None:
        """Return when told to stop; raises what ended it otherwise."""
        waiting = asyncio.create_task(self.stopping.wait())
        try:
            done, _ = await asyncio.wait((waiting, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            for task in done - {waiting}:
                task.result()
        finally:
            waiting.cancel()

    def stop(self) -> None:
        self.stopping.set()

    async def close(self) -> None:
        """Finish what is asked for, then let go of the queue."""
        self.stopping.set()
        if self.context is not None:
            await self.context.hub.close()
        if self._limits is not None:
            self._limits.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SHUTDOWN_GRACE + 5)
        left = (*self._tasks, *self._background_tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SHUTDOWN_GRACE)  # nobody asks a queue that is closed
        if self.authenticator is not None and self.authenticator.local_token is not None:
            self.authenticator.local_token.remove()
        for resource in (self._webhook_sender, self._store, self._queue):
            if resource is not None:
                await resource.close()

    async def families(self) -> list[MetricFamily]:
        """The figures of the fleet; only our own while the queue is away."""
        with contextlib.suppress(ActionRequired):
            if self.context is not None:
                found = await self.context.snapshot()
                fleet = fleet_families(found, self.fleet_count, await self.context.lifetime_counters())
                return fleet + self.own_families()
        return fleet_families(Snapshot(at=0), self.fleet_count, reachable=False) + self.own_families()

    def own_families(self) -> list[MetricFamily]:
        """The figures of this server alone."""
        return server_families(self.watchdog.blocked_count, self.watchdog.blocked_seconds)

    async def _open_queue(self) -> Queue | None:
        """The queue, waited for if it is not up yet. None: we were stopped meanwhile."""
        opening = asyncio.create_task(reconnecting(self._open_own_queue, QUEUE_TIMEOUT))
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
            if opening.cancelled():
                return None
        return opening.result()

    async def _open_own_queue(self) -> Queue:
        """The ledger itself, where RabbitMQ carries the queue: the server relays for it, and keeps its tokens there."""
        if not is_carried(self.settings):
            return await app.open_queue(self.settings)
        url, backend, ledger = await app.open_ledger(self.settings)
        log = logging.getLogger("shoal.relay")
        relay = relay_on(ledger, url, backend, self.settings, self.stopping, log.warning, say_ready=log.info)
        self._tasks.append(asyncio.create_task(relay, name="relay"))
        return ledger

    async def _start(self, queue: Queue) -> None:
        settings = self.settings
        authenticator = await TokenAuthenticator.open(queue, settings, host=self.host, token_file=self.token_file)
        self._store = await open_results(settings.store) if settings.store else None
        context = self.context = ServerContext(
            queue, settings, authenticator=authenticator, store=self._store, name=self.name
        )
        self.authenticator = authenticator
        authenticator.is_queue_down = lambda: context.queue_probe.is_down
        self._background_tasks.append(asyncio.create_task(context.queue_probe.run(), name="queue-probe"))
        if self._with_maintenance:
            self.maintenance = self._make_maintenance(context)
            self._tasks.append(asyncio.create_task(self.maintenance.run(self.stopping), name="maintenance"))
        self._tasks.append(asyncio.create_task(context.worker_pool.run(self.stopping), name="worker-pool"))
        if settings.scaler != "none" and self._with_maintenance:
            scaler = make_autoscaler(queue, settings)
            self._tasks.append(asyncio.create_task(scaler.run_or_stand_by(self.stopping), name="scaler"))
        self._background_tasks.append(asyncio.create_task(asyncio.to_thread(compile_templates), name="templates"))
        made = self.app = build_app(context)
        made.state.server = self
        self._limits = RequestLimits(made, context, settings, problem_response)
        self.startup_gate.open(GZipMiddleware(PrefixedPages(self._limits), minimum_size=1024, compresslevel=4))

    def _make_maintenance(self, context: ServerContext) -> Maintenance:
        queue, settings = context.queue, self.settings
        return Maintenance(
            queue,
            retention=settings.retention * 86_400.0,
            after_purge=lambda: remove_leftovers(queue, settings),
            tick=schedule_runner.tick,
            relay=Relay(queue, context.store) if context.store is not None else None,
            stale_after=settings.stale_after,
            extra_jobs=self._duties(queue) + (context.celery.duties() if context.celery is not None else []),
        )

    def _duties(self, queue: Queue) -> list[PeriodicJob]:
        """What only servers do: workers have no business with what people asked for over HTTP."""
        self._webhook_sender = WebhookSender(self.settings)
        hooks = webhook_dispatcher(queue, self.settings, self._webhook_sender)
        return [
            PeriodicJob("webhooks", HOOKS_EVERY, hooks.run_once),
            PeriodicJob("stalls", STALLS_EVERY, stall_detector(queue, self.settings).run_once),
            PeriodicJob(
                "document_gc", TIDY_EVERY, DocumentGc(idempotency.key_sweeper(queue), url_lists.shelves(queue)).sweep
            ),
            PeriodicJob("templates", INLINE_TEMPLATES_EVERY, InlineTemplates(queue).remove_unused),
        ]
