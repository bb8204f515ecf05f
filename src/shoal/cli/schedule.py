"""shoal schedule add, list, show, pause, resume, remove and run."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable

import click

from shoal.cli.command import COMMAND_ARGS, Command, Group
from shoal.cli.console import (
    clean,
    count,
    format_duration,
    iso_time,
    print_fields,
    print_json,
    print_line,
    print_table,
    wrap,
)
from shoal.cli.find_run import NoRuns, with_queue
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options, field_option
from shoal.cli.run import read_fields
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.control import schedules
from shoal.core.cron_words import describe_cron
from shoal.core.schedule import Firing, Schedule
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.schedules import next_time, schedule_document

MAX_REJECTED_SHOWN = 3
OVERLAPS = ("skip", "queue", "cancel-former", "allow")
NO_SCHEDULES = 'No schedules here yet.\n  try: shoal schedule add books.py "0 3 * * *"'


@click.group(
    cls=Group,
    examples="""
    shoal schedule add books.py "0 3 * * *"       every night at three, UTC
    shoal schedule add books.py "0 9 * * mon-fri" --zone Europe/Berlin
    shoal schedule add urls.txt "every 6h" -f title=h1::text
    shoal schedule list                           with their next times
    shoal schedule run books                      right now
    """,
)
def schedule() -> None:
    """Start runs at set times.

    Schedules are kept in the queue. Any number of workers and servers run them, and each time
    fires once.
    """


@schedule.command(
    cls=Command,
    examples="""
    shoal schedule add books.py "0 3 * * *"
    shoal schedule add books.py @hourly --name often --overlap queue
    shoal schedule add shop.yaml "every 15m" --rate 2
    """,
)
@click.argument("target", metavar="TARGET")
@click.argument("when", metavar="WHEN")
@click.argument("inputs", nargs=-1, metavar="[MORE]...")
@click.option("--urls-file", metavar="FILE", help="A list of URLs to start from; read once, now.")
@click.option("--name", "named", help="Name of the schedule; default: the scraper's name.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone of WHEN, such as Europe/Berlin.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="skip",
    show_default=True,
    help="What to do if the previous run is still running.",
)
@click.option("--replace", is_flag=True, help="Replace a schedule of the same name.")
@field_option("A field, for lists and URLs.")
@click.option("--column", metavar="NAME", help="Which column of a list holds the URLs.")
@click.option("--weight", type=click.IntRange(1), default=1, help="Share of the workers relative to other runs. [1]")
@click.option("--priority", type=int, default=0, help="Runs of higher priority come first on hosts they share. [0]")
@as_json
@click_options("run", without=("name",))
def add(
    settings: Settings,
    target: str,
    when: str,
    inputs: tuple[str, ...],
    urls_file: str | None,
    named: str | None,
    zone: str,
    overlap: str,
    replace: bool,
    given_fields: tuple[str, ...],
    column: str | None,
    weight: int,
    priority: int,
    as_json: bool,
) -> int:
    """Start a run of TARGET at the times of WHEN.

    TARGET and MORE are as with shoal submit. WHEN has five fields, minute hour day month weekday
    ("0 3 * * *", "*/15 8-18 * * mon-fri"), or is @hourly, @daily, @weekly, @monthly, @yearly, or
    "every 15m".

    Start URLs, settings and the version of the code are fixed now: after changing them, run
    this again with --replace.
    """
    if urls_file and inputs:
        raise UsageError("give the URLs once", hint=f"--urls-file {urls_file}, or {' '.join(inputs)}")
    from shoal.app import opened_queue
    from shoal.commands.schedule import ScheduleOptions, plan_schedule, save_schedule

    given = click.get_current_context().meta[COMMAND_ARGS]
    plan = plan_schedule(
        settings,
        ScheduleOptions(
            target=target,
            cron=when,
            inputs=(urls_file,) if urls_file else inputs,
            fields=read_fields(given_fields),
            column=column or "",
            name=named or "",
            zone=zone,
            overlap=overlap,
            weight=weight,
            priority=priority,
            replace=replace,
            command=shlex.join(["shoal", "schedule", "add", *given]),
        ),
    )

    async def job() -> tuple[Schedule, int]:
        async with opened_queue(settings) as queue:
            saved = await save_schedule(queue, plan)
            await log_command(queue, "replace schedule" if plan.options.replace else "add schedule", saved.name)
            return saved, await queue.now()

    import asyncio

    made, now = asyncio.run(job())
    if as_json:
        print_json(schedule_document(made, now))
        return 0
    print_line(f"Schedule {made.name}: {describe_cron(made.cron, made.zone)}, {_count_urls(made)} to start from.")
    print_line(f"  First at {_format_utc(made.next)}, in {format_duration((made.next - now) / 1e6)}.")
    for at, text, why in plan.rejected[:MAX_REJECTED_SHOWN]:
        print_line(wrap(f"  Line {at} is not a URL to fetch: {clean(text)}: {clean(why)}", indent="  "))
    if len(plan.rejected) > MAX_REJECTED_SHOWN:
        print_line(f"  So do {count(len(plan.rejected) - MAX_REJECTED_SHOWN, 'more line')}.")
    if settings.allow_private:
        print_line("  --allow-private is a setting of each worker: set it where such hosts may be reached.")
    print_hint(f"  Start a worker for its runs: shoal worker {_target(made)}".rstrip())
    return 0


def _count_urls(made: Schedule) -> str:
    number = made.order.urls
    return f"{count(number, 'URL')}"


def _target(made: Schedule) -> str:
    code = made.order.spec.get("code")
    return clean(shlex.quote(str(code["target"]))) if isinstance(code, dict) else ""


@schedule.command("list", cls=Command, examples="shoal schedule list\nshoal schedule list --json")
@as_json
@click_options("look")
def list_(settings: Settings, as_json: bool) -> int:
    """List the schedules and their next times."""

    async def job(queue: Queue) -> int:
        found, now = await schedules.all_schedules(queue), await queue.now()
        if as_json:
            print_json([schedule_document(one, now) for one in found])
        elif found:
            heads = ("schedule", "when", "cron", "overlap", "next", "last", "fired", "skipped", "missed")
            print_table(heads, [_row(one, now) for one in found], right="fired skipped missed")
        else:
            print_hint(NO_SCHEDULES)
        return 0

    try:
        return with_queue(settings, job)
    except NoRuns:
        print_json([]) if as_json else print_hint(NO_SCHEDULES)
        return 0


def _row(found: Schedule, now: int) -> tuple[object, ...]:
    upcoming = "paused" if found.paused else _format_utc(next_time(found, now))
    last = found.history[0] if found.history else None
    return (
        found.name,
        describe_cron(found.cron, found.zone),
        found.cron,
        found.overlap,
        upcoming,
        (last.run or "skipped") if last else "",
        count(found.fired),
        count(found.skipped),
        count(found.missed),
    )


@schedule.command(cls=Command, examples="shoal schedule show books")
@click.argument("name", metavar="NAME")
@as_json
@click_options("look")
def show(settings: Settings, name: str, as_json: bool) -> int:
    """Show a schedule and its recent firings."""

    async def job(queue: Queue) -> None:
        found, now = await schedules.find(queue, name), await queue.now()
        print_json(schedule_document(found, now)) if as_json else _show(found, now)

    return _with_schedule(settings, name, job)


def _show(found: Schedule, now: int) -> None:
    print_line(f"Schedule {found.name}{', paused' if found.paused else ''}")
    upcoming = next_time(found, now)
    pairs: list[tuple[str, object]] = [
        ("when", describe_cron(found.cron, found.zone)),
        ("cron", f"{found.cron} {found.zone}"),
        ("scraper", clean(found.order.scraper)),
        ("start", _count_urls(found)),
        ("overlap", found.overlap),
        ("made", _format_utc(found.made_at)),
    ]
    if not found.paused:
        pairs.append(("next", f"{_format_utc(upcoming)}, in {format_duration((upcoming - now) / 1e6)}"))
    if found.waiting:
        pairs.append(("waits", f"{_format_utc(found.waiting)}, for run {found.latest} to end"))
    pairs.append(("times", f"{count(found.fired)} fired, {count(found.skipped)} skipped, {count(found.missed)} missed"))
    print_fields(pairs)
    if found.history:
        print_table(("time", "run"), [(_format_utc(it.at), _describe_firing(it)) for it in found.history])


def _describe_firing(firing: Firing) -> str:
    return f"skipped: {firing.why}" if firing.why else firing.run + (" (by hand)" if firing.is_manual else "")


@schedule.command(cls=Command, examples="shoal schedule pause books")
@click.argument("name", metavar="NAME")
@click_options("look")
def pause(settings: Settings, name: str) -> int:
    """Pause a schedule: its times pass until it is resumed."""

    async def job(queue: Queue) -> None:
        await schedules.pause(queue, name)
        await log_command(queue, "pause schedule", name)
        print_hint(f"Schedule {name} is paused.\n  Resume with: shoal schedule resume {name}")

    return _with_schedule(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule resume books")
@click.argument("name", metavar="NAME")
@click_options("look")
def resume(settings: Settings, name: str) -> int:
    """Resume a paused schedule.

    Missed times are not made up for.
    """

    async def job(queue: Queue) -> None:
        found = await schedules.resume(queue, name)
        await log_command(queue, "resume schedule", name)
        print_line(f"Schedule {name} is resumed; next at {_format_utc(found.next)}.")

    return _with_schedule(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule remove books")
@click.argument("name", metavar="NAME")
@click_options("look")
def remove(settings: Settings, name: str) -> int:
    """Remove a schedule; runs it has started continue."""

    async def job(queue: Queue) -> None:
        found = await schedules.remove(queue, name)
        await log_command(queue, "remove schedule", name)
        print_line(f"Schedule {name} is removed; it had fired {count(found.fired, 'time')}.")

    return _with_schedule(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule run books")
@click.argument("name", metavar="NAME")
@click.option("--anyway", is_flag=True, help="Even if the previous run is still running.")
@as_json
@click_options("look")
def run(settings: Settings, name: str, anyway: bool, as_json: bool) -> int:
    """Start a run of a schedule now, in addition to its times."""

    async def job(queue: Queue) -> None:
        started = await schedules.run_now(queue, name, anyway=anyway)
        await log_command(queue, "run schedule", name, run=started.name)
        if as_json:
            print_json({"schedule": name, "run_id": started.name})
        else:
            print_hint(f"Run {started.name} is in the queue.\n  Follow it: shoal watch {started.name}")

    return _with_schedule(settings, name, job)


def _with_schedule(settings: Settings, name: str, job: Callable[[Queue], Awaitable[None]]) -> int:
    try:
        with_queue(settings, job)
    except NoRuns:
        raise UsageError(
            f"there is no schedule {name} here", hint='shoal schedule add books.py "0 3 * * *" creates one'
        ) from None
    return 0


def _format_utc(at: int) -> str:
    """A moment in UTC, as schedules are thought of."""
    text = iso_time(at)
    return text[:19].replace("T", " ") + " UTC" if text else ""
