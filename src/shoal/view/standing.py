"""Standing: what a run is for people, who works on it, and how to go on with it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.config import Settings
from shoal.control.home import moved_to
from shoal.control.joining import worker_command
from shoal.control.lock import Holder, held
from shoal.control.ownership import Ownership
from shoal.control.runs import HERE, alone, here
from shoal.core.lane import Mark
from shoal.core.run import Run
from shoal.core.typed import PREFIX
from shoal.queue.base import Queue
from shoal.view.words import clean


def shared(run: Run) -> bool:
    """Whether any worker of the fleet, or of a control room, may work on it."""
    return run.spec.get("mode") in ("distributed", HERE)


def left(settings: Settings, run: Run) -> bool:
    """Whether the process of this machine that drove a run is gone, however it went."""
    return (
        not shared(run)
        and settings.state_file is not None
        and Ownership.abandoned(settings.state_folder, run.key)
    )


async def standing(queue: Queue, settings: Settings, run: Run, marks: Sequence[Mark] | None = None) -> str:
    """A run's state for people: one that nobody drives is stopped, one that waits for workers says so."""
    if run.state == "cancelled":
        return "moved" if await moved_to(queue, run) else run.state
    if run.state != "running":
        return run.state
    if left(settings, run):
        return "stopped"
    if settings.state_file is not None and not shared(run):
        return run.state
    if alone(run):
        return run.state if await holder(queue, run) else "stopped"
    marks = await alive(queue, settings) if marks is None else marks
    return run.state if serving(marks, run) else "waiting"


def again_hint(settings: Settings, run: Run) -> str:
    """The command that goes on with a run."""
    if run.spec.get("mode") == "distributed":
        return f"start a worker: {clean(worker_command(settings, run))}"
    if here(run):
        return "a control room goes on with it: shoal serve"
    if run.scraper.startswith(PREFIX):
        kind = clean(run.scraper.removeprefix(PREFIX))
        return f"start a worker with a handler for {kind}: shoal worker FILE.py"
    command = clean(run.spec.get("command") or "")
    return f"go on with: {command}" if command else "the command that started it goes on with it"


async def alive(queue: Queue, settings: Settings) -> list[Mark]:
    """Workers that gave a sign of life lately."""
    return still_alive(await queue.workers(), await queue.now(), settings.stale_after)


def still_alive(marks: Sequence[Mark], now: int, stale_after: float) -> list[Mark]:
    since = now - int(stale_after * 1e6)
    return [mark for mark in marks if mark.seen_at > since]


def fleets(marks: Sequence[Mark]) -> list[Mark]:
    """Workers of the fleet, without the processes of control rooms."""
    return [mark for mark in marks if HERE not in mark.serves]


def serving(marks: Sequence[Mark], run: Run) -> list[Mark]:
    """Those among workers that can serve a run."""
    if here(run):
        return [mark for mark in marks if HERE in mark.serves]
    words = {run.name, run.scraper, *(("templates",) if run.spec.get("template") else ())}
    return [mark for mark in marks if not mark.serves or words & set(mark.serves)]


async def living(
    queue: Queue, settings: Settings, run: Run, marks: Sequence[Mark] | None = None
) -> list[Mark]:
    """Workers of a run that gave a sign of life lately; none for a run whose process is gone."""
    if left(settings, run) or (settings.state_file is None and alone(run) and not await holder(queue, run)):
        return []
    return serving(await alive(queue, settings) if marks is None else marks, run)


async def holder(queue: Queue, run: Run) -> Holder | None:
    """Who drives a run that is driven from one place."""
    return await held(queue, f"run/{run.key}") or await held(queue, f"scraper/{run.scraper}")
