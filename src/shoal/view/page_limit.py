"""Page limit: that it ended a run, what is left, and how to go on."""

from __future__ import annotations

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import LIMIT_SECONDS
from shoal.view.formatting import count, local_time
from shoal.view.run_state import is_shared


def was_ended_by_limit(run: Run, stats: Stats) -> bool:
    ended = stats.done + stats.failed
    return run.state == "finished" and bool(stats.cancelled) and 0 < run.max_pages <= ended


def describe_limit_end(run: Run, stats: Stats, now: int, *, left: int = 0) -> str:
    """Empty where a run ended otherwise. left: of a list, what is not in the queue at all; `now`: the store's clock."""
    if not was_ended_by_limit(run, stats):
        return ""
    rest = max(left, stats.cancelled)
    words = f"its limit of {count(run.max_pages, 'page')} ended it, and {count(rest)} more {_are(rest)} left"
    until = run.finished_at + int(LIMIT_SECONDS * 1e6)
    if until <= now:
        return f"{words}; they were kept for a day and are gone: --fresh starts over"
    return f"{words} until {local_time(until)}: {how_to_go_on(run, stats)}"


def how_to_go_on(run: Run, stats: Stats) -> str:
    if is_shared(run):
        return f"shoal resume {run.name} --max-pages {2 * (stats.done + stats.failed)} goes on with them (0: no limit)"
    return "its command without --max-pages, or with a higher one, goes on with them"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
