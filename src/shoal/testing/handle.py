"""handle: what a scraper makes of one page, as a worker would see it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from shoal.commands.result import run_blocking
from shoal.core.task_kind import PAGE, handler_name
from shoal.core.typed_task import Task
from shoal.errors import FetchRefused, UsageError
from shoal.extract.page import Follow, Page
from shoal.extract.scraper import Scraper
from shoal.worker.task.built_in_handlers import page_function
from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import HandlerDeadline, UserCodeStep, run_handler

TIMEOUT = 3_600.0  # seconds: a debugger may be at work
_no_step = cast(UserCodeStep, contextlib.nullcontext())  # there is no worker whose crash note it would be in


@dataclass(frozen=True, slots=True)
class Handled:
    """What a handler yielded: records as they are stored, links as they were yielded, and typed tasks."""

    records: list[dict[str, Any]]
    follows: tuple[Follow, ...]
    tasks: tuple[Task, ...]
    page: Page

    @property
    def links(self) -> list[str]:
        """The URLs to be followed, in full, each once."""
        urls = (self.page.absolute(href) for follow in self.follows for href in follow.hrefs)
        return list(dict.fromkeys(url for url in urls if url is not None))


def handle(scraper: Scraper, page: Page, *, to: str | Callable[..., Any] = "", kind: str = PAGE) -> Handled:
    """Run the handler that the page's URL and status lead to; what it raises is raised here.

    to: a handler, or its name, as in page.follow(…, to=…): it takes the page whatever its URL.
    """
    return run_blocking(lambda: handle_page(scraper, page, kind, to=to))


async def handle_page(scraper: Scraper, page: Page, kind: str = PAGE, *, to: str | Callable[..., Any] = "") -> Handled:
    if not isinstance(scraper, Scraper):
        raise UsageError(
            f"{getattr(scraper, '__name__', scraper)!r} is not a scraper",
            hint="handle(scraper, page), or handle(scraper, page, to=function) for one handler",
        )
    output = HandlerOutput()
    func = scraper.named_handler(handler_name(to)) if to else _function_for(scraper, page, kind)
    if func is None:
        output.add_follows(scraper.default_follow(page))
    else:
        await run_handler(func, page, _no_step, output, HandlerDeadline(time.monotonic, TIMEOUT))
        for follow in output.follows:
            if follow.handler:
                scraper.named_handler(follow.handler)
    if unique := scraper.settings.get("unique"):
        output.make_unique((unique,) if isinstance(unique, str) else tuple(unique))
    records = [msgspec.json.decode(record) for record in output.records]
    return Handled(records, tuple(output.follows), tuple(output.tasks), page)


def _function_for(scraper: Scraper, page: Page, kind: str) -> Callable[[Page], Any] | None:
    if 200 <= page.status < 300 or page.status == 304:
        return page_function(kind, scraper, page)
    func = scraper.error_handler_for(page.status)
    if func is None:
        raise FetchRefused(f"http.{page.status}", f"{page.url} answered {page.status}, and no error handler takes it")
    return func
