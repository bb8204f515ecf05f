"""Deeds: everything that can be done from a page, each declared once with its words, command and call."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from shoal.control import hosting
from shoal.errors import Usage
from shoal.view import words
from shoal.web.access import Scope

_ONLY: dict[str, hosting.Only] = {"": "", "parked": "parked", "held": "held", "ruled": "ruled"}
EVERY_HOST = "every host"  # with a space, so that no host has it in its name
FILTER = ("host", "cause", "url")  # what may narrow down which tasks are meant


class Deed(msgspec.Struct, frozen=True):
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
    undo: str = ""  # the deed that takes it back
    risky: bool = False  # cannot be taken back
    scope: Scope = "operate"
    unit: str = "page"  # what is counted after it
    also: str = ""  # the rest of its call's body, after which hosts are meant

    def form(self, about: object, given: Mapping[str, object]) -> dict[str, str]:
        """Title, words, command and call, for one thing and with what narrows it down."""
        told = {name: str(value) for name, value in given.items() if value}
        which = hosting.words_of(hosts_meant(str(about), told)) if self.body == "hosts" else _which(told)
        path = self.path.format(about=quote(str(about), safe=":"))
        data = self._data(str(about), told)
        sent = f" -H 'Content-Type: application/json' -d {shlex.quote(data)}" if data else ""
        return {
            "title": self.title.format(about=about, which=which),
            "words": self.words.format(about=about, which=which, letters=_letters(told.get("n", ""))),
            "cli": self._command(str(about), told),
            "curl": f'curl -X {self.method} -H "Authorization: Bearer $SHOAL_TOKEN"{sent}'
            f" {{address}}{shlex.quote(path)}",
        }

    def _command(self, about: str, told: Mapping[str, str]) -> str:
        """In one go: a name may itself be one of these words. Rows that were chosen have no command."""
        if told.get("ids"):
            return ""
        parts = {"ABOUT": shlex.quote(about), "RUN": shlex.quote(told.get("run", "")), "WHERE": _where(told)}
        parts["HOSTS"] = _hosts(hosts_meant(about, told)) if self.body == "hosts" else ""
        return re.sub("ABOUT|RUN|WHERE|HOSTS", lambda found: parts[found[0]], self.cli)

    def _data(self, about: str, told: Mapping[str, str]) -> str:
        if self.body == "hosts":
            return _hosts_body(hosts_meant(about, told), self.also)
        if self.body != "where":
            return self.body
        which: dict[str, object] = {name: told[name] for name in FILTER if told.get(name)}
        if told.get("ids"):
            which["ids"] = numbers(told["ids"])
        which = which or {"all": True}
        return json.dumps(which | ({"state": self.state} if self.state else {}), ensure_ascii=False)


def numbers(ids: str) -> list[int]:
    """Tasks as a form names them; what is no number is 0, and no task's."""
    return [int(it) if it.isascii() and it.isdecimal() and len(it) < 20 else 0 for it in ids.split()]


def hosts_meant(about: str, told: Mapping[str, str]) -> hosting.Which:
    """Hosts that were chosen one by one, or by a part of their name and how they stand."""
    if told.get("ids"):
        if not (names := tuple(told["ids"].split())):  # no name at all would mean every host
            raise Usage("no host is chosen", hint="go back and tick the rows that you mean")
        return hosting.Which(names=names)
    only = _ONLY.get(told.get("only", ""))
    if only is None:  # left out, more hosts would be meant
        raise Usage(f"only: {told['only']!r} is not understood", hint=f"one of {', '.join(_ONLY)[2:]}")
    return hosting.Which("" if about == EVERY_HOST else about, only)


def _hosts_body(which: hosting.Which, also: str) -> str:
    meant: dict[str, object] = {"like": which.like, "only": which.only, "hosts": list(which.names)}
    told = {name: value for name, value in meant.items() if value} or {"all": True}
    return f"{json.dumps(told, ensure_ascii=False)[:-1]}{also}}}"


def _hosts(which: hosting.Which) -> str:
    like = f"--like={shlex.quote(which.like)}" if which.like else ""
    return " ".join(filter(None, (like, f"--only {which.only}" if which.only else ""))) or "--all"


def _where(told: Mapping[str, str]) -> str:
    terms = " ".join(f"{name}={told[name]}" for name in FILTER if told.get(name))
    return f"--where {shlex.quote(terms)}" if terms else "--all"


def _letters(number: str) -> str:
    return f"{words.count(int(number), 'dead letter')}" if number.isdecimal() else "Dead letters"


def _which(told: Mapping[str, str]) -> str:
    parts = [
        f"of {told['host']}" if told.get("host") else "",
        f"with {told['cause']}" if told.get("cause") else "",
        f"like {told['url']}" if told.get("url") else "",
        f"among {words.count(len(told['ids'].split()), 'chosen row')}" if told.get("ids") else "",
    ]
    said = " ".join(part for part in parts if part)
    return f" {said}" if said else ""


RUN, HOST, WORKER = "/api/v1/runs/{about}", "/api/v1/hosts/{about}", "/api/v1/workers/{about}"
TASK = "/api/v1/tasks/{about}"
SCHEDULE, HOSTS = "/api/v1/schedules/{about}", "/api/v1/hosts"

_ALL = (
    Deed(
        "run.pause", "Pause", "Pause run {about}?",
        "Pages under way end, no others start. Nothing is lost.",
        "Run {about} is paused.", "shoal pause ABOUT", RUN + "/pause", undo="run.resume",
    ),
    Deed(
        "run.resume", "Resume", "Let run {about} go on?", "What waits is handed out again.",
        "Run {about} goes on.", "shoal resume ABOUT", RUN + "/resume", undo="run.pause",
    ),
    Deed(
        "run.cancel", "Cancel", "End run {about} for good?",
        "What waits is given up. Records are kept. This cannot be taken back.",
        "Run {about} is cancelled; its records are kept.", "shoal cancel ABOUT", RUN + "/cancel", risky=True,
    ),
    Deed(
        "run.purge", "Remove", "Remove run {about} with its records?",
        "Its tasks, dead letters and records leave this queue. This cannot be taken back.",
        "Run {about} is removed.", "", RUN, method="DELETE", risky=True, scope="admin",
    ),
    Deed(
        "dead.revive", "Revive", "Put dead letters of run {about} back to work?",
        "{letters}{which} get fresh attempts.", "{count} of run {about} put back to work.",
        "shoal revive ABOUT WHERE", RUN + "/revive", body="where",
    ),
    Deed(
        "dead.drop", "Drop", "Give up dead letters of run {about}?",
        "{letters}{which} count as cancelled from then on. This cannot be taken back.",
        "{count} of run {about} given up.", "", RUN + "/drop", body="where", state="dead", risky=True,
    ),
    Deed(
        "tasks.drop", "Drop", "Give up what waits in run {about}?",
        "Waiting pages{which} are not fetched any more. This cannot be taken back.",
        "{count} of run {about} given up.", "", RUN + "/drop", body="where", state="ready", risky=True,
    ),
    Deed(
        "task.revive", "Revive", "Put this page back to work?", "It gets fresh attempts.",
        "The page is back at work.", "shoal revive RUN WHERE", TASK + "/revive",
    ),
    Deed(
        "task.drop", "Drop", "Give up this page?", "It is not fetched any more. This cannot be taken back.",
        "The page is given up.", "", TASK + "/drop", risky=True,
    ),
    Deed(
        "host.park", "Park", "Send no request to {about}?",
        "All runs and workers leave it alone until it is released; its pages wait.",
        "{about} is parked.", "shoal hosts park ABOUT", HOST + "/park", body="{}", undo="host.release",
    ),
    Deed(
        "host.release", "Release", "Let requests go to {about} again?",
        "One at a time first, and at its pace once it answers.",
        "{about} is released.", "shoal hosts release ABOUT", HOST + "/release", undo="host.park",
    ),
    Deed(
        "host.pace", "Set", "Change the pace of {about}?",
        "It holds for all runs and workers, at once, in place of what they ask for.",
        "{about} has its new pace.", "shoal hosts set ABOUT --delay {spacing} --in-flight {limit}",
        HOST + "/pace", body='{"delay": {spacing}, "in_flight": {limit}}', undo="host.pace",
    ),
    Deed(
        "host.reset", "Take back", "Take back the pace that was set for {about}?",
        "Runs and its own answers decide again.",
        "{about}: runs decide its pace again.", "shoal hosts set ABOUT --reset", HOST + "/pace",
        body='{"reset": true}',
        undo="host.pace",
    ),
    Deed(
        "hosts.park", "Park", "Send no request to {which}?",
        "All runs and workers leave them alone until they are released; their pages wait.",
        "{count} parked.", "shoal hosts park HOSTS", HOSTS + "/park", body="hosts", unit="host",
    ),
    Deed(
        "hosts.release", "Release", "Let requests go to {which} again?",
        "Those that are parked or held back: one at a time first, and at their pace once they answer.",
        "{count} released.", "shoal hosts release HOSTS", HOSTS + "/release", body="hosts", unit="host",
    ),
    Deed(
        "hosts.pace", "Set", "Change the pace of {which}?",
        "It holds for all runs and workers, at once, in place of what they ask for.",
        "{count} with a new pace.", "shoal hosts set HOSTS --delay {spacing} --in-flight {limit}",
        HOSTS + "/pace", body="hosts", also=', "delay": {spacing}, "in_flight": {limit}', unit="host",
    ),
    Deed(
        "hosts.reset", "Take back", "Take back the pace that was set for {which}?",
        "Runs and their own answers decide again.",
        "{count}: runs decide the pace again.", "shoal hosts set HOSTS --reset",
        HOSTS + "/pace", body="hosts", also=', "reset": true', unit="host",
    ),
    Deed(
        "worker.drain", "Drain", "Drain worker {about}?",
        "It finishes what it has, hands back the rest and ends. It hears of it within seconds.",
        "{about} is asked to drain.", "shoal drain ABOUT", WORKER + "/drain", undo="worker.resume",
    ),
    Deed(
        "worker.pause", "Pause", "Let worker {about} take no more work?",
        "What it has under way is finished.",
        "{about} is asked to pause.", "shoal drain ABOUT --pause", WORKER + "/pause", undo="worker.resume",
    ),
    Deed(
        "worker.resume", "Resume", "Let worker {about} go on?", "It takes work again.",
        "{about} is asked to go on.", "shoal drain ABOUT --resume", WORKER + "/resume", undo="worker.pause",
    ),
    Deed(
        "schedule.run", "Run now", "Start a run of {about} now?", "Its own times stay as they are.",
        "A run of {about} was started.", "shoal schedule run ABOUT", SCHEDULE + "/run",
    ),
    Deed(
        "schedule.pause", "Pause", "Pause schedule {about}?", "It starts nothing until it is resumed.",
        "Schedule {about} is paused.", "shoal schedule pause ABOUT", SCHEDULE + "/pause",
        undo="schedule.resume",
    ),
    Deed(
        "schedule.resume", "Resume", "Let schedule {about} go on?", "Its next time is the next that comes.",
        "Schedule {about} goes on.", "shoal schedule resume ABOUT", SCHEDULE + "/resume",
        undo="schedule.pause",
    ),
    Deed(
        "schedule.remove", "Remove", "Remove schedule {about}?", "Runs it has started stay.",
        "Schedule {about} is removed.", "shoal schedule remove ABOUT", SCHEDULE, method="DELETE", risky=True,
    ),
    Deed(
        "token.remove", "Remove", "Remove token {about}?",
        "Who holds it is refused from the next second on. This cannot be taken back.",
        "Token {about} is removed.", "shoal token remove ABOUT", "/api/v1/tokens/{about}", method="DELETE",
        risky=True, scope="admin",
    ),
)  # fmt: skip

DEEDS: dict[str, Deed] = {deed.name: deed for deed in _ALL}
