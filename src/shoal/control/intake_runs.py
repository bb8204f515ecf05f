"""Intake runs: where the URLs go that other programs publish: a run that they name, or one per scraper and day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from shoal.config.load import Settings
from shoal.config.run_settings import settings_to_spec
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.extract.template import summary
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.queue.daily_runs import INTAKE_PREFIX, DailyRuns, daily_key, daily_name
from shoal.runs.spec import new_spec
from shoal.runs.start import add_tasks, in_batches
from shoal.runs.url_policy import UrlPolicy, run_settings

SUMMARY = "pages"  # the template that takes URLs for which no scraper is named
MAX_SCRAPERS = 200  # that may be named in a relay's life: each is a run a day


class IntakeRuns:
    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._asked = settings_to_spec(settings)
        self._template: tuple[str, int] | None = None
        self._daily = DailyRuns(queue, self._new_run)
        self._policy = UrlPolicy(settings)
        self._scrapers: set[str] = set()

    async def prepare(self) -> None:
        """Store what URLs are read with for which nobody names a scraper."""
        if not self._settings.intake_scraper and self._template is None:
            text = msgspec.json.encode(summary(SUMMARY)).decode()
            document = await self._queue.save_document(kinds.TEMPLATE, SUMMARY, text)
            self._template = document.name, document.version

    def default_scraper(self) -> str:
        return self._settings.intake_scraper or SUMMARY

    def policy(self) -> UrlPolicy:
        """For URLs of a scraper: the relay's own settings are those of its runs."""
        return self._policy

    def refusal(self, scraper: str) -> str:
        """Why this scraper gets no run; empty if it does."""
        self._scrapers |= {scraper} if len(self._scrapers) < MAX_SCRAPERS else set()
        return "" if scraper in self._scrapers else f"more than {MAX_SCRAPERS} scrapers were named"

    async def add(self, scraper: str, tasks: Sequence[Task]) -> None:
        """Add pages for a scraper: what it has had today, it does not get again."""
        await self._daily.add(scraper, tasks, self._policy.paces(tasks), keyed=[True] * len(tasks))

    def _new_run(self, scraper: str, day: date) -> NewRun:
        template = self._template if scraper == SUMMARY else None
        spec = new_spec(scraper, mode="distributed", settings=self._asked, start=(), each=True, template=template)
        settings = self._settings
        return NewRun(
            scraper=scraper,
            key=daily_key(f"{INTAKE_PREFIX}{scraper}", day),
            name=daily_name(scraper, day),
            spec=spec,
            seen_set=settings.seen,
            seen_for=settings.seen_for,
            dead_retention=settings.dead_retention,
        )

    async def open_run(self, name: str) -> tuple[Run, UrlPolicy] | str:
        """The run of this name with the rules for its URLs; or why it takes none."""
        found = [run for run in await self._queue.runs(name=name, limit=20) if run.name == name]
        if not found:
            return f"there is no run {name}"
        if found[0].state not in ("running", "paused"):
            return f"run {name} has ended"
        return found[0], UrlPolicy(self._settings, await run_settings(self._queue, self._settings, found[0]))

    async def add_to(self, run: Run, policy: UrlPolicy, tasks: Sequence[Task]) -> bool:
        """False: the run takes no more work."""
        added = await add_tasks(self._queue, run, in_batches(tasks, policy.paces(tasks)))
        return not added.is_refused
