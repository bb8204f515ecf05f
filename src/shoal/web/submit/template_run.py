"""A run of one template over the URLs of a request, as batches and jobs start it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from pydantic import BaseModel

from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import RUN_SETTINGS, settings_for_template, settings_to_spec
from shoal.core.run import NAME_ALPHABET, NewRun, Run
from shoal.errors import QueueRefused
from shoal.extract.template import Template, TemplateScraper
from shoal.launch.request_options import check_steps, request_builder_for
from shoal.logs import redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.identity import SERVER_MODE, is_seeding, run_name
from shoal.runs.spec import new_spec
from shoal.runs.start import StartRequest, start
from shoal.runs.time_limit import TIME_LIMIT_KEY
from shoal.runs.url_policy import ALLOW_PRIVATE_HINT
from shoal.web.http.problem import Problem
from shoal.web.submit import url_lists
from shoal.web.submit.inline_templates import mark_in_use
from shoal.web.submit.url_lists import REFUSED_PREFIX, StoredUrls, UrlList


class TemplateRun(msgspec.Struct, frozen=True, kw_only=True):
    """URLs, and the template to use on them."""

    template: Template
    template_ref: tuple[str, int]  # the name and the version under which the queue keeps the template
    urls: tuple[str, ...]
    settings: Settings  # the server's, with what the call asked for above them
    priority: int = 0
    here: bool = False  # the server's own processes do it, not the workers of the fleet
    max_pages: int = 0
    api: dict[str, Any]  # what those need to know who answer questions about it
    time_limit: float = 0.0  # seconds for all of it; 0: none
    strict: bool = False  # without a single URL that can be fetched, nothing is begun
    seed: str = ""  # the same seed is the same run, for ever
    needs_list: bool = True  # results are asked for by it; False: where a relay or server keeps none for us, so be it

    async def start(self, queue: Queue) -> Run:
        """Start the run and put its URLs into it. Repeating it with the same seed is harmless."""
        settings = settings_for_template(self.settings, self.template.settings, f"template {self.template.name}")
        # Says what is wrong with headers and the like; in a thread, because selectors take their time to compile.
        scraper = await asyncio.to_thread(TemplateScraper, self.template)
        request_builder_for(settings, scraper)
        check_steps(settings, scraper)
        stored = StoredUrls(self.urls)
        refused = await self._check_urls(UrlList(stored, settings)) if self.strict else ""
        name = run_name() + "".join(secrets.choice(NAME_ALPHABET) for _ in range(4))
        key = f"api/{self.seed}" if self.seed else f"api/{name}"
        if self.seed and (known := await queue.runs(key=key, limit=1)):
            return await _resume_seeding(queue, known[0], UrlList(stored, settings))
        spec = self._spec(refused)
        try:
            await url_lists.store(queue, name, stored)
        except QueueRefused:
            if self.needs_list:
                raise
        new = NewRun(
            self.template.name,
            key,
            name,
            spec,
            priority=self.priority,
            max_pages=self.max_pages,
            once=bool(self.seed),
            seen_set=settings.seen,
            seen_for=settings.seen_for,
            dead_retention=settings.dead_retention,
        )
        urls = UrlList(stored, settings)
        return (await start(queue, StartRequest(new, tasks=lambda _: urls.batches()))).run

    async def _check_urls(self, judged: UrlList) -> str:
        """Which URLs lead nowhere, in words; 422 if all of them do."""
        count, sample = 0, ""
        async for some in judged.in_batches():
            for url, task in some:
                if isinstance(task, str):
                    count, sample = count + 1, sample or f"{redact(url)[:200]} is {task}"
        if count == len(judged):
            raise Problem(422, "no-usable-url", sample, hint=ALLOW_PRIVATE_HINT if REFUSED_PREFIX in sample else "")
        return f"{count:,} of {len(judged):,}; the first, {sample}" if count else ""

    def _spec(self, refused: str) -> dict[str, Any]:
        spec = new_spec(
            self.template.name,
            mode=SERVER_MODE if self.here else "distributed",
            settings=settings_to_spec(self.settings),
            start=self.urls[:10],
            each=True,
            template=self.template_ref,
        )
        limit = {TIME_LIMIT_KEY: self.time_limit} if self.time_limit else {}
        return spec | limit | {"api": self.api | ({"refused": refused} if refused else {})}


async def _resume_seeding(queue: Queue, run: Run, urls: UrlList) -> Run:
    """A run that was begun before, maybe not to the end."""
    if run.state in ("running", "paused") and await is_seeding(queue, run):
        await urls.add_to_run(queue, run)
    return run


def override_settings(own: Settings, asked: Mapping[str, Any], what: str) -> Settings:
    """The server's settings with those of a call above them."""
    names = {name for name in asked if name in RUN_SETTINGS}
    if names & {"delay", "rate"}:
        names |= {"delay", "rate"}
    sources = {name: source for name, source in own.sources.items() if name not in names}
    return with_defaults(replace(own, sources=sources), asked, what)


def settings_in(body: BaseModel) -> dict[str, Any]:
    """The settings of a run among the fields of a call's body, by their names; headers are lines there."""
    names = RUN_SETTINGS & type(body).model_fields.keys()
    asked = {name: value for name in names if (value := getattr(body, name)) is not None}
    if headers := getattr(body, "headers", None):
        asked["header"] = [f"{name}: {value}" for name, value in headers.items()]
    return asked


async def stored_template(queue: Queue, name: str, version: int = 0) -> tuple[Template, tuple[str, int]]:
    """A template that the queue keeps under a name; 422."""
    await mark_in_use(queue, name)
    document = await queue.document(kinds.TEMPLATE, name, version)
    if document is None:
        raise Problem(
            422,
            "no-such-template",
            f"there is no template {name}",
            hint=f"PUT /api/v1/templates/{name} stores one; GET /api/v1/templates lists them",
        )
    try:
        return msgspec.json.decode(document.text, type=Template), (document.name, document.version)
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(
            422,
            "unreadable-template",
            f"template {name} is not understood here: {error}",
            hint="it may come from a newer shoal: upgrade this one",
        ) from error
