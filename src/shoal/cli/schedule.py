"""shoal schedule add, list, show, pause, resume, remove and run."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable

import click

from shoal.cli.command import GIVEN, Command, Group
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import NoRuns, with_queue
from shoal.cli.run import read_fields
from shoal.cli.show import clean, count, document, fields, lasting, line, stamp, table, wrapped
from shoal.config import Settings
from shoal.control import timetable
from shoal.core.schedule import Firing, Schedule
from shoal.errors import Usage
from shoal.queue.base import Queue
from shoal.view.schedules import next_time, schedule_document

MANY_REJECTED = 3
OVERLAPS = ("skip", "queue", "cancel-former", "allow")
NONE = 'No schedules here yet.\n  try: shoal schedule add books.py "0 3 * * *"'


@click.group(
    cls=Group,
    examples="""
    shoal schedule add books.py "0 3 * * *"       every night at three, UTC
    shoal schedule add books.py "0 9 * * mon-fri" --zone Europe/Berlin
    shoal schedule add urls.txt "every 6h" -f title=h1::text
    shoal schedule list                           with their next times
    shoal schedule run books                      now, too
    """,
)
def schedule() -> None:
    """Start runs at set times.

    Schedules are kept in the queue. Any number of workers and coordinators look after them, and each time
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
@click.option("--urls-file", metavar="FILE", help="A list of addresses to start from; read now, and kept.")
@click.option("--name", "named", help="What it is called; the scraper's name unless given.")
@click.option(
    "--zone", default="UTC", show_default=True, help="The time zone of WHEN, such as Europe/Berlin."
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="skip",
    show_default=True,
    help="What to do while the former run still goes on.",
)
@click.option("--replace", is_flag=True, help="Put it in the place of one of the same name.")
@click.option(
    "-f",
    "--field",
    "given_fields",
    multiple=True,
    metavar="NAME=SELECTOR",
    help="A field, for lists and addresses.",
)
@click.option("--column", metavar="NAME", help="Which column of a list holds the addresses.")
@click.option("--weight", type=click.IntRange(1), default=1, help="The share of its runs beside others. [1]")
@click.option("--priority", type=int, default=0, help="Of its start addresses. [0]")
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
    """Start a run of TARGET whenever WHEN comes.

    TARGET and MORE are as with shoal submit. WHEN has five fields, minute hour day month weekday
    ("0 3 * * *", "*/15 8-18 * * mon-fri"), or is @hourly, @daily, @weekly, @monthly, @yearly, or
    "every 15m".

    Start addresses, settings and the version of the code are those of now: after a change of them, give
    the command again with --replace.
    """
    if urls_file and inputs:
        raise Usage("give the addresses once", hint=f"--urls-file {urls_file}, or {' '.join(inputs)}")
    from shoal.app import open_queue
    from shoal.scheduling import Wish, planned, scheduled

    given = click.get_current_context().meta[GIVEN]
    plan = planned(
        settings,
        Wish(
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
        queue = await open_queue(settings)
        try:
            return await scheduled(queue, plan), await queue.now()
        finally:
            await queue.close()

    import asyncio

    made, now = asyncio.run(job())
    if as_json:
        document(schedule_document(made, now))
        return 0
    line(f"Schedule {made.name}: {made.cron} {made.zone}, {_addresses(made)} to start from.")
    line(f"  First at {_time(made.next)}, in {lasting((made.next - now) / 1e6)}.")
    for at, text, why in plan.rejected[:MANY_REJECTED]:
        line(wrapped(f"  Line {at} leads to no request: {clean(text)}: {clean(why)}", indent="  "))
    if len(plan.rejected) > MANY_REJECTED:
        line(f"  So do {count(len(plan.rejected) - MANY_REJECTED, 'more line')}.")
    if settings.allow_private:
        line("  --allow-private is each worker's own setting: give it to those who may reach such hosts.")
    line(f"  Workers start its runs, and work on them: shoal worker {_target(made)}".rstrip())
    return 0


def _addresses(made: Schedule) -> str:
    number = made.order.addresses
    return f"{count(number)} {'address' if number == 1 else 'addresses'}"


def _target(made: Schedule) -> str:
    code = made.order.spec.get("code")
    return clean(shlex.quote(str(code["target"]))) if isinstance(code, dict) else ""


@schedule.command("list", cls=Command, examples="shoal schedule list\nshoal schedule list --json")
@as_json
@click_options("look")
def list_(settings: Settings, as_json: bool) -> int:
    """List the schedules and their next times."""

    async def job(queue: Queue) -> int:
        found, now = await timetable.schedules(queue), await queue.now()
        if as_json:
            document([schedule_document(one, now) for one in found])
        elif found:
            heads = ("schedule", "when", "zone", "overlap", "next", "last", "fired", "skipped", "missed")
            table(heads, [_row(one, now) for one in found], right="fired skipped missed")
        else:
            line(NONE)
        return 0

    try:
        return with_queue(settings, job)
    except NoRuns:
        document([]) if as_json else line(NONE)
        return 0


def _row(found: Schedule, now: int) -> tuple[object, ...]:
    upcoming = "paused" if found.paused else _time(next_time(found, now))
    last = found.history[0] if found.history else None
    return (
        found.name,
        found.cron,
        found.zone,
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
    """Show a schedule and what became of its last times."""

    async def job(queue: Queue) -> None:
        found, now = await timetable.find(queue, name), await queue.now()
        document(schedule_document(found, now)) if as_json else _show(found, now)

    return _on(settings, name, job)


def _show(found: Schedule, now: int) -> None:
    line(f"Schedule {found.name}{', paused' if found.paused else ''}")
    upcoming = next_time(found, now)
    pairs: list[tuple[str, object]] = [
        ("when", f"{found.cron} {found.zone}"),
        ("scraper", clean(found.order.scraper)),
        ("start", _addresses(found)),
        ("overlap", found.overlap),
        ("made", _time(found.made_at)),
    ]
    if not found.paused:
        pairs.append(("next", f"{_time(upcoming)}, in {lasting((upcoming - now) / 1e6)}"))
    if found.waiting:
        pairs.append(("waits", f"{_time(found.waiting)}, for run {found.latest} to end"))
    pairs.append(
        ("times", f"{count(found.fired)} fired, {count(found.skipped)} skipped, {count(found.missed)} missed")
    )
    fields(pairs)
    if found.history:
        table(("time", "run"), [(_time(it.at), _became(it)) for it in found.history])


def _became(firing: Firing) -> str:
    return f"skipped: {firing.why}" if firing.why else firing.run + (" (by hand)" if firing.by_hand else "")


@schedule.command(cls=Command, examples="shoal schedule pause books")
@click.argument("name", metavar="NAME")
@click_options("look")
def pause(settings: Settings, name: str) -> int:
    """Let the times of a schedule pass by until it is resumed."""

    async def job(queue: Queue) -> None:
        await timetable.pause(queue, name)
        line(f"Schedule {name} is paused.\n  Go on with: shoal schedule resume {name}")

    return _on(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule resume books")
@click.argument("name", metavar="NAME")
@click_options("look")
def resume(settings: Settings, name: str) -> int:
    """Let a paused schedule go on.

    The times that passed are not made up for.
    """

    async def job(queue: Queue) -> None:
        found = await timetable.resume(queue, name)
        line(f"Schedule {name} goes on; next at {_time(found.next)}.")

    return _on(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule remove books")
@click.argument("name", metavar="NAME")
@click_options("look")
def remove(settings: Settings, name: str) -> int:
    """Forget a schedule; runs that it has started go on."""

    async def job(queue: Queue) -> None:
        found = await timetable.remove(queue, name)
        line(f"Schedule {name} is gone; it had fired {count(found.fired, 'time')}.")

    return _on(settings, name, job)


@schedule.command(cls=Command, examples="shoal schedule run books")
@click.argument("name", metavar="NAME")
@click.option("--anyway", is_flag=True, help="Also while the former run still goes on.")
@as_json
@click_options("look")
def run(settings: Settings, name: str, anyway: bool, as_json: bool) -> int:
    """Start a run of a schedule now, beside its times."""

    async def job(queue: Queue) -> None:
        started = await timetable.run_now(queue, name, anyway=anyway)
        if as_json:
            document({"schedule": name, "run_id": started.name})
        else:
            line(f"Run {started.name} is in the queue.\n  Follow it: shoal watch {started.name}")

    return _on(settings, name, job)


def _on(settings: Settings, name: str, job: Callable[[Queue], Awaitable[None]]) -> int:
    try:
        with_queue(settings, job)
    except NoRuns:
        raise Usage(
            f"there is no schedule {name} here", hint='shoal schedule add books.py "0 3 * * *" makes one'
        ) from None
    return 0


def _time(at: int) -> str:
    """A moment in UTC, as schedules are thought of."""
    text = stamp(at)
    return text[:19].replace("T", " ") + " UTC" if text else ""
