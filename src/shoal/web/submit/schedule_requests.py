"""Schedule requests: makes and changes schedules that were asked for over the API or a form."""

from __future__ import annotations

import msgspec

from shoal.control import schedules
from shoal.core.cron import parse, zone_of
from shoal.core.run import Run
from shoal.core.schedule import Overlap, Schedule, ScheduledRun, advance
from shoal.core.task import Task
from shoal.runs.url_policy import UrlPolicy, run_settings
from shoal.web.api import models
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem
from shoal.web.submit.run_requests import RunPlan, plan_run, start_urls
from shoal.web.submit.turns import Turns

NO_URLS_HINT = "give urls, or name a scraper or template that has start URLs of its own"


class ScheduleTimes(msgspec.Struct, frozen=True):
    """When it fires, and what is done while the former run goes on."""

    cron: str
    zone: str = "UTC"
    overlap: Overlap = "skip"

    def check(self) -> None:
        """UsageError for what is not understood."""
        parse(self.cron)
        zone_of(self.zone)


async def add_schedule(
    context: ServerContext, name: str, times: ScheduleTimes, wanted: models.RunSubmission
) -> Schedule:
    """Keep a schedule under a new name; what could only fail when it fires is refused now."""
    times.check()
    if wanted.here or wanted.hooks or wanted.more or wanted.key:
        raise Problem(
            422, "conflicting-fields", "a scheduled run has no here, hooks, more or key", hint="leave them out"
        )
    plan = await plan_run(context, wanted)
    tasks, policy = await _start_tasks(context, plan, wanted)
    order = ScheduledRun(
        plan.scraper,
        plan.spec,
        wanted.weight,
        wanted.priority,
        plan.max_pages,
        seen_set=plan.seen_set,
        seen_for=plan.seen_for,
        dead_retention=plan.dead_retention,
    )
    schedule = Schedule(name, times.cron, order, made_at=0, since=0, zone=times.zone, overlap=times.overlap)
    return await schedules.add(context.queue, schedule, tasks, policy.paces(tasks))


async def _start_tasks(
    context: ServerContext, plan: RunPlan, wanted: models.RunSubmission
) -> tuple[list[Task], UrlPolicy]:
    """What each of its runs begins with, under the rules that hold for a run of this kind."""
    like = Run(0, "", plan.scraper, "", "running", 0, 0, spec=plan.spec)
    policy = UrlPolicy(context.settings, await run_settings(context.queue, context.settings, like))
    urls = start_urls(wanted, plan)
    if not urls:
        raise Problem(422, "no-urls", "there is no URL to start from", hint=NO_URLS_HINT)
    tasks, turns = dict[bytes, Task](), Turns()
    for line, text in enumerate(urls, 1):
        made = policy.make_task(line, text)
        if not isinstance(made, Task):  # whoever sees it fail at night cannot ask what was meant
            raise Problem(
                422, "no-usable-url", f"URL {line} cannot be fetched: {made}", hint="correct it or leave it out"
            )
        # Start URLs of the scraper itself are fetched whatever a seen-set has.
        tasks.setdefault(made.digest, made if wanted.urls else msgspec.structs.replace(made, revisit=True))
        await turns.pause()
    return list(tasks.values()), policy


async def change_times(context: ServerContext, name: str, times: ScheduleTimes) -> Schedule:
    """Other times from now on; those that are past are not made up for."""
    times.check()
    now = await context.queue.now()

    def edit(found: Schedule) -> Schedule:
        changed = msgspec.structs.replace(found, cron=times.cron, zone=times.zone, overlap=times.overlap)
        return advance(changed, max(found.since, now))

    return await schedules.change(context.queue, name, edit)


def times_of(found: Schedule) -> ScheduleTimes:
    return ScheduleTimes(found.cron, found.zone, found.overlap)
