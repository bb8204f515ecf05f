"""Budget of a run: the one that it is started with holds from then on, and whoever asks again may give it another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.budget import budget_limits
from shoal.core.budget_text import parse_budget
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.queue.budget_ledger import load_ledger, set_limits


async def apply_budget(queue: Queue, run: Run, spec: Mapping[str, Any]) -> None:
    """The budget of a request for a run, if it names one: that of the request, where the run was there already."""
    given = spec.get("settings")
    if not isinstance(given, Mapping) or "budget" not in given:
        return
    try:
        limits = budget_limits(parse_budget(given["budget"]))
    except (TypeError, UsageError):  # other programs start runs too: workers refuse what they cannot read
        return
    await set_limits(queue, run, limits)


async def is_budget_spent(queue: Queue, run: Run) -> bool:
    """Whether a run is paused for that, and nothing else."""
    return run.state == "paused" and bool((await load_ledger(queue, run)).ledger.spent)
