"""Private hosts: a run in a program says what it did not fetch because nobody allowed such addresses."""

from __future__ import annotations

import warnings

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import UsageError
from shoal.queue.base import Queue

_CAUSE = "blocked.private"
_GROUPS = 100
_CALLER = 2


async def say_private(queue: Queue, run: Run, stats: Stats) -> None:
    """Raise if nothing was fetched for this reason alone, warn if some of it was not."""
    if not stats.dead:
        return
    groups = await queue.dead_groups(run.id, limit=_GROUPS)
    refused = [group for group in groups if group.cause == _CAUSE]
    if not refused:
        return
    number = sum(group.count for group in refused)
    pages = "1 page was" if number == 1 else f"{number:,} pages were"
    said = f"{pages} not fetched: {refused[0].lane} is an address of a private network ({refused[0].sample})"
    hint = 'allow_private=True allows all of them, allow_private="10.0.0.0/8" those of a network'
    if not stats.done and len(refused) == len(groups):
        raise UsageError(said, hint=hint)
    warnings.warn(f"{said}; {hint}", stacklevel=_CALLER)
