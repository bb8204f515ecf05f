"""Settings to a running autoscaler: its driver, its limits, and what it measures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.config.load import SETTINGS, Settings
from shoal.control.history import History
from shoal.control.scaling.autoscaler import Autoscaler, FindRoom, Measured, Room
from shoal.control.scaling.base import Scaler
from shoal.control.scaling.cluster_api import ClusterApi
from shoal.control.scaling.command import CommandScaler
from shoal.control.scaling.compose import ComposeScaler
from shoal.control.scaling.kubernetes import KubernetesScaler
from shoal.control.scaling.local import LocalScaler, list_workers
from shoal.control.scaling.swarm import SwarmScaler
from shoal.core.autoscale import ScaleLimits
from shoal.core.name_format import WORKER_ID_FORMAT
from shoal.core.resources import ResourcePolicy, judge_resources
from shoal.errors import UsageError
from shoal.files.machine import MachineReader
from shoal.queue.base import Queue
from shoal.view.capacity import RECENT_SECONDS, capacity_of, explain_capacity
from shoal.view.run_state import fleet_workers
from shoal.view.snapshot import FleetMonitor

WORKERS_FOLDER = "scaled-workers"  # below the state folder: which processes the driver local has started
NO_DRIVER = "no driver is given: who should start and stop workers?"
DRIVERS_HINT = "--scaler local, compose, swarm, kubernetes or command"


def scale_limits(settings: Settings) -> ScaleLimits:
    if settings.min_workers > settings.max_workers:
        raise UsageError(
            f"--min-workers {settings.min_workers} is more than --max-workers {settings.max_workers}",
            hint="the minimum must not be above the maximum",
        )
    if settings.scale_down_below >= settings.scale_up_above:
        raise UsageError(
            "--scale-down-below must be less than --scale-up-above", hint="workers would come and go all the time"
        )
    return ScaleLimits(
        policy=settings.scale_policy,
        minimum=settings.min_workers,
        maximum=settings.max_workers,
        up_cooldown=settings.scale_up_cooldown,
        down_cooldown=settings.scale_down_cooldown,
        interval=settings.scale_interval,
        up_above=settings.scale_up_above,
        down_below=settings.scale_down_below,
        pending_per_worker=settings.pending_per_worker,
        processes=settings.processes_per_replica if settings.scaler != "local" else 1,
    )


def resource_policy(settings: Settings) -> ResourcePolicy:
    return ResourcePolicy(
        workers_per_core=settings.workers_per_core,
        memory_per_worker=settings.memory_per_worker,
        memory_high=settings.memory_high,
        disk_reserve=settings.disk_reserve,
        cpu_high=settings.cpu_high,
    )


def open_scaler(
    settings: Settings, queue: Queue, arguments: Sequence[str] = (), environment: Mapping[str, str] = {}
) -> Scaler:
    """The driver; arguments and environment are for workers that it starts as processes of this machine."""
    driver, timeout = settings.scaler, settings.scale_timeout
    if driver == "local":
        return LocalScaler(
            arguments or settings.scale_arguments,
            _workers_folder(settings),
            environment=_worker_environment(settings) | dict(environment),
            drain=lambda name: _drain(queue, name),
            drain_timeout=settings.drain_timeout,
            stop_grace=settings.stop_grace,
        )
    if driver == "command":
        return CommandScaler(settings.scale_command, settings.scale_count_command, timeout=timeout)
    if driver == "none":
        raise UsageError(NO_DRIVER, hint=DRIVERS_HINT)
    if not settings.scale_target:
        raise UsageError(f"what should {driver} scale?", hint="--scale-target NAME")
    if driver == "compose":
        return ComposeScaler(settings.scale_target, timeout=timeout)
    if driver == "swarm":
        return SwarmScaler(settings.scale_target, timeout=timeout)
    return KubernetesScaler(ClusterApi.in_cluster(timeout=timeout), settings.scale_target)


def make_autoscaler(
    queue: Queue,
    settings: Settings,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    dry_run: bool = False,
) -> Autoscaler:
    return Autoscaler(
        queue,
        open_scaler(settings, queue, arguments, environment),
        scale_limits(settings),
        Measurement(queue, settings).measure,
        timeout=settings.scale_timeout,
        target=settings.scale_target or " ".join(arguments or settings.scale_arguments),
        find_room=_room_here(settings) if settings.scaler == "local" else None,
        dry_run=dry_run,
    )


class Measurement:
    """Looks at the queue at every evaluation; how fast things go is remembered between two."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._monitor = FleetMonitor(queue, settings)
        self._history = History(queue, stale_after=settings.stale_after)
        self._within = settings.scale_within

    async def measure(self) -> Measured:
        snapshot = await self._monitor.snapshot()
        capacity = capacity_of(snapshot, await self._history.read(RECENT_SECONDS), self._within)
        return Measured(snapshot.at, capacity, explain_capacity(capacity), fleet_workers(snapshot.alive))


def _room_here(settings: Settings) -> FindRoom:
    policy = resource_policy(settings)
    reader = MachineReader(settings.state_folder, policy.memory_high)
    reader.read()  # how busy the CPU is follows from two readings

    async def find_room() -> Room:
        have = await asyncio.to_thread(reader.read)
        verdict = judge_resources(have, policy, workers=len(list_workers(_workers_folder(settings))))
        return Room(verdict.can_add, f"this machine has no room for more: {verdict.limit}")

    return find_room


def _workers_folder(settings: Settings) -> Path:
    return (settings.state_folder / WORKERS_FOLDER).absolute()


async def _drain(queue: Queue, name: str) -> bool:
    """Ask the processes of one worker to finish what they have; False if the queue does not know it."""
    asked = [
        await queue.command_worker(status.id, "drain")
        for status in await queue.workers()
        if status.name == name or status.name.rpartition("-")[0] == name
    ]
    return any(asked)


def _worker_environment(settings: Settings) -> dict[str, str]:
    """What the scaler was told by flags, workers are told by variables: others can read a command line."""
    told = {name: text for name, text in os.environ.items() if name != "SHOAL_TOKEN"}  # that is the server's alone
    if settings.queue:
        told["SHOAL_QUEUE"] = settings.queue
    for name in ("memory_high", "disk_reserve"):
        if settings.sources.get(name, "").startswith("--"):
            told[SETTINGS[name].variable] = str(getattr(settings, name))
    # So that the registry's name begins with the one we gave.
    return told | {"SHOAL_WORKER_ID_FORMAT": WORKER_ID_FORMAT}
