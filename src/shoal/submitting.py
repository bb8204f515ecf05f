"""`shoal submit`: a run with everything in it that workers anywhere need, its addresses included."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from shoal import app
from shoal.closing import rejected_file
from shoal.config import Settings, beneath
from shoal.control.joining import by_flag, secret, worker_command
from shoal.control.ownership import Ownership
from shoal.control.patience import patiently
from shoal.control.runs import Found, find_or_start, sown
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.errors import Usage
from shoal.manner import manners_of
from shoal.queue.base import Queue
from shoal.reading import Reading
from shoal.work import Work, shared_key, spec_of, work_of

ADD_AT_ONCE = 1000
LOOK_EVERY = 0.25

Status = Literal["submitted", "continued", "finished", "cancelled", "interrupted"]
Look = Callable[[int, int], None]  # lines read, of them added


class Submitted(msgspec.Struct, frozen=True):
    """What became of a submission."""

    status: Status
    run: Run
    enqueued: int
    known: int
    rejected: int
    worker_command: str
    rejects: str = ""  # the file of lines that lead to no request, where there are any
    notes: tuple[str, ...] = ()


def submit_command(
    settings: Settings,
    *,
    target: str,
    inputs: tuple[str, ...] = (),
    fields: Mapping[str, str] | None = None,
    column: str = "",
    fresh: bool = False,
    weight: int = 1,
    priority: int = 0,
    command: str = "",
    look: Look = lambda read, added: None,
) -> Submitted:
    """Put a run into the queue, or go on doing so; nothing is fetched here."""
    work = work_of(settings, target, inputs, fields or {}, column)
    if work.scraper.mode == "single":
        raise Usage(
            f"scraper {work.scraper.name} is a single one: it runs in one place, not on a fleet",
            hint=f'shoal run {target}, or mode="distributed" in its code',
        )
    settings = beneath(settings, work.scraper.settings, work.label)
    manners_of(settings, work.scraper)
    return asyncio.run(Submission(settings, work, weight, priority, command, look).run(fresh))


class Submission:
    def __init__(
        self, settings: Settings, work: Work, weight: int, priority: int, command: str, look: Look
    ) -> None:
        self._settings = settings
        self._work = work
        self._weight = weight
        self._priority = priority
        self._command = command
        self._look = look

    async def run(self, fresh: bool) -> Submitted:
        work, settings = self._work, self._settings
        tasks, paces = ([], {}) if work.input else app.start_of(work.scraper, settings)
        key = shared_key(work, tasks)
        queue = await app.open_queue(settings)
        owner: Ownership | None = None
        try:
            owner = await Ownership.take(settings.state_folder, key, work.label)
            spec = await spec_of(queue, work, settings, mode="distributed", command=self._command)
            new = NewRun(work.scraper.name, key, spec=spec, weight=self._weight, max_pages=settings.max_pages)
            run, found = await find_or_start(queue, new, fresh=fresh)
            if found == "ended":
                status: Status = "finished" if run.state == "finished" else "cancelled"
                return Submitted(status, run, 0, 0, 0, worker_command(settings, run))
            if work.input is None:
                return await self._add(queue, run, found, tasks, paces)
            return await self._read(queue, run, found)
        finally:
            await queue.close()
            if owner:
                owner.release()

    async def _add(
        self, queue: Queue, run: Run, found: Found, tasks: list[Task], paces: Mapping[str, Pace]
    ) -> Submitted:
        """The scraper's own start addresses."""
        if self._priority:
            tasks = [msgspec.structs.replace(task, priority=self._priority) for task in tasks]
        new = 0
        for first in range(0, len(tasks), ADD_AT_ONCE):
            batch = tasks[first : first + ADD_AT_ONCE]
            new += (await patiently(lambda: queue.add(run.id, batch, paces))).count("added")  # noqa: B023
        await patiently(lambda: sown(queue, run.name))
        return self._told(run, found, new, len(tasks) - new, 0)

    async def _read(self, queue: Queue, run: Run, found: Found) -> Submitted:
        """A list, however long; interrupted, the same command goes on with it."""
        assert self._work.input is not None
        place = rejected_file(run, "", self._settings)
        reading = await Reading.begin(
            queue, run, self._work.input, self._settings, rejects=place, priority=self._priority
        )
        with _heard(reading.stop):
            work = asyncio.create_task(reading.run(), name="read-list")
            while not work.done():
                await asyncio.wait([work], timeout=LOOK_EVERY)
                self._look(reading.report.read, reading.report.added)
            report = work.result()
        made = self._told(run, found, report.added, report.duplicates, report.rejected + report.beyond)
        made = msgspec.structs.replace(made, rejects=str(place) if report.aside else "")
        if reading.done:
            return made
        return msgspec.structs.replace(made, status="interrupted")

    def _told(self, run: Run, found: Found, enqueued: int, known: int, rejected: int) -> Submitted:
        return Submitted(
            "submitted" if found == "new" else "continued",
            run,
            enqueued,
            known,
            rejected,
            worker_command(self._settings, run),
            notes=tuple(self._notes(run)),
        )

    def _notes(self, run: Run) -> Iterator[str]:
        if by_flag(self._settings) and secret(self._settings.queue):
            yield "The queue's address has a password: give it to workers as SHOAL_QUEUE, not as a flag."
        if self._settings.allow_private:
            yield "--allow-private is each worker's own setting: give it to those who may reach such hosts."
        if run.weight != self._weight:
            yield f"The weight was set when this run began: {run.weight}.   --fresh starts over"
        limit, asked = run.max_pages, self._settings.max_pages
        if asked != limit and (asked or limit):
            fixed = f"{limit:,} pages" if limit else "none"
            yield f"The page limit was set when this run began: {fixed}.   --fresh starts over"


@contextlib.contextmanager
def _heard(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C ends it after the batch under way; a second one at once, and nothing is lost either."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
