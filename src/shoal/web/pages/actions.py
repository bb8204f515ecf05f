"""Page actions: what can be done from a page, each declared once with its text, command and API call."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from shoal.control import host_actions
from shoal.errors import UsageError
from shoal.view import formatting
from shoal.web.auth.access import Scope

_ONLY: dict[str, host_actions.HostCondition] = {"": "", "parked": "parked", "held": "held", "overridden": "overridden"}
EVERY_HOST = "every host"  # with a space, so that no host has it in its name
FILTER = ("host", "cause", "url")  # what may narrow down which tasks are meant


class PageAction(msgspec.Struct, frozen=True):
    name: str
    label: str  # of its button
    title: str  # what is asked before it is done
    words: str  # what will happen
    done: str  # what is said after it
    cli: str
    path: str  # of its call
    method: str = "POST"
    body: str = ""  # of its call: "where" is the filter; {spacing} is what its form holds
    state: str = ""  # of the tasks meant, where the call has to say it
    undo: str = ""  # the action that reverts it
    risky: bool = False  # cannot be taken back
    scope: Scope = "operate"
    unit: str = "page"  # what is counted after it
    own_form: str = ""  # the page of the form that carries it out, where there is more to fill in than to confirm
    extra_body: str = ""  # the rest of its call's body, after which hosts are meant

    def form(self, about: object, given: Mapping[str, object]) -> dict[str, str]:
        """Title, words, command and call, for one thing and with what narrows it down."""
        fields = {name: str(value) for name, value in given.items() if value}
        which = _filter_words(fields)
        if self.body == "hosts":
            which = host_actions.describe_filter(selected_hosts(str(about), fields))
        path = self.path.format(about=quote(str(about), safe=":"))
        data = self._data(str(about), fields)
        sent = f" -H 'Content-Type: application/json' -d {shlex.quote(data)}" if data else ""
        return {
            "title": self.title.format(about=about, which=which),
            "words": self.words.format(about=about, which=which, letters=_letter_count(fields.get("n", ""))),
            "cli": self._command(str(about), fields),
            "curl": f'curl -X {self.method} -H "Authorization: Bearer $SHOAL_TOKEN"{sent}'
            f" {{server_url}}{shlex.quote(path)}",
        }

    def _command(self, about: str, fields: Mapping[str, str]) -> str:
        """In one go: a name may itself be one of these words. Rows that were chosen have no command."""
        if fields.get("ids"):
            return ""
        parts = {"ABOUT": shlex.quote(about), "RUN": shlex.quote(fields.get("run", "")), "WHERE": _where_option(fields)}
        parts["HOSTS"] = _hosts_options(selected_hosts(about, fields)) if self.body == "hosts" else ""
        return re.sub("ABOUT|RUN|WHERE|HOSTS", lambda found: parts[found[0]], self.cli)

    def _data(self, about: str, fields: Mapping[str, str]) -> str:
        if self.body == "hosts":
            return _hosts_body(selected_hosts(about, fields), self.extra_body)
        if self.body != "where":
            return self.body
        which: dict[str, object] = {name: fields[name] for name in FILTER if fields.get(name)}
        if fields.get("ids"):
            which["ids"] = task_ids(fields["ids"])
        which = which or {"all": True}
        return json.dumps(which | ({"state": self.state} if self.state else {}), ensure_ascii=False)


def task_ids(ids: str) -> list[int]:
    """Tasks as a form names them; what is no number is 0, and no task's."""
    return [int(it) if it.isascii() and it.isdecimal() and len(it) < 20 else 0 for it in ids.split()]


def selected_hosts(about: str, fields: Mapping[str, str]) -> host_actions.HostSelection:
    """Hosts that were chosen one by one, or by a part of their name and how they stand."""
    if fields.get("ids"):
        if not (names := tuple(fields["ids"].split())):  # no name at all would mean every host
            raise UsageError("no host selected", hint="go back and select the rows you want")
        return host_actions.HostSelection(names=names)
    only = _ONLY.get(fields.get("only", ""))
    if only is None:  # left out, more hosts would be meant
        raise UsageError(f"only: {fields['only']!r} is not understood", hint=f"one of {', '.join(_ONLY)[2:]}")
    return host_actions.HostSelection("" if about == EVERY_HOST else about, only)


def _hosts_body(which: host_actions.HostSelection, extra_body: str) -> str:
    meant: dict[str, object] = {"like": which.like, "only": which.only, "hosts": list(which.names)}
    fields = {name: value for name, value in meant.items() if value} or {"all": True}
    return f"{json.dumps(fields, ensure_ascii=False)[:-1]}{extra_body}}}"


def _hosts_options(which: host_actions.HostSelection) -> str:
    like = f"--like={shlex.quote(which.like)}" if which.like else ""
    return " ".join(filter(None, (like, f"--only {which.only}" if which.only else ""))) or "--all"


def _where_option(fields: Mapping[str, str]) -> str:
    terms = " ".join(f"{name}={fields[name]}" for name in FILTER if fields.get(name))
    return f"--where {shlex.quote(terms)}" if terms else "--all"


def _letter_count(number: str) -> str:
    return f"{formatting.count(int(number), 'dead letter')}" if number.isdecimal() else "Dead letters"


def _filter_words(fields: Mapping[str, str]) -> str:
    parts = [
        f"of {fields['host']}" if fields.get("host") else "",
        f"with {fields['cause']}" if fields.get("cause") else "",
        f"like {fields['url']}" if fields.get("url") else "",
        f"among {formatting.count(len(fields['ids'].split()), 'selected row')}" if fields.get("ids") else "",
    ]
    filters = " ".join(part for part in parts if part)
    return f" {filters}" if filters else ""


RUN, HOST, WORKER = "/api/v1/runs/{about}", "/api/v1/hosts/{about}", "/api/v1/workers/{about}"
SESSION = "/api/v1/sessions/{about}"
TASK, SCALE = "/api/v1/tasks/{about}", "/api/v1/scale"
SCHEDULE, HOSTS, HOOK = "/api/v1/schedules/{about}", "/api/v1/hosts", "/api/v1/hooks/{about}"

_ALL = (
    PageAction(
        "run.pause", "Pause", "Pause run {about}?",
        "Pages in progress finish, no others start. Nothing is lost.",
        "Run {about} is paused.", "shoal pause ABOUT", RUN + "/pause", undo="run.resume",
    ),
    PageAction(
        "run.resume", "Resume", "Resume run {about}?", "Waiting tasks are handed out again.",
        "Run {about} is resumed.", "shoal resume ABOUT", RUN + "/resume", undo="run.pause",
    ),
    PageAction(
        "run.cancel", "Cancel", "Cancel run {about}?",
        "Pending tasks are dropped. Records are kept. For an hour this can be undone.",
        "Run {about} is cancelled; its records are kept.", "shoal cancel ABOUT", RUN + "/cancel",
        undo="run.undo", risky=True,
    ),
    PageAction(
        "run.undo", "Undo", "Undo the cancel of run {about}?",
        "The run goes on as it was, with the tasks that were not done yet.",
        "Run {about} goes on as it was.", "shoal cancel --undo ABOUT", RUN + "/undo", undo="run.cancel",
    ),
    PageAction(
        "run.purge", "Remove", "Remove run {about} with its records?",
        "Its tasks, dead letters and records are deleted from this queue. This cannot be undone.",
        "Run {about} is removed.", "", RUN, method="DELETE", risky=True, scope="admin",
    ),
    PageAction(
        "dead.revive", "Revive", "Requeue dead letters of run {about}?",
        "{letters}{which} get fresh attempts.", "{count} of run {about} requeued.",
        "shoal revive ABOUT WHERE", RUN + "/revive", body="where",
    ),
    PageAction(
        "dead.drop", "Drop", "Drop dead letters of run {about}?",
        "{letters}{which} then count as cancelled. This cannot be undone.",
        "{count} of run {about} dropped.", "", RUN + "/drop", body="where", state="dead", risky=True,
    ),
    PageAction(
        "tasks.drop", "Drop", "Drop waiting pages of run {about}?",
        "Waiting pages{which} will not be fetched. This cannot be undone.",
        "{count} of run {about} dropped.", "", RUN + "/drop", body="where", state="ready", risky=True,
    ),
    PageAction(
        "task.revive", "Revive", "Requeue this page?", "It gets fresh attempts.",
        "The page is requeued.", "shoal revive RUN WHERE", TASK + "/revive",
    ),
    PageAction(
        "task.drop", "Drop", "Drop this page?", "It will not be fetched. This cannot be undone.",
        "The page is dropped.", "", TASK + "/drop", risky=True,
    ),
    PageAction(
        "host.park", "Park", "Park {about}?",
        "No run or worker sends it requests until it is released; its pages wait.",
        "{about} is parked.", "shoal hosts park ABOUT", HOST + "/park", body="{}", undo="host.release",
    ),
    PageAction(
        "host.release", "Release", "Release {about}?",
        "One request at a time first, then at its rate limit once it responds.",
        "{about} is released.", "shoal hosts release ABOUT", HOST + "/release", undo="host.park",
    ),
    PageAction(
        "host.pace", "Set", "Change the rate limit of {about}?",
        "It applies to all runs and workers, at once, overriding their own limits.",
        "{about} has its new rate limit.", "shoal hosts set ABOUT --delay {spacing} --in-flight {limit}",
        HOST + "/pace", body='{"delay": {spacing}, "in_flight": {limit}}', undo="host.pace",
    ),
    PageAction(
        "host.reset", "Reset limit", "Reset the rate limit of {about}?",
        "Runs and its own responses decide again.",
        "{about}: runs decide its rate limit again.", "shoal hosts set ABOUT --reset", HOST + "/pace",
        body='{"reset": true}',
        undo="host.pace",
    ),
    PageAction(
        "host.forget", "Forget what was learnt", "Forget what was learnt of {about}?",
        "Slower paces, holds and parks for failures go; its next answers decide anew. What people set stays.",
        "{about}: what was learnt is forgotten.", "shoal hosts forget ABOUT", HOST + "/forget",
    ),
    PageAction(
        "session.renew", "Log in anew", "Log in anew to session {about}?",
        "The next worker that needs it logs in; pages that wait for it go on.",
        "Session {about}: the next worker logs in.", "shoal session renew ABOUT", SESSION + "/renew",
    ),
    PageAction(
        "hosts.park", "Park", "Park {which}?",
        "No run or worker sends them requests until they are released; their pages wait.",
        "{count} parked.", "shoal hosts park HOSTS", HOSTS + "/park", body="hosts", unit="host",
    ),
    PageAction(
        "hosts.release", "Release", "Release {which}?",
        "Those parked or held: one request at a time first, then at their rate limits once they respond.",
        "{count} released.", "shoal hosts release HOSTS", HOSTS + "/release", body="hosts", unit="host",
    ),
    PageAction(
        "hosts.pace", "Set", "Change the rate limit of {which}?",
        "It applies to all runs and workers, at once, overriding their own limits.",
        "{count} with a new rate limit.", "shoal hosts set HOSTS --delay {spacing} --in-flight {limit}",
        HOSTS + "/pace", body="hosts", extra_body=', "delay": {spacing}, "in_flight": {limit}', unit="host",
    ),
    PageAction(
        "hosts.reset", "Reset limit", "Reset the rate limit of {which}?",
        "Runs and their own responses decide again.",
        "{count}: runs decide the rate limit again.", "shoal hosts set HOSTS --reset",
        HOSTS + "/pace", body="hosts", extra_body=', "reset": true', unit="host",
    ),
    PageAction(
        "worker.drain", "Drain", "Drain worker {about}?",
        "It finishes its tasks, returns the rest and exits, within seconds.",
        "{about} is asked to drain.", "shoal drain ABOUT", WORKER + "/drain", undo="worker.resume",
    ),
    PageAction(
        "worker.pause", "Pause", "Pause worker {about}?",
        "It finishes tasks in progress and takes no more.",
        "{about} is asked to pause.", "shoal drain ABOUT --pause", WORKER + "/pause", undo="worker.resume",
    ),
    PageAction(
        "worker.resume", "Resume", "Resume worker {about}?", "It takes work again.",
        "{about} is asked to resume.", "shoal drain ABOUT --resume", WORKER + "/resume", undo="worker.pause",
    ),
    PageAction(
        "scale.set", "Set", "Set the number of workers?",
        "The autoscaler keeps to it from its next evaluation on, whatever the work needs, until somebody"
        " lets it decide again.",
        "The autoscaler keeps to {about}.", "shoal scale set {workers}", SCALE, body='{"workers": {workers}}',
        undo="scale.set",
    ),
    PageAction(
        "scale.auto", "Let it decide", "Let the autoscaler decide?",
        "It starts and stops workers by its policy again, within its limits.",
        "The autoscaler decides again.", "shoal scale set auto", SCALE, body='{"workers": null}', undo="scale.set",
    ),
    PageAction(
        "schedule.run", "Run now", "Start a run of {about} now?", "Its schedule does not change.",
        "A run of {about} was started.", "shoal schedule run ABOUT", SCHEDULE + "/run",
    ),
    PageAction(
        "schedule.pause", "Pause", "Pause schedule {about}?", "It starts nothing until it is resumed.",
        "Schedule {about} is paused.", "shoal schedule pause ABOUT", SCHEDULE + "/pause",
        undo="schedule.resume",
    ),
    PageAction(
        "schedule.resume", "Resume", "Resume schedule {about}?", "It continues with its next time.",
        "Schedule {about} is resumed.", "shoal schedule resume ABOUT", SCHEDULE + "/resume",
        undo="schedule.pause",
    ),
    PageAction(
        "schedule.add", "Add", "Add schedule {about}?", "It starts runs at its times from now on.",
        "Schedule {about} is added.", "shoal schedule add FILE WHEN --name ABOUT", "/api/v1/schedules",
        undo="schedule.remove", own_form="/schedules/new",
    ),
    PageAction(
        "schedule.change", "Change", "Change when {about} starts?",
        "From now on it starts at the new times; those that are past are not made up for.",
        "Schedule {about} has its new times.", "", SCHEDULE, method="PATCH",
        body='{"cron": "{cron}", "zone": "{zone}", "overlap": "{overlap}"}', undo="schedule.change",
    ),
    PageAction(
        "schedule.remove", "Remove", "Remove schedule {about}?", "Runs it has started continue.",
        "Schedule {about} is removed.", "shoal schedule remove ABOUT", SCHEDULE, method="DELETE", risky=True,
    ),
    PageAction(
        "hook.change", "Change", "Change webhook {about}?", "Its URL and its key stay.",
        "Webhook {about} is changed.", "", HOOK, method="PATCH",
        body='{"scraper": "{scraper}", "stalled_after": {stalled_after}}',
        undo="hook.change", scope="admin",
    ),
    PageAction(
        "hook.remove", "Remove", "Remove webhook {about}?",
        "It is told of nothing from then on. This cannot be undone.",
        "Webhook {about} is removed.", "", HOOK, method="DELETE", risky=True, scope="admin",
    ),
    PageAction(
        "token.remove", "Remove", "Remove token {about}?",
        "Its holder is refused from then on. This cannot be undone.",
        "Token {about} is removed.", "shoal token remove ABOUT", "/api/v1/tokens/{about}", method="DELETE",
        risky=True, scope="admin",
    ),
)  # fmt: skip

PAGE_ACTIONS: dict[str, PageAction] = {action.name: action for action in _ALL}
