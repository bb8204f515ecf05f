"""Commission: what a call asks to be done, as a run that every other part knows like any other."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from shoal.app import TEMPLATE
from shoal.config import Settings, beneath
from shoal.control.runs import HERE, being_seeded, find_or_start, run_name
from shoal.core.run import LETTERS, NewRun, Run
from shoal.extract.template import Template, TemplateScraper
from shoal.logs import redact
from shoal.manner import manners_of
from shoal.queue.base import Queue
from shoal.travelling import OF_THE_RUN, spec_settings, template_settings
from shoal.web import addresses
from shoal.web.addresses import REFUSED, Addresses, Kept, in_turns
from shoal.web.brought import in_use
from shoal.web.door import PRIVATE_WAY
from shoal.web.problem import Problem


class Commission(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses for a template."""

    template: Template
    paper: tuple[str, int]  # the name and the version under which the queue keeps the template
    urls: tuple[str, ...]
    settings: Settings  # the server's, with what the call asked for above them
    priority: int = 0
    here: bool = False  # the server's own processes do it, not the workers of the fleet
    max_pages: int = 0
    api: dict[str, Any]  # what those need to know who answer questions about it
    strict: bool = False  # without a single address that can be fetched, nothing is begun
    seed: str = ""  # the same seed is the same run, for ever

    async def begin(self, queue: Queue) -> Run:
        """Start the run and put its addresses into it. Repeating it with the same seed is harmless."""
        settings = template_settings(self.settings, self.template.settings, f"template {self.template.name}")
        manners_of(settings, TemplateScraper(self.template))  # says what is wrong with headers and the like
        kept = Kept(self.urls, self.priority)
        refused = await self._refused(Addresses(kept, settings)) if self.strict else ""
        name = run_name() + "".join(secrets.choice(LETTERS) for _ in range(4))
        key = f"api/{self.seed}" if self.seed else f"api/{name}"
        if self.seed and (known := await queue.runs(key=key, limit=1)):
            return await _gone_on(queue, known[0], Addresses(kept, settings))
        spec = self._spec(refused)
        await addresses.keep(queue, name, kept)
        new = NewRun(self.template.name, key, name, spec, max_pages=self.max_pages, once=bool(self.seed))
        run, found = await find_or_start(queue, new, fresh=False)
        if found != "ended":
            await Addresses(kept, settings).sow(queue, run)
        return run

    async def _refused(self, judged: Addresses) -> str:
        """Which addresses lead nowhere, in words; 422 if all of them do."""
        count, sample = 0, ""
        async for some in in_turns(judged):
            for url, task in some:
                if isinstance(task, str):
                    count, sample = count + 1, sample or f"{redact(url)[:200]} is {task}"
        if count == len(judged):
            raise Problem(422, "nothing-to-fetch", sample, hint=PRIVATE_WAY if REFUSED in sample else "")
        return f"{count:,} of {len(judged):,}; the first, {sample}" if count else ""

    def _spec(self, refused: str) -> dict[str, Any]:
        name, version = self.paper
        return {
            "scraper": self.template.name,
            "mode": HERE if self.here else "distributed",
            "settings": spec_settings(self.settings),
            "start": list(self.urls[:10]),
            "each": True,
            "output": "",
            "template": name,
            "template_version": version,
            "api": self.api | ({"refused": refused} if refused else {}),
        }


async def _gone_on(queue: Queue, run: Run, addresses: Addresses) -> Run:
    """A run that was begun before, maybe not to the end."""
    if run.state in ("running", "paused") and await being_seeded(queue, run):
        await addresses.sow(queue, run)
    return run


def above(own: Settings, asked: Mapping[str, Any], what: str) -> Settings:
    """The server's settings with those of a call above them."""
    names = {name for name in asked if name in OF_THE_RUN}
    if names & {"delay", "rate"}:
        names |= {"delay", "rate"}
    sources = {name: source for name, source in own.sources.items() if name not in names}
    return beneath(replace(own, sources=sources), asked, what)


async def kept_template(queue: Queue, name: str) -> tuple[Template, tuple[str, int]]:
    """A template that the queue keeps under a name; 422."""
    await in_use(queue, name)
    paper = await queue.paper(TEMPLATE, name)
    if paper is None:
        raise Problem(
            422,
            "no-such-template",
            f"there is no template {name}",
            hint=f"PUT /api/v1/templates/{name} keeps one; GET /api/v1/templates lists them",
        )
    try:
        return msgspec.json.decode(paper.text, type=Template), (paper.name, paper.version)
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(
            422,
            "template-not-understood",
            f"template {name} is not understood here: {error}",
            hint="it may be of a newer shoal: upgrade this one",
        ) from error
