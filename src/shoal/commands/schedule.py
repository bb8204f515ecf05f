"""What `shoal schedule` does: turns a command into a schedule that any worker can fire without its files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import cast

import msgspec

from shoal import app
from shoal.config.load import Settings, with_defaults
from shoal.control import schedules
from shoal.core.cron import parse, zone_of
from shoal.core.lane import Pace
from shoal.core.schedule import Overlap, Schedule, ScheduledRun
from shoal.core.task import Task
from shoal.errors import UsageError
from shoal.launch.request_options import check_steps, request_builder_for
from shoal.queue.base import Queue
from shoal.runs.list_reader import task_from_entry
from shoal.runs.request import RunRequest, parse_run_request, run_spec

_is_valid_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}").fullmatch


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for."""

    target: str
    cron: str
    inputs: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}
    column: str = ""
    name: str = ""
    zone: str = "UTC"
    overlap: str = "skip"
    weight: int = 1
    priority: int = 0
    replace: bool = False
    command: str = ""


class SchedulePlan(msgspec.Struct, frozen=True):
    """The same, with everything read that it is made of."""

    options: ScheduleOptions
    settings: Settings
    request: RunRequest
    tasks: list[Task]
    paces: dict[str, Pace]
    rejected: tuple[tuple[int, str, str], ...] = ()  # lines that are not URLs to fetch: (line, text, why)


def plan_schedule(settings: Settings, options: ScheduleOptions) -> SchedulePlan:
    """Read what is to be scheduled; refuses everything that could only fail later."""
    _check_times(options)
    zone_of(options.zone)
    request = parse_run_request(settings, options.target, options.inputs, options.fields, options.column)
    if request.folder:
        raise UsageError(
            "a folder of saved pages is on this machine, and workers are elsewhere", hint="shoal run reads it"
        )
    if request.scraper.mode == "single":
        raise UsageError(
            f"scraper {request.scraper.name} has the mode single: it runs in one place, not on a fleet",
            hint='set mode="distributed" in its code, or use the system\'s cron with: shoal run',
        )
    name = options.name or request.scraper.name
    if not _is_valid_name(name):
        raise UsageError(f"{name!r} is not a valid schedule name", hint="use letters, digits, _ . and -")
    settings = with_defaults(settings, request.scraper.settings, request.label)
    request_builder_for(settings, request.scraper)
    check_steps(settings, request.scraper)
    options = msgspec.structs.replace(options, name=name)
    if request.input is not None:
        return _plan_list(options, settings, request)
    tasks, paces = app.seed_tasks(request.scraper, settings)
    return SchedulePlan(options, settings, request, tasks, paces)


def _check_times(options: ScheduleOptions) -> None:
    try:
        parse(options.cron)
    except UsageError:
        try:
            parse(options.target)
        except UsageError:
            pass
        else:
            right = shlex.join(["shoal", "schedule", "add", options.cron, options.target, *options.inputs])
            raise UsageError("the time comes after what is to be run", hint=right) from None
        raise


def _plan_list(options: ScheduleOptions, settings: Settings, request: RunRequest) -> SchedulePlan:
    """A list is read now, and kept: whoever fires the schedule need not have it."""
    assert request.input is not None
    source = request.input.source
    rewrite, routes = app.rewrite_rule(settings), app.route_rules(settings)
    tasks: dict[bytes, Task] = {}
    rejected = []
    try:
        for entry in source:
            task = task_from_entry(entry, rewrite, routes)
            if isinstance(task, str):
                rejected.append((entry.line, entry.text, task))
            else:
                tasks.setdefault(task.digest, task)
            if len(tasks) > schedules.MAX_URLS:
                raise UsageError(
                    f"{source.name} has more than {schedules.MAX_URLS:,} URLs, too many for a schedule",
                    hint="start from a page that links to them, or split the list",
                )
    finally:
        source.close()
        if request.input.spool_path is not None:
            request.input.spool_path.unlink(missing_ok=True)
    if not tasks:
        line, text, why = rejected[0]
        raise UsageError(f"{source.name}, line {line}: {text!r}: {why}", hint="a list has one URL per line")
    rule = app.pace_rule(settings)
    paces = {lane: rule(lane) for lane in {task.lane for task in tasks.values()}}
    return SchedulePlan(options, settings, request, list(tasks.values()), paces, tuple(rejected))


async def save_schedule(queue: Queue, plan: SchedulePlan) -> Schedule:
    """Keep the plan in the queue, from where it is fired."""
    options, request = plan.options, plan.request
    spec = await run_spec(queue, request, plan.settings, mode="distributed", command=options.command)
    schedule = Schedule(
        name=options.name,
        cron=options.cron,
        order=ScheduledRun(
            request.scraper.name,
            spec,
            options.weight,
            options.priority,
            plan.settings.max_pages,
            seen_set=plan.settings.seen,
            seen_for=plan.settings.seen_for,
            dead_retention=plan.settings.dead_retention,
        ),
        made_at=0,
        since=0,
        zone=options.zone,
        overlap=cast(Overlap, options.overlap),
    )
    return await schedules.add(queue, schedule, plan.tasks, plan.paces, replace=options.replace)
