"""Forgetting: what was kept on this machine for runs that the queue no longer knows."""

from __future__ import annotations

from shoal.app import raw_shelf
from shoal.config import Settings
from shoal.queue.base import Queue


async def forget_purged(queue: Queue, settings: Settings) -> None:
    folder = settings.state_folder / "inputs"
    for place in folder.glob("*.json") if folder.is_dir() else ():
        if not await _known(queue, place.stem):
            place.unlink(missing_ok=True)
            place.with_name(f"{place.stem}.rejected.csv").unlink(missing_ok=True)
    cookies = settings.state_folder / "cookies"
    for place in cookies.iterdir() if cookies.is_dir() else ():
        if not await _known(queue, place.name.partition(".")[0]):
            place.unlink(missing_ok=True)  # they hold logins
    if not (settings.state_folder / "raw").is_dir():
        return
    shelf = raw_shelf(settings)
    try:
        for kept in shelf.runs():
            if not await _known(queue, kept.name):
                await shelf.remove(kept.name)
    finally:
        shelf.close()


async def _known(queue: Queue, name: str) -> bool:
    return any(run.name == name for run in await queue.runs(name=name, limit=1))
