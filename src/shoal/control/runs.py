"""Runs: the same command finds its run again, and a finished one is not started twice by mistake."""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from shoal.control.home import moved_to
from shoal.core.run import LETTERS, NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import NotBalanced, Usage
from shoal.queue.base import Queue

Found = Literal["new", "continued", "ended"]
SEEDING = "seeding"  # the kind of the mark that addresses are still added to a run
HERE = "here"  # the mode of runs that a control room works on itself
MANY = 10_000
SUFFIX = 3  # letters at the end of a name


def run_key(scraper: str, inputs: Sequence[str], output: str) -> str:
    """The identity of a command: scraper, inputs and output."""
    text = msgspec.json.encode([scraper, list(inputs), output])
    return hashlib.sha256(text).hexdigest()[:24]


def run_name() -> str:
    """UTC and a suffix: 20260215_120000_k3f."""
    suffix = "".join(secrets.choice(LETTERS) for _ in range(SUFFIX))
    return time.strftime("%Y%m%d_%H%M%S_", time.gmtime()) + suffix


def alone(run: Run) -> bool:
    """Whether only the process that started it works on it; workers leave it alone."""
    return run.spec.get("mode") == "single"


def here(run: Run) -> bool:
    """Whether it is for the processes of a control room, of any of them; workers leave it alone."""
    return run.spec.get("mode") == HERE


def version_of(run: Run) -> str:
    """Which code it was started with."""
    code = run.spec.get("code")
    return str(code.get("version", "")) if isinstance(code, dict) else ""


async def find(queue: Queue, named: str) -> Run | None:
    """The run people mean: by name, by its beginning or end, or else the newest of a scraper."""
    for word in dict.fromkeys((named, named.lower(), named.upper())):
        found = await queue.runs(name=word, limit=20)
        if found:
            return _only(named, [run for run in found if run.name == word] or found)
    newest = await queue.runs(scraper=named, limit=1)
    if newest:
        return newest[0]
    end = named.lower()
    if len(end) != SUFFIX or not set(end) <= set(LETTERS):
        return None  # and nothing has to be looked through for it
    ends = [run for run in await queue.runs(limit=MANY) if run.name.endswith(f"_{end}")]
    return _only(named, ends) if ends else None


def _only(named: str, found: list[Run]) -> Run:
    if len(found) > 1:
        raise Usage(
            f"{named} could be any of {', '.join(run.name for run in found)}", hint="give more of the name"
        )
    return found[0]


async def find_or_start(queue: Queue, new: NewRun, *, fresh: bool) -> tuple[Run, Found]:
    """The run with this key, or a new one; it is marked as being seeded until `sown` is said of it."""
    known = await queue.runs(key=new.key, limit=1)
    if known and not fresh:
        run = known[0]
        if run.state == "cancelled" and (place := await moved_to(queue, run)):
            raise Usage(
                f"run {run.name} of this was moved to {place}",
                hint=f"go on there: --queue {place}; --fresh starts a new one here",
            )
        if run.state in ("finished", "cancelled"):
            return run, "ended"
        await seeding_began(queue, run.name)
        if run.state == "paused":
            run = await queue.set_run(run.id, "resume")
        return run, "continued"
    if known and known[0].state in ("running", "paused"):
        await queue.set_run(known[0].id, "cancel")
    new = msgspec.structs.replace(new, name=new.name or run_name())
    # Marked first: a run without work and without this mark is finished by the next who looks.
    await seeding_began(queue, new.name)
    run = await queue.start_run(new)
    if run.name != new.name:
        await sown(queue, new.name)
        await seeding_began(queue, run.name)
        return run, "continued"
    return run, "new"


async def seeding_began(queue: Queue, name: str) -> None:
    """Mark a run as one that addresses are still added to."""
    known = await queue.paper(SEEDING, name)
    await queue.swap(SEEDING, name, f'{{"host": "{socket.gethostname()}"}}', known.version if known else 0)


async def sown(queue: Queue, name: str) -> None:
    """Everything was added: the run may end as soon as nothing is open."""
    while known := await queue.paper(SEEDING, name):
        if await queue.swap(SEEDING, name, None, known.version):
            return


async def being_seeded(queue: Queue, run: Run) -> bool:
    return await queue.paper(SEEDING, run.name) is not None


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
