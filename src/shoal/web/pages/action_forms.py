"""Action forms: carries out what a form of a page asks for, after a confirmation page if need be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.config.setting import read_value
from shoal.control import actions, host_actions, schedules, webhooks
from shoal.control.actions import ChangedTasks, UserActions, WorkerAction, find_workers
from shoal.control.session_actions import renew_session
from shoal.core import units
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.core.task import LaneChange
from shoal.queue.base import Queue, RunAction, TaskFilter, TaskView
from shoal.view import formatting
from shoal.view.why import MAX_ID, find_task
from shoal.web.api.scale import check_workers
from shoal.web.api.webhooks import edit_hook
from shoal.web.auth import tokens
from shoal.web.context import ServerContext
from shoal.web.http.prefix import server_url
from shoal.web.http.problem import Problem, not_found
from shoal.web.pages.actions import PAGE_ACTIONS, PageAction, selected_hosts, task_ids
from shoal.web.pages.flash import FlashMessage, set_flash
from shoal.web.pages.hook_form import read_hook
from shoal.web.pages.queries import ContextDep, OperatorDep, page_router
from shoal.web.pages.render import render_page
from shoal.web.pages.schedule_form import read_times
from shoal.web.submit import schedule_requests

router = page_router()
MAX_FIELD_LENGTH = 8_192
MAX_NAMES = 5  # of many hosts
# Rows of a list that are chosen one by one, and characters of their names.
MAX_PICKED, MAX_PICKED_LENGTH = 1_000, 64_000

FormFields = Mapping[str, str]


class ActionForm(NamedTuple):
    context: ServerContext
    actor: UserActions
    about: str
    fields: FormFields


Handler = Callable[[ActionForm], Awaitable[FlashMessage]]


def local_path(path: str) -> str:
    """A path of this server to go on with, and nothing else."""
    parts = urlsplit(path)
    fine = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine and not parts.scheme and not parts.netloc and len(path) < MAX_FIELD_LENGTH else "/"


@router.post("/act")
async def act(request: Request, context: ContextDep, caller: OperatorDep) -> Response:
    form = await request.form()
    fields = {name: value for name, value in form.items() if isinstance(value, str) and name != "pick"}
    # Left out, a long one would no longer narrow anything down.
    if any(len(value) > (MAX_FIELD_LENGTH if name != "ids" else MAX_PICKED_LENGTH) for name, value in fields.items()):
        raise Problem(422, "field-too-long", f"a field of this form has more than {MAX_FIELD_LENGTH:,} characters")
    if any("\0" in str(value) for _, value in form.multi_items()):
        raise Problem(422, "invalid-text", "a field of this form has a character that no store can keep")
    action = PAGE_ACTIONS.get(fields.get("page_action", ""))
    about = fields.get("about", "")
    if action is None or action.own_form or not about:
        raise Problem(422, "unknown-action", "this form requests an unknown action")
    if not caller.has_scope(action.scope):
        raise Problem(
            403, "insufficient-scope", f"this needs the scope {action.scope}", hint="log in with another token"
        )
    back = local_path(fields.get("back", "/"))
    whole = fields.pop("reach", "") == "all"  # all that match, whatever is ticked
    if fields.pop("picking", "") and not whole and not fields.get("ids"):
        fields["ids"] = _picked_rows([value for value in form.getlist("pick") if isinstance(value, str)])
    if not fields.get("confirmed"):
        counted = await _affected_hosts(context, action, about, fields)
        own_url = server_url(request)
        shown = _confirmation(action, about, fields, back) | {"counted": counted, "server_url": own_url}
        return render_page(request, caller, "confirm.html", shown)
    message = await _HANDLERS[action.name](ActionForm(context, context.actor(caller, "page"), about, fields))
    context.invalidate()
    response = RedirectResponse(back, 303)
    if not fields.get("undo"):
        set_flash(response, message)
    else:
        set_flash(response, FlashMessage(message.action, message.about, message.count, message.more))
    return response


def _picked_rows(picked: Sequence[str]) -> str:
    """The rows that are ticked; none must never come to mean all."""
    picked = [it for it in picked if it]
    if not picked:
        raise Problem(422, "no-rows-selected", "no row selected", hint="go back and select the rows you want")
    if len(picked) > MAX_PICKED:
        raise Problem(422, "too-many-rows", f"more than {MAX_PICKED:,} rows selected at once")
    made = " ".join(dict.fromkeys(picked))  # a host may have a comma in its name
    if len(made) > MAX_PICKED_LENGTH:
        raise Problem(422, "field-too-long", "these are not rows of a list")
    return made


def _confirmation(action: PageAction, about: str, fields: FormFields, back: str) -> dict[str, Any]:
    form = action.form(about, fields)
    for name in ("spacing", "limit", "cron", "zone", "overlap", "events", "scraper", "stalled_after", "workers"):
        form = {key: text.replace(f"{{{name}}}", fields.get(name, "")) for key, text in form.items()}
    kept = {name: value for name, value in fields.items() if name not in ("csrf", "confirmed", "undo")}
    return {"action": action, "form": form, "kept": kept, "back": back}


def _run_action(name: str, action: RunAction) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        run = await _run(form.context, form.about)
        await form.actor.control_run(run, action)
        return FlashMessage(name, run.name)

    return handle


async def _purge(form: ActionForm) -> FlashMessage:
    run = await _run(form.context, form.about)
    await form.actor.purge(run)
    return FlashMessage("run.purge", run.name)


async def _run(context: ServerContext, name: str) -> Run:
    """Of exactly this name: an action never means another one that begins like it."""
    found = await context.queue.runs(name=name, limit=20)
    run = next((it for it in found if it.name == name), None)
    if run is None:
        raise not_found("run", name)
    return run


def _where(fields: FormFields) -> TaskFilter:
    ids = task_ids(fields.get("ids", ""))
    if any(not 0 < id <= MAX_ID for id in ids):
        raise Problem(422, "invalid-task-id", "the selection is not a task")
    return TaskFilter(fields.get("host", ""), fields.get("cause", ""), fields.get("url", ""), tuple(ids))


def _tasks_action(name: str, change: Callable[[UserActions, Run, TaskFilter], Awaitable[ChangedTasks]]) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        run = await _run(form.context, form.about)
        changed = await change(form.actor, run, _where(form.fields))
        return FlashMessage(name, form.about, changed.count, changed.more)

    return handle


async def _task(context: ServerContext, about: str) -> tuple[Run, TaskView]:
    number = int(about) if about.isascii() and about.isdecimal() and len(about) < 20 else 0
    found = await find_task(context.queue, number)
    if found is None:
        raise not_found("task", about[:40])
    return found


def _task_action(name: str, change: Callable[[UserActions, Run, TaskView], Awaitable[int]]) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        run, task = await _task(form.context, form.about)
        return FlashMessage(name, form.about, await change(form.actor, run, task))

    return handle


async def _lane(form: ActionForm) -> LaneState:
    lane = await actions.find_host(form.context.queue, form.about)
    if lane is None:
        raise not_found("host", form.about)
    return lane


def _host_action(name: str, change: Callable[[UserActions, str], Awaitable[object]]) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        host = (await _lane(form)).name
        await change(form.actor, host)
        return FlashMessage(name, host)

    return handle


async def _forget_host(form: ActionForm) -> FlashMessage:
    lane = await _lane(form)
    change = host_actions.change_for(host_actions.forget_change(), lane, await form.context.queue.now())
    await form.actor.change_lane("forget", change)
    return FlashMessage("host.forget", lane.name)


def _pace_action(name: str, pace_of: Callable[[FormFields], tuple[float, int]]) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        lane, (spacing, limit) = await _lane(form), pace_of(form.fields)
        await form.actor.pace(lane.name, spacing=spacing, limit=limit)
        # What a person had set, so that it can be set again.
        before = {"spacing": f"{lane.spacing_override:g}", "limit": str(lane.limit)}
        return FlashMessage(name, lane.name, undo_fields=before)

    return handle


def _pace_of(fields: FormFields) -> tuple[float, int]:
    return (
        _number(fields, "spacing", units.seconds(zero=True), "a time such as 2s, or 0"),
        _number(fields, "limit", units.integer(0), "a whole number; 0 is no limit"),
    )


def _number(fields: FormFields, name: str, parse: Callable[[object], Any], accepts: str) -> Any:
    given = fields.get(name, "").strip()
    if given in ("-1", "-1.0"):
        return -1  # nobody had set it
    return read_value(parse, given, name, accepts)


def _change(action: str, fields: FormFields) -> LaneChange:
    """What an action does to each of many hosts."""
    if action == "hosts.pace":
        return host_actions.pace_change(*_pace_of(fields))
    made = {"hosts.park": host_actions.park_change(), "hosts.release": host_actions.release_change()}
    return made.get(action) or host_actions.pace_change(-1.0, -1)


async def _affected_hosts(context: ServerContext, action: PageAction, about: str, fields: FormFields) -> str:
    """Which hosts an action would change; it may be thousands."""
    if action.body != "hosts":
        return ""
    found = await host_actions.count_hosts(context.queue, selected_hosts(about, fields), _change(action.name, fields))
    if not found.count:
        return "No host would be changed."
    more = "At least " if found.next else ""
    return f"{more}{formatting.count(found.count, 'host')}: {_names(found.names)}."


def _names(names: Sequence[str]) -> str:
    shown, left = names[:MAX_NAMES], len(names) - MAX_NAMES
    return f"{', '.join(shown)} and {formatting.count(left)} more" if left > 0 else ", ".join(shown)


def _hosts_action(name: str) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        change = _change(name, form.fields)
        which, after = selected_hosts(form.about, form.fields), form.fields.get("after", "")
        found = await host_actions.change_hosts(form.context.queue, form.actor, which, change, after=after)
        kept = {field: form.fields[field] for field in ("only", "spacing", "limit") if form.fields.get(field)}
        on = kept | {"after": found.next} if found.next else {}
        return FlashMessage(name, form.about, found.count, more=bool(found.next), continue_fields=on)

    return handle


def _worker_action(name: str, wanted: WorkerAction) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        statuses = find_workers(await form.context.queue.workers(), form.about)
        if not statuses or not await form.actor.control_workers(statuses, wanted):
            raise not_found("worker", form.about)
        return FlashMessage(name, form.about)

    return handle


async def _set_workers(form: ActionForm) -> FlashMessage:
    """As many as the form says, or as many as the scaler thinks fit ("auto")."""
    given = form.fields.get("workers", "").strip()
    is_auto = form.fields.get("page_action") == "scale.auto" or given == "auto"
    workers = None if is_auto else read_value(units.integer(0), given, "workers", "a whole number")
    before = (await check_workers(form.context, workers)).request.fixed
    await form.actor.set_workers(workers)
    undo = {"workers": "auto" if before is None else str(before)}
    if workers is None:
        return FlashMessage("scale.auto", "workers", undo_fields=undo)
    return FlashMessage("scale.set", formatting.count(workers, "worker"), undo_fields=undo)


async def _renew_session(form: ActionForm) -> FlashMessage:
    context = form.context
    await renew_session(context.queue, form.actor, context.settings, form.about)
    return FlashMessage("session.renew", form.about)


async def _run_schedule(form: ActionForm) -> FlashMessage:
    run = await schedules.run_now(form.context.queue, form.about)
    await form.actor.log_action("run schedule", form.about, run=run.name)
    return FlashMessage("schedule.run", form.about)


def _schedule_action(verb: str, change: Callable[[Queue, str], Awaitable[object]]) -> Handler:
    async def handle(form: ActionForm) -> FlashMessage:
        await change(form.context.queue, form.about)
        await form.actor.log_action(f"{verb} schedule", form.about)
        return FlashMessage(f"schedule.{verb}", form.about)

    return handle


async def _change_schedule(form: ActionForm) -> FlashMessage:
    before = schedule_requests.times_of(await schedules.find(form.context.queue, form.about))
    errors: dict[str, str] = {}
    times = read_times({name: form.fields.get(name, "") for name in ("cron", "zone", "overlap")}, errors)
    if times is None:
        raise Problem(422, "invalid-schedule", " ".join(errors.values()), hint="go back and correct it")
    await schedule_requests.change_times(form.context, form.about, times)
    await form.actor.log_action("change schedule", form.about)
    return FlashMessage("schedule.change", form.about, undo_fields=msgspec.structs.asdict(before))


async def _change_hook(form: ActionForm) -> FlashMessage:
    known = {hook.id: hook for hook in await webhooks.list_webhooks(form.context.queue)}
    if form.about not in known:
        raise not_found("hook", form.about[:40])
    before = known[form.about]
    await edit_hook(form.context, form.about, read_hook(form.fields))
    await form.actor.log_action("change hook", form.about)
    undo = {"events": " ".join(before.events), "scraper": before.scraper, "stalled_after": f"{before.stalled_after:g}"}
    return FlashMessage("hook.change", form.about, undo_fields=undo)


async def _remove_hook(form: ActionForm) -> FlashMessage:
    if not await webhooks.remove(form.context.queue, form.about):
        raise not_found("hook", form.about[:40])
    await form.actor.log_action("remove hook", form.about)
    return FlashMessage("hook.remove", form.about)


async def _remove_token(form: ActionForm) -> FlashMessage:
    if not await tokens.remove(form.context.queue, form.about):
        raise not_found("token", form.about)
    form.context.authenticator.invalidate()
    await form.actor.log_action("remove token", form.about)
    return FlashMessage("token.remove", form.about)


_HANDLERS: dict[str, Handler] = {
    "run.pause": _run_action("run.pause", "pause"),
    "run.resume": _run_action("run.resume", "resume"),
    "run.cancel": _run_action("run.cancel", "cancel"),
    "run.undo": _run_action("run.undo", "undo"),
    "run.purge": _purge,
    "dead.revive": _tasks_action("dead.revive", UserActions.revive),
    "dead.drop": _tasks_action("dead.drop", lambda actor, run, where: actor.drop(run, where, "dead")),
    "tasks.drop": _tasks_action("tasks.drop", lambda actor, run, where: actor.drop(run, where, "ready")),
    "task.revive": _task_action("task.revive", UserActions.revive_task),
    "task.drop": _task_action("task.drop", UserActions.drop_task),
    "host.park": _host_action("host.park", UserActions.park),
    "host.release": _host_action("host.release", UserActions.release),
    "host.pace": _pace_action("host.pace", _pace_of),
    "host.reset": _pace_action("host.reset", lambda fields: (-1.0, -1)),
    "host.forget": _forget_host,
    "session.renew": _renew_session,
    "hosts.park": _hosts_action("hosts.park"),
    "hosts.release": _hosts_action("hosts.release"),
    "hosts.pace": _hosts_action("hosts.pace"),
    "hosts.reset": _hosts_action("hosts.reset"),
    "worker.drain": _worker_action("worker.drain", "drain"),
    "worker.pause": _worker_action("worker.pause", "pause"),
    "worker.resume": _worker_action("worker.resume", ""),
    "scale.set": _set_workers,
    "scale.auto": _set_workers,
    "schedule.run": _run_schedule,
    "schedule.pause": _schedule_action("pause", schedules.pause),
    "schedule.resume": _schedule_action("resume", schedules.resume),
    "schedule.remove": _schedule_action("remove", schedules.remove),
    "schedule.change": _change_schedule,
    "hook.change": _change_hook,
    "hook.remove": _remove_hook,
    "token.remove": _remove_token,
}

assert set(_HANDLERS) == {action.name for action in PAGE_ACTIONS.values() if not action.own_form}, "each has a handler"
