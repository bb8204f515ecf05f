"""What routes make of a URL: the rule that wins, and what its task would get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shoal import app
from shoal.config.load import Settings, with_defaults
from shoal.config.route_file import read_route_files
from shoal.core.lane import Pace
from shoal.core.routes import RouteTrial
from shoal.core.run import Run
from shoal.core.task import RequestOptions, Task
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.queue.base import Queue
from shoal.runs.request import read_template
from shoal.sources.start_task import start_task
from shoal.sources.target_kind import TEMPLATE_SUFFIXES


class RoutedUrl(NamedTuple):
    source: str  # where the rules are from
    task: Task
    pace: Pace
    trials: Sequence[RouteTrial]

    @property
    def winner(self) -> RouteTrial | None:
        return next((trial for trial in self.trials if trial.verdict == "wins"), None)

    def document(self) -> dict[str, Any]:
        task, options = self.task, self.task.request_options or RequestOptions()
        winner = self.winner
        return {
            "url": task.url,
            "source": self.source,
            "rule": winner.number if winner else None,
            "rules": [
                {"number": it.number, "rule": str(it.route), "match": it.route.match, "verdict": it.verdict}
                for it in self.trials
            ],
            "task": {
                "priority": task.priority,
                "ttl": task.ttl,
                "ack": task.ack,
                "needs": list(task.needs),
                "session": options.rule_session or None,
                "cache": options.cache or None,
                "on_block": options.on_block or None,
            },
            "host": {"name": task.lane, "delay": self.pace.spacing, "in_flight": self.pace.max_in_flight},
        }


def is_file_target(target: str) -> bool:
    """Whether rules are looked for in a scraper's or template's file, not in a run."""
    place = target.partition(":")[0]
    return place.endswith((".py", *TEMPLATE_SUFFIXES)) or Path(place).exists()


def settings_of_file(settings: Settings, target: str) -> Settings:
    """With the rules of a scraper or template below those that are given."""
    if target.endswith(TEMPLATE_SUFFIXES):
        template = read_template(Path(target))
        return with_defaults(settings, template.settings, f"template {template.name}")
    scraper = registry.find_scraper(target, settings.scrapers).scraper
    return with_defaults(settings, scraper.settings, f"scraper {scraper.name}")


def settings_of_route_file(settings: Settings, files: Sequence[str]) -> Settings:
    rules = read_route_files(files)
    return replace(settings, routes=rules, sources={**settings.sources, "routes": "--routes"})


async def settings_of_run(queue: Queue, settings: Settings, run: Run) -> Settings:
    from shoal.runs.url_policy import run_settings  # late: only for rules of a run

    return await run_settings(queue, settings, run)


def route_url(settings: Settings, url: str, source: str) -> RoutedUrl:
    """What becomes of a URL; raises UsageError where there are no rules to go by."""
    if not settings.routes:
        raise UsageError(
            f"there are no routes in {source}",
            hint="give a file of rules with --routes, or name a run, a scraper's file or a template that has some",
        )
    routes = app.route_rules(settings)
    task = start_task(url, rewrite=app.rewrite_rule(settings), routes=routes)
    return RoutedUrl(source, task, app.pace_rule(settings)(task.lane), routes.explain(task.url))
