"""The URL policy: which URLs from outside become tasks, by the rules of the run they are for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shoal.app import pace_rule, rewrite_rule, route_rules
from shoal.config.load import SETTINGS, Settings
from shoal.config.run_settings import SETTINGS_KEY, settings_for_run, settings_for_template
from shoal.core.lane import Pace, host_of_lane
from shoal.core.run import Run
from shoal.core.task import RequestOptions, Task
from shoal.core.url import lane_of, request_digest
from shoal.extract.template import Template
from shoal.fetch.guard import PrivateNetworkPolicy, private_name_reason
from shoal.logs import redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.list_reader import task_from_entry
from shoal.sources.base import UrlEntry

# Of a run, what a server that only adds to it need not have.
IGNORED_SETTINGS = frozenset(name for name, setting in SETTINGS.items() if setting.credential and setting.default == "")
MAX_REJECTS = 100  # that are told one by one
ALLOW_PRIVATE_HINT = "start the server with --allow-private HOST:PORT, if this is intended"


class RejectedUrls:
    """URLs that cannot be fetched: how many, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[dict[str, Any]] = []

    def add(self, line: int, text: str, why: str) -> None:
        self.count += 1
        if self.count <= MAX_REJECTS:
            self.first.append({"line": line, "url": redact(text[:500]), "why": why})


class UrlPolicy:
    """Makes a task of a URL, or says why there is none."""

    def __init__(self, own: Settings, settings: Settings | None = None, *, refused: str = "refused") -> None:
        """own: the server's, whose private network is not for everybody; settings: those of the run."""
        asked = settings or own
        self._rewrite = rewrite_rule(asked) or None
        self._pace = pace_rule(asked)
        self._routes = route_rules(asked)
        self._allowed = PrivateNetworkPolicy.parse(own.allow_private)
        self._refused = refused  # the word before the reason
        self._cached_refusal = lru_cache(maxsize=10_000)(self._refusal)

    def make_task(self, line: int, text: str, priority: int = 0, *, is_routed: bool = True) -> Task | str:
        """is_routed: nothing more is said of it, so that it can have what the run's routes say (see `route`)."""
        made = task_from_entry(UrlEntry(line, text), self._rewrite)
        if isinstance(made, str):
            return made
        if priority:
            made = msgspec.structs.replace(made, priority=priority)
        if is_routed:
            made = self.route(made, keep_priority=bool(priority))
        return self._cached_refusal(host_of_lane(made.lane), made.url.startswith("https:")) or made

    def route(self, task: Task, *, keep_priority: bool, keep_ack: bool = False) -> Task:
        """The same as the run's routes have it; what was asked for wins."""
        return self._routes.admit(task, keep_priority=keep_priority, keep_ack=keep_ack)

    def refusal(self, url: str) -> str:
        """Why nobody may send us there; empty if it is public, as far as its name says."""
        return self._cached_refusal(lane_of(url), url.startswith("https:"))

    def with_request(self, task: Task, request_options: RequestOptions) -> Task:
        """The same URL, asked for in another way."""
        return msgspec.structs.replace(
            task, request_options=request_options, digest=request_digest(task.url, request_options)
        )

    def paces(self, tasks: Sequence[Task]) -> dict[str, Pace]:
        return {lane: self._pace(lane) for lane in {task.lane for task in tasks}}

    def _refusal(self, lane: str, secure: bool) -> str:
        host, port = lane, 443 if secure else 80
        if not lane.endswith("]"):
            head, colon, tail = lane.rpartition(":")
            if colon and tail.isdecimal():
                host, port = head, int(tail)
        why = private_name_reason(host, port)
        return f"{self._refused}: {why}" if why and not self._allowed.covers(lane) else ""


async def run_settings(queue: Queue, own: Settings, run: Run) -> Settings:
    """A run's settings as far as they decide how its URLs are read and paced."""
    given = run.spec.get(SETTINGS_KEY)
    if isinstance(given, dict):
        ours = {name: value for name, value in given.items() if name not in IGNORED_SETTINGS}
        run = msgspec.structs.replace(run, spec=run.spec | {SETTINGS_KEY: ours})
    settings = settings_for_run(own, run)
    name = run.spec.get("template")
    if not name:
        return settings
    document = await queue.document(kinds.TEMPLATE, str(name), int(run.spec.get("template_version") or 0))
    if document is None:
        return settings
    template = msgspec.json.decode(document.text, type=Template)
    theirs = {name: value for name, value in template.settings.items() if name not in IGNORED_SETTINGS}
    return settings_for_template(settings, theirs, f"template {template.name}")
