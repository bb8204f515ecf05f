"""Cluster: starts the roles that a cluster file describes.

A worker works on what is in the queue. A coordinator sees to the queue: it gives back what dead workers
held, finishes runs, fires schedules and carries records to the store. Workers do that, too, so none is
needed and any number may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable
from os import PathLike
from typing import Literal

import msgspec

from shoal import app
from shoal.clusterfile import ClusterConfig, cluster_settings, load_config
from shoal.config import Settings
from shoal.control import schedule
from shoal.control.patience import patiently
from shoal.control.relay import Relay
from shoal.control.upkeep import Upkeep
from shoal.core.stats import Stats
from shoal.errors import Act, Usage
from shoal.fleetworker import WorkerUi, worker_command
from shoal.forgetting import forget_purged
from shoal.queue.base import Queue
from shoal.store.results import open_results
from shoal.view.probe import Figure, Probe

Role = Literal["coordinator", "worker"]
ROLES: tuple[str, ...] = ("coordinator", "worker")
Say = Callable[[str], None]

LOOK_EVERY = 2.0
RUNS_LOOKED_AT = 200
SILENCE = 15.0  # seconds without an answer of the queue after which we are not ready
PATIENCE = 60.0  # for a queue that is not up yet


def start_cluster(
    config: ClusterConfig | str | PathLike[str],
    role: Role | str = "worker",
    *,
    settings: Settings | None = None,
    ui: WorkerUi | None = None,
) -> int:
    """Be a part of a cluster until told to stop (SIGTERM, Ctrl-C); answers the exit status.

    settings: what was given beside the file, which the file does not overrule; the environment unless given.
    """
    if role not in ROLES:
        raise Usage(f"there is no role {role}", hint="coordinator or worker")
    cluster = config if isinstance(config, ClusterConfig) else load_config(config)
    whole = cluster_settings(cluster, settings)
    if role == "worker":
        return worker_command(whole, targets=cluster.scrapers, ui=ui)
    return asyncio.run(Coordinator(whole, ui.message if ui else _say).work(cluster.host, cluster.port))


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Seen(msgspec.Struct, frozen=True):
    """One look at the queue."""

    runs: int = 0
    tasks: Stats = Stats()
    workers: int = 0


class Coordinator:
    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._stopped = asyncio.Event()
        self._upkeep: Upkeep | None = None
        self._seen = Seen()
        self._began = time.monotonic()
        self.name = settings.name or socket.gethostname()

    async def work(self, host: str, port: int) -> int:
        self._obey_signals()
        async with Probe(self) as probe:
            await probe.start(host, port)  # first: whoever probes sees that it waits for its queue
            self._say(f"coordinator {self.name} · {app.place_words(self._settings)} · {probe.place}/health")
            queue = await self._opened()
            if queue is None:
                return 0
            try:
                await self._keep_up(queue)
            finally:
                await queue.close()
        self._say("Stopped.")
        return 0

    async def _opened(self) -> Queue | None:
        """The queue, waited for if it is not up yet. None: we were stopped meanwhile."""
        opening = asyncio.create_task(patiently(lambda: app.open_queue(self._settings), PATIENCE))
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if opening.done():
            return opening.result()
        opening.cancel()
        await asyncio.wait([opening])
        return None if opening.cancelled() else opening.result()

    async def _keep_up(self, queue: Queue) -> None:
        settings = self._settings
        store = await open_results(settings.store) if settings.store else None
        self._upkeep = Upkeep(
            queue,
            retention=settings.retention * 86_400.0,
            tidy=lambda: forget_purged(queue, settings),
            tick=schedule.tick,
            relay=Relay(queue, store) if store is not None else None,
        )
        looking = asyncio.create_task(self._look_now_and_then(queue), name="look")
        try:
            await self._upkeep.run(self._stopped)
        finally:
            looking.cancel()
            await asyncio.wait([looking])
            if store is not None:
                await store.close()

    async def _look_now_and_then(self, queue: Queue) -> None:
        while True:
            with contextlib.suppress(Act):  # the figures stay as they were; /ready says that it is silent
                self._seen = await look(queue, self._settings)
            await asyncio.sleep(LOOK_EVERY)

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)

    # what the probe asks

    def _silence(self) -> float:
        return time.monotonic() - (self._upkeep.reached_at if self._upkeep else self._began)

    def health(self) -> dict[str, object]:
        return {"status": "ok", "role": "coordinator", "name": self.name}

    def ready(self) -> dict[str, object]:
        reachable = self._upkeep is not None and self._silence() < SILENCE
        return {
            "ready": reachable and not self._stopped.is_set(),
            "name": self.name,
            "queue": "ok" if reachable else f"no answer for {self._silence():.0f} s",
            "stopping": self._stopped.is_set(),
        }

    def metrics(self) -> str:
        seen, tasks = self._seen, Figure("tasks", "gauge", "Tasks of unfinished runs, by state.")
        for state in ("ready", "leased", "done", "dead"):
            tasks.add(getattr(seen.tasks, state), state=state)
        figures = (
            Figure("runs_unfinished", "gauge", "Runs that are not finished.").add(seen.runs),
            tasks,
            Figure("workers", "gauge", "Workers that gave a sign of life lately.").add(seen.workers),
            Figure("coordinator_queue_reachable", "gauge", "Whether the queue answers.").add(
                int(bool(self.ready()["ready"]))
            ),
        )
        return "".join(map(str, figures))


async def look(queue: Queue, settings: Settings) -> Seen:
    """Count what there is, in as many runs as can be looked at in a moment."""
    runs = await queue.runs(states=("running", "paused"), limit=RUNS_LOOKED_AT)
    ready = leased = done = dead = 0
    for run in runs:
        stats = await queue.stats(run.id)
        ready, leased = ready + stats.ready, leased + stats.leased
        done, dead = done + stats.done, dead + stats.dead
    alive = await queue.now() - int(settings.stale_after * 1e6)
    workers = sum(1 for mark in await queue.workers() if mark.seen_at > alive)
    return Seen(len(runs), Stats(ready=ready, leased=leased, done=done, dead=dead), workers)
