"""EndNotice: what somebody is about to end, said before it is done."""

from __future__ import annotations

import msgspec

from shoal.control.actions import recent_actions
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.formatting import ago, clean, count

MAX_NAME = 80  # letters of a name that a queue has: others write it


class EndNotice(msgspec.Struct, frozen=True):
    run: Run
    stats: Stats
    now: int
    submitted_by: str = ""

    def __str__(self) -> str:
        """ "run X (books), submitted by ann@host 3 min ago: 12 pages done, 40 open"."""
        run, stats = self.run, self.stats
        by = f"submitted by {clean(self.submitted_by)[:MAX_NAME]}" if self.submitted_by else "started"
        done = f"{count(stats.done, 'page')} done, {count(stats.open)} open"
        return f"run {clean(run.name)} ({clean(run.scraper)}), {by} {ago(run.created_at, self.now)}: {done}"

    @property
    def undo(self) -> str:
        return f"For an hour it can be undone: shoal cancel --undo {clean(self.run.name)}"


async def end_notice(queue: Queue, run: Run) -> EndNotice | None:
    """What ending a run would end; None if it has ended already."""
    if run.state not in ("running", "paused"):
        return None
    return EndNotice(run, await queue.stats(run.id), await queue.now(), await _submitter(queue, run))


async def _submitter(queue: Queue, run: Run) -> str:
    """Whoever gave the command, or asked a server for it."""
    by = run.spec.get("submitted_by")
    if isinstance(by, str) and by:
        return by
    actions, _ = await recent_actions(queue)
    return next((action.who for action in actions if action.what == "submit" and action.about == run.name), "")
