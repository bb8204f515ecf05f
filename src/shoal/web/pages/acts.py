"""Acts: forms of the pages become deeds; what is not confirmed yet is asked for on a page of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.control import acting, hosting, timetable
from shoal.control.acting import Acting, Changed, Wanted, choose
from shoal.core import measure
from shoal.core.run import Run
from shoal.core.task import LaneChange
from shoal.errors import Usage
from shoal.queue.base import Queue, RunAction, TaskView, Where
from shoal.view import words
from shoal.view.why import BIGGEST, run_of_task
from shoal.web import tokens
from shoal.web.pages.deeds import DEEDS, Deed, hosts_meant, numbers
from shoal.web.pages.look import In, Operator, pages
from shoal.web.pages.render import plain
from shoal.web.pages.said import Said, say
from shoal.web.problem import Problem, no_such
from shoal.web.room import Room

router = pages()
LONGEST = 8_192
NAMED = 5  # of many hosts
PICKED, LISTED = 1_000, 64_000  # rows of a list that are chosen one by one, and characters of their names

Fields = Mapping[str, str]
Do = Callable[[Room, Acting, str, Fields], Awaitable[Said]]


def local(path: str) -> str:
    """A path of this server to go on with, and nothing else."""
    parts = urlsplit(path)
    fine = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine and not parts.scheme and not parts.netloc and len(path) < LONGEST else "/"


@router.post("/act")
async def act(request: Request, room: In, caller: Operator) -> Response:
    form = await request.form()
    told = {name: value for name, value in form.items() if isinstance(value, str) and name != "pick"}
    # Left out, a long one would no longer narrow anything down.
    if any(len(value) > (LONGEST if name != "ids" else LISTED) for name, value in told.items()):
        raise Problem(422, "too-long", f"a field of this form has more than {LONGEST:,} characters")
    if any("\0" in str(value) for _, value in form.multi_items()):
        raise Problem(422, "not-text", "a field of this form has a character that no store can keep")
    deed = DEEDS.get(told.get("deed", ""))
    about = told.get("about", "")
    if deed is None or not about:
        raise Problem(422, "unknown-action", "this form asks for nothing that can be done here")
    if not caller.may(deed.scope):
        raise Problem(
            403, "not-allowed", f"this needs the scope {deed.scope}", hint="log in with another token"
        )
    back = local(told.get("back", "/"))
    whole = told.pop("reach", "") == "all"  # all that match, whatever is ticked
    if told.pop("picking", "") and not whole and not told.get("ids"):
        told["ids"] = _chosen([value for value in form.getlist("pick") if isinstance(value, str)])
    if not told.get("confirmed"):
        counted = await _counted(room, deed, about, told)
        address = str(request.base_url).rstrip("/")
        shown = _asked(deed, about, told, back) | {"counted": counted, "address": address}
        return plain(request, caller, "confirm.html", shown)
    said = await _DO[deed.name](room, Acting(room.queue, caller.name), about, told)
    room.touched()
    response = RedirectResponse(back, 303)
    if not told.get("undo"):
        say(response, said)
    else:
        say(response, Said(said.deed, said.about, said.count, said.more))
    return response


def _chosen(picked: Sequence[str]) -> str:
    """The rows that are ticked; none must never come to mean all."""
    picked = [it for it in picked if it]
    if not picked:
        raise Problem(
            422, "nothing-chosen", "no row is chosen", hint="go back and tick the rows that you mean"
        )
    if len(picked) > PICKED:
        raise Problem(422, "too-many", f"more than {PICKED:,} rows are chosen at once")
    made = " ".join(dict.fromkeys(picked))  # a host may have a comma in its name
    if len(made) > LISTED:
        raise Problem(422, "too-long", "these are not rows of a list")
    return made


def _asked(deed: Deed, about: str, told: Fields, back: str) -> dict[str, Any]:
    form = deed.form(about, told)
    for name in ("spacing", "limit"):
        form = {key: text.replace(f"{{{name}}}", told.get(name, "")) for key, text in form.items()}
    kept = {name: value for name, value in told.items() if name not in ("csrf", "confirmed", "undo")}
    return {"deed": deed, "form": form, "kept": kept, "back": back}


def _steer(name: str, action: RunAction) -> Do:
    async def do(room: Room, acts: Acting, about: str, told: Fields) -> Said:
        run = await _run(room, about)
        await acts.steer(run, action)
        return Said(name, run.name)

    return do


async def _purge(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    run = await _run(room, about)
    await acts.purge(run)
    return Said("run.purge", run.name)


async def _run(room: Room, name: str) -> Run:
    """Of exactly this name: an action never means another one that begins like it."""
    found = await room.queue.runs(name=name, limit=20)
    run = next((it for it in found if it.name == name), None)
    if run is None:
        raise no_such("run", name)
    return run


def _where(told: Fields) -> Where:
    ids = numbers(told.get("ids", ""))
    if any(not 0 < id <= BIGGEST for id in ids):
        raise Problem(422, "unknown-row", "what is chosen is not a task")
    return Where(told.get("host", ""), told.get("cause", ""), told.get("url", ""), tuple(ids))


async def _revive(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    return _changed("dead.revive", about, await acts.revive(await _run(room, about), _where(told)))


async def _drop_dead(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    return _changed("dead.drop", about, await acts.drop(await _run(room, about), _where(told), "dead"))


async def _drop_ready(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    return _changed("tasks.drop", about, await acts.drop(await _run(room, about), _where(told), "ready"))


def _changed(deed: str, about: str, changed: Changed) -> Said:
    return Said(deed, about, changed.count, changed.more)


async def _task(room: Room, about: str) -> tuple[Run, TaskView]:
    number = int(about) if about.isascii() and about.isdecimal() and len(about) < 20 else 0
    found = await run_of_task(room.queue, number)
    if found is None:
        raise no_such("task", about[:40])
    return found


async def _revive_task(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    run, task = await _task(room, about)
    return Said("task.revive", about, await acts.revive_task(run, task))


async def _drop_task(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    run, task = await _task(room, about)
    return Said("task.drop", about, await acts.drop_task(run, task))


async def _host(room: Room, about: str) -> str:
    lane = await acting.host(room.queue, about)
    if lane is None:
        raise no_such("host", about)
    return lane.name


async def _park(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    name = await _host(room, about)
    await acts.park(name)
    return Said("host.park", name)


async def _release(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    name = await _host(room, about)
    await acts.release(name)
    return Said("host.release", name)


async def _pace(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    before = await _before(room, about)
    spacing, limit = _given_pace(told)
    await acts.pace(before["about"], spacing=spacing, limit=limit)
    return Said("host.pace", before.pop("about"), back=before)


async def _reset(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    before = await _before(room, about)
    await acts.pace(before["about"], spacing=-1.0, limit=-1)
    return Said("host.reset", before.pop("about"), back=before)


async def _before(room: Room, about: str) -> dict[str, str]:
    """What a person had set for a host, so that it can be set again."""
    lane = await acting.host(room.queue, about)
    if lane is None:
        raise no_such("host", about)
    return {"about": lane.name, "spacing": f"{lane.rule:g}", "limit": str(lane.limit)}


def _given_pace(told: Fields) -> tuple[float, int]:
    return (
        _number(told, "spacing", measure.seconds(zero=True), "a time such as 2s, or 0"),
        _number(told, "limit", measure.whole(0), "a whole number; 0 is no limit"),
    )


def _number(told: Fields, name: str, parse: Callable[[object], Any], accepts: str) -> Any:
    given = told.get(name, "").strip()
    if given in ("-1", "-1.0"):
        return -1  # nobody had set it
    try:
        return parse(given)
    except (ValueError, TypeError):
        raise Usage(f"{name}: {given!r} is not understood", hint=f"give {accepts}") from None


def _change(deed: str, told: Fields) -> LaneChange:
    """What a deed does to each of many hosts."""
    if deed == "hosts.pace":
        return hosting.pacing(*_given_pace(told))
    made = {"hosts.park": hosting.parking(), "hosts.release": hosting.releasing()}
    return made.get(deed) or hosting.pacing(-1.0, -1)


async def _counted(room: Room, deed: Deed, about: str, told: Fields) -> str:
    """Which hosts would be changed, of deeds that may change thousands."""
    if deed.body != "hosts":
        return ""
    found = await hosting.count(room.queue, hosts_meant(about, told), _change(deed.name, told))
    if not found.count:
        return "Now no host would be changed."
    more = "at least " if found.next else ""
    return f"Now {more}{words.count(found.count, 'host')}: {_names(found.names)}."


def _names(names: Sequence[str]) -> str:
    shown, left = names[:NAMED], len(names) - NAMED
    return f"{', '.join(shown)} and {words.count(left)} more" if left > 0 else ", ".join(shown)


def _many(name: str) -> Do:
    async def do(room: Room, acts: Acting, about: str, told: Fields) -> Said:
        change = _change(name, told)
        which, after = hosts_meant(about, told), told.get("after", "")
        found = await hosting.change_hosts(room.queue, acts.who, which, change, after=after)
        kept = {field: told[field] for field in ("only", "spacing", "limit") if told.get(field)}
        on = kept | {"after": found.next} if found.next else {}
        return Said(name, about, found.count, more=bool(found.next), on=on)

    return do


def _ask(name: str, wanted: Wanted) -> Do:
    async def do(room: Room, acts: Acting, about: str, told: Fields) -> Said:
        marks = choose(await room.queue.workers(), about)
        if not marks or not await acts.ask_workers(marks, wanted):
            raise no_such("worker", about)
        return Said(name, about)

    return do


async def _schedule_run(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    run = await timetable.run_now(room.queue, about)
    await acts.did("run now", about, run=run.name)
    return Said("schedule.run", about)


def _schedule(verb: str, change: Callable[[Queue, str], Awaitable[object]]) -> Do:
    async def do(room: Room, acts: Acting, about: str, told: Fields) -> Said:
        await change(room.queue, about)
        await acts.did(f"{verb} schedule", about)
        return Said(f"schedule.{verb}", about)

    return do


async def _token_remove(room: Room, acts: Acting, about: str, told: Fields) -> Said:
    if not await tokens.remove(room.queue, about):
        raise no_such("token", about)
    room.gate.touched()
    await acts.did("remove token", about)
    return Said("token.remove", about)


_DO: dict[str, Do] = {
    "run.pause": _steer("run.pause", "pause"),
    "run.resume": _steer("run.resume", "resume"),
    "run.cancel": _steer("run.cancel", "cancel"),
    "run.purge": _purge,
    "dead.revive": _revive,
    "dead.drop": _drop_dead,
    "tasks.drop": _drop_ready,
    "task.revive": _revive_task,
    "task.drop": _drop_task,
    "host.park": _park,
    "host.release": _release,
    "host.pace": _pace,
    "host.reset": _reset,
    "hosts.park": _many("hosts.park"),
    "hosts.release": _many("hosts.release"),
    "hosts.pace": _many("hosts.pace"),
    "hosts.reset": _many("hosts.reset"),
    "worker.drain": _ask("worker.drain", "drain"),
    "worker.pause": _ask("worker.pause", "pause"),
    "worker.resume": _ask("worker.resume", ""),
    "schedule.run": _schedule_run,
    "schedule.pause": _schedule("pause", timetable.pause),
    "schedule.resume": _schedule("resume", timetable.resume),
    "schedule.remove": _schedule("remove", timetable.remove),
    "token.remove": _token_remove,
}

assert set(_DO) == set(DEEDS), "every deed that pages offer can be done"
