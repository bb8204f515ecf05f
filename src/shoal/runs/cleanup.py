"""Cleanup: removes the files that this machine keeps for runs that are no longer in the queue."""

from __future__ import annotations

import time

from shoal.app import open_saved_pages
from shoal.config.load import Settings
from shoal.errors import ActionRequired
from shoal.logs import log
from shoal.queue.base import Queue

RATE_KEPT_SECONDS = 7 * 86_400.0  # after the last page that was counted there


async def remove_leftovers(queue: Queue, settings: Settings) -> None:
    folder = settings.state_folder / "inputs"
    for place in folder.glob("*.json") if folder.is_dir() else ():
        if not await _run_exists(queue, place.stem):
            place.unlink(missing_ok=True)
            place.with_name(f"{place.stem}.rejected.csv").unlink(missing_ok=True)
    cookies = settings.state_folder / "cookies"
    for place in cookies.iterdir() if cookies.is_dir() else ():
        if not await _run_exists(queue, place.name.partition(".")[0]):
            place.unlink(missing_ok=True)  # they hold logins
    rates = settings.state_folder / "rates"
    for place in rates.iterdir() if rates.is_dir() else ():
        if time.time() - place.stat().st_mtime > RATE_KEPT_SECONDS:
            place.unlink(missing_ok=True)
    for raw_store in open_saved_pages(settings):
        try:
            for kept in raw_store.runs():
                if not await _run_exists(queue, kept.name):
                    await raw_store.remove(kept.name)
        except ActionRequired as error:  # whoever needs these pages is told; no other run is stopped by it
            log("pages_not_removed", "warning", why=str(error), hint=error.hint)
        finally:
            raw_store.close()


async def _run_exists(queue: Queue, name: str) -> bool:
    return any(run.name == name for run in await queue.runs(name=name, limit=1))
