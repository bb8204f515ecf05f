"""The scrapers and templates that a fleet worker has loaded, and which runs it can work on with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from shoal.core.run import Run
from shoal.core.typed_task import TYPE_PREFIX, daily_scraper_name
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.extract.scraper import Scraper
from shoal.launch.job import FleetJob
from shoal.runs.identity import SERVER_MODE, is_server_run, is_single_process
from shoal.runs.request import read_template


class ScraperSet:
    def __init__(self, fleet_job: FleetJob, found: Mapping[str, Scraper], templates: Mapping[str, str]) -> None:
        self._fleet_job = fleet_job
        self.scrapers = found
        self.templates = templates  # names of templates that were given, with their versions if known
        self._types = {daily_scraper_name(kind): it for it in found.values() for kind in it.tasks}

    @classmethod
    def load(cls, fleet_job: FleetJob) -> ScraperSet:
        """Load everything that was given; two scrapers of one name must be the same code."""
        found: dict[str, Scraper] = {}
        templates: dict[str, str] = {}
        for target in fleet_job.targets:
            if target.endswith((".yaml", ".yml")):
                template = read_template(Path(target))
                templates[template.name] = template.version[:12]
            else:
                _add_scrapers(registry.find_scrapers(target, fleet_job.settings.scrapers), found)
        wanted = {name.casefold() for name in fleet_job.scrapers or (*found, *templates)}
        for name in fleet_job.scrapers:
            if not fleet_job.targets:
                _look_up(name, fleet_job, found, templates)
            elif not any(it.casefold() == name.casefold() for it in (*found, *templates)):
                known = ", ".join((*found, *templates)) or "none"
                raise UsageError(f"there is no scraper called {name} there", hint=f"there are: {known}")
        return cls(
            fleet_job,
            {name: it for name, it in found.items() if name.casefold() in wanted},
            {name: it for name, it in templates.items() if name.casefold() in wanted},
        )

    def for_run(self, run: Run) -> ScraperSet:
        """The same for nothing but one run."""
        fleet_job = msgspec.structs.replace(self._fleet_job, run=run.name)
        return ScraperSet(fleet_job, self.scrapers, self.templates)

    @property
    def serves_any_template(self) -> bool:
        """Whether no scraper and no template was named: every run with a template is served then, too."""
        return not self._fleet_job.scrapers and not self.templates

    @property
    def scraper_names(self) -> tuple[str, ...]:
        """What it serves, as runs call it."""
        if self._fleet_job.on_server:
            return (SERVER_MODE,)
        return (*self._loaded_names, *(("templates",) if self.serves_any_template else ()))

    @property
    def _loaded_names(self) -> tuple[str, ...]:
        return (*self.scrapers, *self.templates, *self._types)

    @property
    def names(self) -> tuple[str, ...]:
        """What to ask the queue for; nothing where runs are asked for one by one."""
        return () if self._fleet_job.run else self._loaded_names

    @property
    def code(self) -> str:
        """Every scraper with the version of its code: "books=3f2a shop=77aa"."""
        return " ".join(f"{name}={version}" for name, version in self._versions() if version)

    def _versions(self) -> Iterator[tuple[str, str]]:
        for name, scraper in self.scrapers.items():
            yield name, registry.version_of(scraper)
        yield from self.templates.items()

    def accepts(self, run: Run) -> bool:
        """Whether this worker is to ask for work of a run."""
        if self._fleet_job.run:
            return run.name == self._fleet_job.run
        return not is_single_process(run) and is_server_run(run) == self._fleet_job.on_server and self.can_run(run)

    def can_run(self, run: Run) -> bool:
        """Whether there is code for a run; one with a template needs none, only to be wanted."""
        if run.spec.get("template"):
            return self.serves_any_template or run.scraper in self.templates or bool(self._fleet_job.run)
        return self.scraper(run) is not None

    def scraper(self, run: Run) -> Scraper | None:
        name = run.scraper
        return self._types.get(name) if name.startswith(TYPE_PREFIX) else self.scrapers.get(name)


def _add_scrapers(scrapers: Iterable[Scraper], found: dict[str, Scraper]) -> None:
    for scraper in scrapers:
        other = found.setdefault(scraper.name, scraper)
        if other is not scraper and registry.version_of(other) != registry.version_of(scraper):
            raise UsageError(
                f"there are two scrapers called {scraper.name} in what was given", hint="give one of them another name"
            )


def _look_up(name: str, fleet_job: FleetJob, found: dict[str, Scraper], templates: dict[str, str]) -> None:
    """A name by itself is that of a scraper that is registered here, or else of a template."""
    try:
        scrapers = registry.find_scrapers(name, fleet_job.settings.scrapers)
        _add_scrapers((it for it in scrapers if it.name.casefold() == name.casefold()), found)
    except UsageError:
        templates[name] = ""
