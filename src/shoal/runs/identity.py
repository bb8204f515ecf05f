"""Run identity: the same command finds its run again, and a finished run is not started twice by mistake."""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shoal.core.name_format import RUN_ID_FORMAT, fill_name, parts_of
from shoal.core.run import NAME_ALPHABET, NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import NotBalanced, RunNameTaken, UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.documents import remove_document
from shoal.runs.queue_identity import moved_to

StartOutcome = Literal["new", "continued", "ended"]
SERVER_MODE: Final = "here"  # the mode of runs that a server works on itself
MAX_RUNS = 10_000
SUFFIX_LENGTH = 3  # letters at the end of a name
MAX_SAME_BEGINNING = 1_000  # runs that may begin with the same name


def run_key(scraper: str, inputs: Sequence[str], output: str) -> str:
    """The identity of a command: scraper, inputs and output."""
    text = msgspec.json.encode([scraper, list(inputs), output])
    return hashlib.sha256(text).hexdigest()[:24]


def run_name(format: str = RUN_ID_FORMAT, scraper: str = "") -> str:
    """UTC and a suffix, 20260215_120000_k3f, unless another format is wanted."""
    now = time.gmtime()
    return fill_name(
        format,
        date=time.strftime("%Y%m%d", now),
        time=time.strftime("%H%M%S", now),
        suffix="".join(secrets.choice(NAME_ALPHABET) for _ in range(SUFFIX_LENGTH)),
        scraper=scraper.lower(),
    )


async def _reserve_run_name(queue: Queue, format: str, scraper: str, seeder: str) -> str:
    """A name that is hardly taken, marked as being seeded.

    Runs of one second may have the same name, and have it where the format has no suffix; the mark, which only
    one can be the first to make, decides between those who start at once.
    """
    has_suffix = "suffix" in parts_of(format)
    first = name = run_name(format, scraper)
    number = 2
    while True:
        taken = not has_suffix and any(
            run.name == name for run in await queue.runs(name=name, limit=MAX_SAME_BEGINNING)
        )
        if not taken and await queue.compare_and_swap(kinds.SEEDING, name, _seeding_mark(seeder), 0):
            return name
        name, number = run_name(format, scraper) if has_suffix else f"{first}_{number}", number + 1


async def _start_with_given_name(queue: Queue, new: NewRun, seeder: str) -> Run:
    """The run; another one that has this name is left as it is, with the mark that it may have."""
    was_marked = await queue.document(kinds.SEEDING, new.name) is not None
    await begin_seeding(queue, new.name, seeder)
    try:
        return await queue.start_run(new)
    except RunNameTaken:
        if not was_marked:
            await finish_seeding(queue, new.name)
        raise


async def _start_with_own_name(queue: Queue, new: NewRun, format: str, seeder: str) -> tuple[Run, str]:
    """The run, and the name that was marked for it; a run of the same second may have had that name already."""
    while True:
        name = await _reserve_run_name(queue, format, new.scraper, seeder)
        try:
            return await queue.start_run(msgspec.structs.replace(new, name=name)), name
        except RunNameTaken:
            await finish_seeding(queue, name)


def is_single_process(run: Run) -> bool:
    """Whether only the process that started it works on it; workers leave it alone."""
    return run.spec.get("mode") == "single"


def is_server_run(run: Run) -> bool:
    """Whether it is for the processes of a server, of any of them; workers leave it alone."""
    return run.spec.get("mode") == SERVER_MODE


def run_code_version(run: Run) -> str:
    """Which code it was started with."""
    code = run.spec.get("code")
    return str(code.get("version", "")) if isinstance(code, dict) else ""


async def resolve_run(queue: Queue, named: str) -> Run | None:
    """The run people mean: by name, by its beginning or end, or else the newest of a scraper."""
    for word in dict.fromkeys((named, named.lower(), named.upper())):
        found = await queue.runs(name=word, limit=20)
        if found:
            return _single_match(named, [run for run in found if run.name == word] or found)
    newest = await queue.runs(scraper=named, limit=1)
    if newest:
        return newest[0]
    end = named.lower()
    if len(end) != SUFFIX_LENGTH or not set(end) <= set(NAME_ALPHABET):
        return None  # and nothing has to be looked through for it
    ends = [run for run in await queue.runs(limit=MAX_RUNS) if run.name.endswith(f"_{end}")]
    return _single_match(named, ends) if ends else None


def _single_match(named: str, found: list[Run]) -> Run:
    if len(found) > 1:
        raise UsageError(
            f"{named} could be any of {', '.join(run.name for run in found)}", hint="give more of the name"
        )
    return found[0]


async def find_or_start(
    queue: Queue,
    new: NewRun,
    *,
    fresh: bool,
    resume: bool = True,
    relimit: bool = False,
    go_on: bool = False,
    seeder: str = "",
    name_format: str = RUN_ID_FORMAT,
) -> tuple[Run, StartOutcome]:
    """The run with this key, or a new one; it counts as being seeded until `finish_seeding` is called."""
    known = await queue.runs(key=new.key, limit=1)
    if known and not fresh:
        run = known[0]
        if run.state == "cancelled" and not new.once and (place := await moved_to(queue, run)):
            raise UsageError(
                f"run {run.name} of this was moved to {place}",
                hint=f"continue there: --queue {place}; --fresh starts a new one here",
            )
        if run.state == "cancelled" or (run.state == "finished" and not (go_on and _asks_for_more(run, new))):
            return run, "ended"
        await begin_seeding(queue, run.name, seeder)
        if (relimit or run.state == "finished") and run.max_pages != new.max_pages:
            try:
                run = await queue.set_max_pages(run.id, new.max_pages)
            except UsageError:  # there is nothing left to go on with
                await finish_seeding(queue, run.name)
                return run, "ended"
        if run.state == "paused" and resume:
            run = await queue.set_run(run.id, "resume")
        return run, "continued"
    if known and known[0].state in ("running", "paused"):
        await queue.set_run(known[0].id, "cancel")
    # Marked first: a run without work and without this mark is finished by the next who looks.
    if new.name:
        run, marked = await _start_with_given_name(queue, new, seeder), new.name
    else:
        run, marked = await _start_with_own_name(queue, new, name_format, seeder)
    if run.name != marked:
        await finish_seeding(queue, marked)
        await begin_seeding(queue, run.name, seeder)
        return run, "continued"
    return run, "new"


def _asks_for_more(run: Run, new: NewRun) -> bool:
    return bool(run.max_pages) and (not new.max_pages or new.max_pages > run.max_pages)


async def begin_seeding(queue: Queue, name: str, seeder: str = "") -> None:
    """Mark a run as one that URLs are still added to."""
    known = await queue.document(kinds.SEEDING, name)
    await queue.compare_and_swap(kinds.SEEDING, name, _seeding_mark(seeder), known.version if known else 0)


def _seeding_mark(seeder: str) -> str:
    return msgspec.json.encode({"host": socket.gethostname()} | ({"seeder": seeder} if seeder else {})).decode()


async def finish_seeding(queue: Queue, name: str) -> None:
    """Everything was added: the run may end as soon as nothing is open."""
    await remove_document(queue, kinds.SEEDING, name)


async def is_seeding(queue: Queue, run: Run) -> bool:
    return await queue.document(kinds.SEEDING, run.name) is not None


async def checked_stats(queue: Queue, run: Run) -> Stats:
    """The counters of a run, checked against a recount of its tasks."""
    stats = await queue.stats(run.id)
    counted = await queue.recount(run.id)
    columns = ("seen", "ready", "leased", "done", "dead", "discarded", "cancelled", "records")
    wrong = [name for name in columns if getattr(stats, name) != getattr(counted, name)]
    if not stats.is_balanced or wrong:
        details = ", ".join(f"{name} {getattr(stats, name)} (counted {getattr(counted, name)})" for name in wrong)
        sides = (
            f"seen {stats.seen} = done {stats.done} + dead {stats.dead} + discarded {stats.discarded}"
            f" + cancelled {stats.cancelled}"
            f" + open {stats.open}"
        )
        astray = await queue.orphans(run.id)
        if astray:
            details = f"{details}; in no state: tasks {', '.join(map(str, astray))}"
        raise NotBalanced(
            f"the counts of run {run.name} do not add up: {sides}" + (f"; {details}" if details else ""),
            hint=f"keep the state file and report this; `shoal status {run.name}` shows the run",
        )
    return stats
