"""Runs: the same command finds its run again, and a finished one is not started twice by mistake."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import NotBalanced
from shoal.queue.base import Queue

Found = Literal["new", "continued", "ended"]
_LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # nothing that looks like something else


def run_key(scraper: str, inputs: Sequence[str], output: str) -> str:
    """The identity of a command: scraper, inputs and output."""
    text = msgspec.json.encode([scraper, list(inputs), output])
    return hashlib.sha256(text).hexdigest()[:24]


def run_name() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(5))


async def find_or_start(
    queue: Queue, *, scraper: str, key: str, spec: dict[str, Any], max_pages: int, fresh: bool
) -> tuple[Run, Found]:
    known = await queue.runs(key=key, limit=1)
    if known and not fresh:
        run = known[0]
        if run.state in ("finished", "cancelled"):
            return run, "ended"
        if run.state == "paused":
            run = await queue.set_run(run.id, "resume")
        return run, "continued"
    if known and known[0].state in ("running", "paused"):
        await queue.set_run(known[0].id, "cancel")
    new = NewRun(scraper=scraper, key=key, name=run_name(), spec=spec, max_pages=max_pages)
    return await queue.start_run(new), "new"


async def account(queue: Queue, run: Run) -> Stats:
    """The account of a run, checked against the tasks themselves."""
    stats = await queue.stats(run.id)
    counted = await queue.recount(run.id)
    columns = ("seen", "ready", "leased", "done", "dead", "cancelled", "records")
    wrong = [name for name in columns if getattr(stats, name) != getattr(counted, name)]
    if not stats.balanced or wrong:
        details = ", ".join(
            f"{name} {getattr(stats, name)} (counted {getattr(counted, name)})" for name in wrong
        )
        sides = (
            f"seen {stats.seen} = done {stats.done} + dead {stats.dead} + cancelled {stats.cancelled}"
            f" + open {stats.open}"
        )
        astray = await queue.strays(run.id)
        if astray:
            details = f"{details}; in no state at all: tasks {', '.join(map(str, astray))}"
        raise NotBalanced(
            f"the account of run {run.name} does not balance: {sides}" + (f"; {details}" if details else ""),
            hint=f"keep the state file and report this; `shoal status {run.name}` shows the run",
        )
    return stats
