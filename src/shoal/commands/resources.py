"""`shoal resources`: what this machine has, what limits it, and how many workers suit it."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec

from shoal import app
from shoal.config.load import Settings
from shoal.core.resources import MachineResources, ResourceVerdict, judge_resources
from shoal.errors import ActionRequired
from shoal.files.machine import MachineReader
from shoal.launch.scaler import resource_policy
from shoal.view.capacity import fleet_runs
from shoal.view.snapshot import take_snapshot

LOOK_SECONDS = 0.3  # between two readings, which tell how busy the CPU is
QUEUE_TIMEOUT = 5.0


class ResourceReport(msgspec.Struct, frozen=True):
    have: MachineResources
    verdict: ResourceVerdict
    workers: int  # of this machine that are in the registry
    pending: int | None  # tasks; None: nobody knows
    why_unknown: str = ""


def resource_report(settings: Settings, pending: int | None = None) -> ResourceReport:
    """pending: tasks to plan for; None: those of the queue."""
    reader = MachineReader(settings.state_folder, settings.memory_high)
    reader.read()
    time.sleep(LOOK_SECONDS)
    have, workers, why = reader.read(), 0, ""
    try:
        workers, found = asyncio.run(_ask_queue(settings))
        pending = found if pending is None else pending
    except (ActionRequired, TimeoutError) as error:
        why = str(error) or "the queue does not answer"
    verdict = judge_resources(
        have, resource_policy(settings), workers=workers, pending=pending, per_worker=settings.concurrency
    )
    return ResourceReport(have, verdict, workers, pending, why)


async def _ask_queue(settings: Settings) -> tuple[int, int | None]:
    """(workers of this machine, pages that wait); a state file is not made for that."""
    if settings.state_file is not None and not settings.state_file.exists():
        return 0, None
    async with asyncio.timeout(QUEUE_TIMEOUT), app.opened_queue(settings) as queue:
        snapshot = await take_snapshot(queue, settings)
        here = [status for status in snapshot.alive if status.host == socket.gethostname()]
        return len(here), sum(one.stats.ready + one.stats.leased for one in fleet_runs(snapshot))
