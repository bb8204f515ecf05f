"""Door: judges addresses that come in from outside, by the rules of the run that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from shoal.app import TEMPLATE, pace_rule, rewrite_rule
from shoal.config import Settings
from shoal.control.seeding import task_of
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.task import Ask, Task
from shoal.core.url import lane_of, request_digest
from shoal.extract.template import Template
from shoal.fetch.guard import AllowPrivate, private_by_name
from shoal.queue.base import Queue
from shoal.sources.base import Entry
from shoal.travelling import SETTINGS_KEY, serving_settings, template_settings

NOT_OURS = ("proxy", "auth")  # of a run, that a server which only adds to it need not have
PRIVATE_WAY = "start the server with --allow-private HOST:PORT if that is where it should go"


class Door:
    """A task for each address, or the reason why there is none."""

    def __init__(self, own: Settings, settings: Settings | None = None, *, refused: str = "refused") -> None:
        """own: the server's, whose private network is not for everybody; settings: those of the run."""
        asked = settings or own
        self._rewrite = rewrite_rule(asked) or None
        self._pace = pace_rule(asked)
        self._allowed = AllowPrivate.parse(own.allow_private)
        self._refused = refused  # the word before the reason
        self._of_lane = lru_cache(maxsize=10_000)(self._refusal)

    def task(self, line: int, text: str, priority: int = 0) -> Task | str:
        made = task_of(Entry(line, text), self._rewrite, priority)
        if isinstance(made, str):
            return made
        return self._of_lane(made.lane, made.url.startswith("https:")) or made

    def refusal(self, url: str) -> str:
        """Why nobody may send us there; empty if it is public, as far as its name says."""
        return self._of_lane(lane_of(url), url.startswith("https:"))

    def asked(self, task: Task, ask: Ask) -> Task:
        """The same address, asked for in another way."""
        return msgspec.structs.replace(task, ask=ask, digest=request_digest(task.url, ask))

    def paces(self, tasks: Sequence[Task]) -> dict[str, Pace]:
        return {lane: self._pace(lane) for lane in {task.lane for task in tasks}}

    def _refusal(self, lane: str, secure: bool) -> str:
        host, port = lane, 443 if secure else 80
        if not lane.endswith("]"):
            head, colon, tail = lane.rpartition(":")
            if colon and tail.isdecimal():
                host, port = head, int(tail)
        why = private_by_name(host, port)
        return f"{self._refused}: {why}" if why and not self._allowed.covers(lane) else ""


async def run_settings(queue: Queue, own: Settings, run: Run) -> Settings:
    """A run's settings as far as they decide how its addresses are read and paced."""
    given = run.spec.get(SETTINGS_KEY)
    if isinstance(given, dict):
        ours = {name: value for name, value in given.items() if name not in NOT_OURS}
        run = msgspec.structs.replace(run, spec=run.spec | {SETTINGS_KEY: ours})
    settings = serving_settings(own, run)
    name = run.spec.get(TEMPLATE)
    if not name:
        return settings
    paper = await queue.paper(TEMPLATE, str(name), int(run.spec.get("template_version") or 0))
    if paper is None:
        return settings
    template = msgspec.json.decode(paper.text, type=Template)
    theirs = {name: value for name, value in template.settings.items() if name not in NOT_OURS}
    return template_settings(settings, theirs, f"template {template.name}")
