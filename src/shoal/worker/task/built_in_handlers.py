"""Built-in handlers: tasks that are fetched like pages, and handled by shoal instead of the scraper.

A kind is added here, with a handler like those of scrapers: it takes the page, and yields what
`page.follow` gives, or records. What it finds is judged like the links of any page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.core.task_kind import PAGE, handler_of
from shoal.errors import GiveUp, UsageError
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper

PageFunction = Callable[[Page], Any]

BUILT_IN_HANDLERS: dict[str, PageFunction] = {}  # by kind, "page:…"


def page_function(kind: str, scraper: Scraper, page: Page) -> PageFunction | None:
    """What handles a fetched page; None: the scraper only follows its links."""
    if kind == PAGE:
        handler = scraper.handler_for(page.url)
        return None if handler is None else handler.func
    if name := handler_of(kind):
        try:
            return scraper.named_handler(name)
        except UsageError as error:
            raise GiveUp("no_handler", f"this worker's code: {error}") from error
    try:
        return BUILT_IN_HANDLERS[kind]
    except KeyError:
        raise GiveUp("no_handler", f"this worker's shoal does not know tasks of the kind {kind}") from None
