"""`shoal submit`: a run with everything in it that workers anywhere need, its URLs included."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from shoal import app
from shoal.commands.action_log import log_command
from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import settings_for_run
from shoal.control.join_command import has_secret, join_command, queue_given_by_flag
from shoal.core.run import NewRun, Run
from shoal.errors import UsageError
from shoal.launch.request_options import check_steps, request_builder_for
from shoal.queue.base import Queue
from shoal.queue.reconnect import OUTAGE_TIMEOUT
from shoal.runs.finish import rejected_file
from shoal.runs.identity import StartOutcome
from shoal.runs.local_lock import LocalLock
from shoal.runs.request import RunRequest, fleet_run_key, parse_run_request, run_spec
from shoal.runs.seed import ListSeeder
from shoal.runs.start import StartRequest, TaskBatches, in_batches, start
from shoal.view.end_notice import EndNotice, end_notice
from shoal.view.formatting import count
from shoal.view.page_limit import describe_limit_end

POLL_EVERY = 0.25

SubmitStatus = Literal["submitted", "continued", "finished", "cancelled", "interrupted"]
OnListProgress = Callable[[int, int, str], None]  # lines read, of them added, why no more can be added for now
ConfirmEnd = Callable[[EndNotice], None]


class SubmitResult(msgspec.Struct, frozen=True):
    """What became of a submission."""

    status: SubmitStatus
    run: Run
    enqueued: int
    known: int
    rejected: int
    worker_command: str
    seen: int = 0  # in earlier runs of the same seen-set
    failing: int = 0  # skipped, because they failed too often before
    rejects: str = ""  # the file of lines that are not URLs to fetch, where there are any
    notes: tuple[str, ...] = ()


def submit_command(
    settings: Settings,
    *,
    target: str,
    inputs: tuple[str, ...] = (),
    fields: Mapping[str, str] | None = None,
    column: str = "",
    with_columns: bool = False,
    sitemaps: tuple[str, ...] = (),
    fresh: bool = False,
    weight: int = 1,
    priority: int = 0,
    command: str = "",
    on_progress: OnListProgress = lambda *_: None,
    confirm: ConfirmEnd | None = None,
) -> SubmitResult:
    """Put a run into the queue, or go on doing so; nothing is fetched here.

    confirm: is told of the run that `fresh` would end, and raises if that must not be.
    """
    request = parse_run_request(
        settings, target, inputs, fields or {}, column, with_columns=with_columns, sitemaps=sitemaps
    )
    refuse_single(request, target)
    settings = with_defaults(settings, request.scraper.settings, request.label)
    request_builder_for(settings, request.scraper)
    check_steps(settings, request.scraper)
    submission = Submission(settings, request, weight, priority, command, on_progress, confirm=confirm)
    return asyncio.run(submission.run(fresh))


async def confirm_replacing(queue: Queue, key: str, confirm: ConfirmEnd) -> None:
    """Have somebody agree that the run which has this key ends, if it goes on."""
    for run in await queue.runs(key=key, limit=1):
        if notice := await end_notice(queue, run):
            confirm(notice)


def refuse_single(request: RunRequest, target: str) -> None:
    if request.folder:
        raise UsageError(
            "a folder of saved pages is on this machine, and workers are elsewhere", hint="shoal run reads it"
        )
    if request.scraper.mode == "single":
        raise UsageError(
            f"scraper {request.scraper.name} has the mode single: it runs in one place, not on a fleet",
            hint=f'shoal run {target}, or mode="distributed" in its code',
        )


@dataclass(frozen=True, slots=True)
class Submission:
    settings: Settings
    request: RunRequest
    weight: int
    priority: int
    command: str
    on_progress: OnListProgress
    confirm: ConfirmEnd | None = None
    guest: bool = False  # in the event loop of another program, which handles signals itself

    async def run(self, fresh: bool) -> SubmitResult:
        request, settings = self.request, self.settings
        tasks = [] if request.input else app.seed_tasks(request.scraper, settings)[0]

        def batches(run: Run) -> TaskBatches:
            # One that was there already keeps its pace, but for what this command says itself.
            rule = app.pace_rule(settings_for_run(settings, run))
            return in_batches(tasks, {task.lane: rule(task.lane) for task in tasks})

        key = fleet_run_key(request, tasks)
        queue = await app.open_queue(settings)
        local_lock: LocalLock | None = None
        try:
            local_lock = await LocalLock.acquire(settings.state_folder, key, request.label)
            if fresh and self.confirm:
                await confirm_replacing(queue, key, self.confirm)
            spec = await run_spec(queue, request, settings, mode="distributed", command=self.command)
            started = await start(
                queue,
                StartRequest(
                    NewRun(
                        request.scraper.name,
                        key,
                        spec=spec,
                        weight=self.weight,
                        priority=self.priority,
                        max_pages=settings.max_pages,
                        seen_set=settings.seen,
                        seen_for=settings.seen_for,
                        dead_retention=settings.dead_retention,
                    ),
                    tasks=batches,
                    fresh=fresh,
                    relimit="max_pages" in settings.sources,
                    go_on=True,
                    more=request.input is not None,
                    outage_timeout=OUTAGE_TIMEOUT,
                    name_format=settings.run_id_format,
                ),
            )
            run, found = started.run, started.outcome
            if found == "ended":
                status: SubmitStatus = "finished" if run.state == "finished" else "cancelled"
                words = describe_limit_end(run, await queue.stats(run.id), await queue.now())
                notes = (f"{words[0].upper()}{words[1:]}.",) if words else ()
                return SubmitResult(status, run, 0, 0, 0, join_command(settings, run), notes=notes)
            if found == "new":
                await log_command(queue, "submit", run.name)
            if request.input is None:
                made = self._result(run, found, started.tasks.added, started.tasks.known, 0)
                return msgspec.structs.replace(made, seen=started.tasks.seen, failing=started.tasks.failing)
            return await self._add_list(queue, run, found)
        finally:
            await queue.close()
            if local_lock:
                local_lock.release()

    async def _add_list(self, queue: Queue, run: Run, found: StartOutcome) -> SubmitResult:
        """A list, however long; interrupted, run it again to resume with it."""
        assert self.request.input is not None
        place = rejected_file(run, "", self.settings)
        settings = settings_for_run(self.settings, run)
        seeder = await ListSeeder.begin(queue, run, self.request.input, settings, rejects=place)
        with contextlib.nullcontext() if self.guest else _stop_on_signals(seeder.stop):
            reading_task = asyncio.create_task(seeder.run(), name="read-list")
            try:
                while not reading_task.done():
                    await asyncio.wait([reading_task], timeout=POLL_EVERY)
                    self.on_progress(seeder.report.read, seeder.report.added, seeder.waits_for)
            except asyncio.CancelledError:
                seeder.stop()
                await asyncio.wait([reading_task])
                raise
            report = reading_task.result()
        made = self._result(
            run, found, report.added, report.duplicates, report.rejected + report.beyond + report.blank - report.empty
        )
        aside = str(place) if report.not_added else ""
        made = msgspec.structs.replace(made, rejects=aside, seen=report.seen, failing=report.failing)
        if seeder.done:
            return made
        return msgspec.structs.replace(made, status="interrupted")

    def _result(self, run: Run, found: StartOutcome, enqueued: int, known: int, rejected: int) -> SubmitResult:
        return SubmitResult(
            "submitted" if found == "new" else "continued",
            run,
            enqueued,
            known,
            rejected,
            join_command(self.settings, run),
            notes=tuple(self._notes(run)),
        )

    def _notes(self, run: Run) -> Iterator[str]:
        if queue_given_by_flag(self.settings) and has_secret(self.settings.queue):
            yield "The queue's URL has a password: give it to workers as SHOAL_QUEUE, not as a flag."
        if self.settings.allow_private:
            yield "--allow-private is a setting of each worker: set it where such hosts may be reached."
        if run.weight != self.weight:
            yield f"The weight was set when this run began: {run.weight}.   --fresh starts over"
        if run.priority != self.priority:
            yield f"The priority was set when this run began: {run.priority}.   --fresh starts over"
        limit, asked = run.max_pages, self.settings.max_pages
        if asked != limit and (asked or limit):
            fixed = count(limit, "page") if limit else "none"
            yield f"The page limit of this run: {fixed}.   --max-pages changes it, --fresh starts over"
        yield from seen_set_note(run, self.settings)


def seen_set_note(run: Run, settings: Settings) -> Iterator[str]:
    if run.seen_set != settings.seen:
        yield f"The seen-set was set when this run began: {run.seen_set or 'none'}.   --fresh starts over"


@contextlib.contextmanager
def _stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C ends it after the batch in progress; a second one at once, and nothing is lost either."""
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
