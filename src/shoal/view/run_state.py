"""The state of a run as people see it, who works on it, and how to go on with it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.config.load import Settings
from shoal.control.join_command import join_command
from shoal.core.lane import WorkerStatus
from shoal.core.run import Run
from shoal.core.typed_task import TYPE_PREFIX
from shoal.queue.base import Queue
from shoal.runs.fleet_lock import LockHolder, current_holder
from shoal.runs.identity import SERVER_MODE, is_server_run, is_single_process
from shoal.runs.local_lock import LocalLock
from shoal.runs.queue_identity import moved_to
from shoal.view.formatting import clean


def is_shared(run: Run) -> bool:
    """Whether any worker of the fleet, or of a server, may work on it."""
    return run.spec.get("mode") in ("distributed", SERVER_MODE) or run.scraper.startswith(TYPE_PREFIX)


def is_abandoned(settings: Settings, run: Run) -> bool:
    """Whether the process of this machine that drove a run is gone, however it went."""
    return (
        not is_shared(run)
        and settings.state_file is not None
        and LocalLock.is_abandoned(settings.state_folder, run.key)
    )


async def display_state(
    queue: Queue, settings: Settings, run: Run, statuses: Sequence[WorkerStatus] | None = None
) -> str:
    """A run's state for people: one that nobody drives is stopped, one that waits for workers says so."""
    if run.state == "cancelled":
        return "moved" if await moved_to(queue, run) else run.state
    if run.state != "running":
        return run.state
    if is_abandoned(settings, run):
        return "stopped"
    if settings.state_file is not None and not is_shared(run):
        return run.state
    if is_single_process(run):
        return run.state if await lock_holder(queue, run) else "stopped"
    statuses = await live_workers(queue, settings) if statuses is None else statuses
    return run.state if workers_for_run(statuses, run) else "waiting"


def resume_hint(settings: Settings, run: Run) -> str:
    """The command that goes on with a run."""
    if run.spec.get("mode") == "distributed":
        return f"start a worker: {clean(join_command(settings, run))}"
    if is_server_run(run):
        return "start a server to resume it: shoal serve"
    if run.scraper.startswith(TYPE_PREFIX):
        kind = clean(run.scraper.removeprefix(TYPE_PREFIX))
        return f"start a worker with a handler for {kind}: shoal worker FILE.py"
    command = clean(run.spec.get("command") or "")
    return f"resume with: {command}" if command else "run the command that started it again"


async def live_workers(queue: Queue, settings: Settings) -> list[WorkerStatus]:
    """Workers that gave a sign of life lately."""
    return filter_live(await queue.workers(), await queue.now(), settings.stale_after)


def filter_live(statuses: Sequence[WorkerStatus], now: int, stale_after: float) -> list[WorkerStatus]:
    since = now - int(stale_after * 1e6)
    return [status for status in statuses if status.seen_at > since]


def fleet_workers(statuses: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Workers of the fleet, without the processes of servers."""
    return [status for status in statuses if SERVER_MODE not in status.serves]


def workers_for_run(statuses: Sequence[WorkerStatus], run: Run) -> list[WorkerStatus]:
    """Those among workers that can serve a run."""
    if is_server_run(run):
        return [status for status in statuses if SERVER_MODE in status.serves]
    words = {run.name, run.scraper, *(("templates",) if run.spec.get("template") else ())}
    return [status for status in statuses if not status.serves or words & set(status.serves)]


async def live_workers_for_run(
    queue: Queue, settings: Settings, run: Run, statuses: Sequence[WorkerStatus] | None = None
) -> list[WorkerStatus]:
    """Workers of a run that gave a sign of life lately; none for a run whose process is gone."""
    if is_abandoned(settings, run) or (
        settings.state_file is None and is_single_process(run) and not await lock_holder(queue, run)
    ):
        return []
    return workers_for_run(await live_workers(queue, settings) if statuses is None else statuses, run)


async def lock_holder(queue: Queue, run: Run) -> LockHolder | None:
    """Who drives a run that is driven from one place."""
    return await current_holder(queue, f"run/{run.key}") or await current_holder(queue, f"scraper/{run.scraper}")
