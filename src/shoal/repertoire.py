"""Repertoire: the code a member of the fleet has, and which runs it can serve with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from shoal.app import TEMPLATE
from shoal.control.runs import HERE, alone, here
from shoal.core.run import Run
from shoal.core.typed import PREFIX, standing_name
from shoal.errors import Usage
from shoal.extract import registry
from shoal.extract.scraper import Scraper
from shoal.job import Duty
from shoal.work import read_template


class Repertoire:
    def __init__(self, duty: Duty, found: Mapping[str, Scraper], templates: Mapping[str, str]) -> None:
        self._duty = duty
        self.scrapers = found
        self.templates = templates  # names of templates that were given, with their versions if known
        self._types = {standing_name(kind): it for it in found.values() for kind in it.tasks}

    @classmethod
    def load(cls, duty: Duty) -> Repertoire:
        """Load everything that was given; two scrapers of one name must be the same code."""
        found: dict[str, Scraper] = {}
        templates: dict[str, str] = {}
        for target in duty.targets:
            if target.endswith((".yaml", ".yml")):
                template = read_template(Path(target))
                templates[template.name] = template.version[:12]
            else:
                _admit(registry.find(target, duty.settings.scrapers), found)
        for name in duty.scrapers:
            if not duty.targets:
                _look_up(name, duty, found, templates)
            elif name not in found and name not in templates:
                known = ", ".join((*found, *templates)) or "none"
                raise Usage(f"there is no scraper called {name} there", hint=f"there are: {known}")
        wanted = duty.scrapers or (*found, *templates)
        return cls(
            duty,
            {name: it for name, it in found.items() if name in wanted},
            {name: it for name, it in templates.items() if name in wanted},
        )

    def for_run(self, run: Run) -> Repertoire:
        """The same for nothing but one run."""
        duty = msgspec.structs.replace(self._duty, run=run.name)
        return Repertoire(duty, self.scrapers, self.templates)

    @property
    def anything(self) -> bool:
        """Whether nothing was named: every run with a template is served then."""
        return not self._duty.targets and not self._duty.scrapers

    @property
    def titles(self) -> tuple[str, ...]:
        """What it serves, as runs call it."""
        if self._duty.here:
            return (HERE,)
        return ("templates",) if self.anything else (*self.scrapers, *self.templates, *self._types)

    @property
    def names(self) -> tuple[str, ...]:
        """What to ask the queue for; nothing where runs are asked for one by one."""
        return () if self.anything or self._duty.run else self.titles

    @property
    def code(self) -> str:
        """Every scraper with the version of its code: "books=3f2a shop=77aa"."""
        return " ".join(f"{name}={version}" for name, version in self._versions() if version)

    def _versions(self) -> Iterator[tuple[str, str]]:
        for name, scraper in self.scrapers.items():
            yield name, registry.version_of(scraper)
        yield from self.templates.items()

    def fits(self, run: Run) -> bool:
        """Whether this worker is to ask for work of a run."""
        if self._duty.run:
            return run.name == self._duty.run
        return not alone(run) and here(run) == self._duty.here and self.has(run)

    def has(self, run: Run) -> bool:
        """Whether there is code for a run; one with a template needs none, only to be wanted."""
        if run.spec.get(TEMPLATE):
            return self.anything or run.scraper in self.templates or bool(self._duty.run)
        return self.scraper(run) is not None

    def scraper(self, run: Run) -> Scraper | None:
        name = run.scraper
        return self._types.get(name) if name.startswith(PREFIX) else self.scrapers.get(name)


def _admit(scrapers: Iterable[Scraper], found: dict[str, Scraper]) -> None:
    for scraper in scrapers:
        other = found.setdefault(scraper.name, scraper)
        if other is not scraper and registry.version_of(other) != registry.version_of(scraper):
            raise Usage(
                f"there are two scrapers called {scraper.name} in what was given",
                hint="give one of them another name",
            )


def _look_up(name: str, duty: Duty, found: dict[str, Scraper], templates: dict[str, str]) -> None:
    """A name by itself is that of a scraper that is registered here, or else of a template."""
    try:
        _admit((it for it in registry.find(name, duty.settings.scrapers) if it.name == name), found)
    except Usage:
        templates[name] = ""
