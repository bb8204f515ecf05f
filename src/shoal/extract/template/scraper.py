"""TemplateScraper: a template at work, as the scraper that every other part knows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from shoal.extract.page import Follow, Page
from shoal.extract.scraper import Scraper
from shoal.extract.selection import note_miss
from shoal.extract.template import selectors
from shoal.extract.template.extractors import RecordExtractor, element_language
from shoal.extract.template.follow_rules import FollowRule, PagingRule
from shoal.extract.template.model import PageKind, Template
from shoal.extract.template.page_view import PageView

log = logging.getLogger("shoal.template")


class TemplateScraper(Scraper):
    """A scraper whose handlers are the page kinds of a template."""

    def __init__(self, template: Template) -> None:
        super().__init__(template.name, template.start, hosts=template.hosts)
        self.settings = dict(template.settings)
        self.template = template
        self.unread: Counter[str] = Counter()  # values that were not of their type, by field
        self.kinds = [PageKindHandler(kind, self) for kind in template.pages]
        for handler in self.kinds:
            for pattern in handler.kind.match:
                self.page(pattern, fetch=handler.kind.by.fetch, steps=handler.kind.by.steps, exit=handler.kind.by.exit)(
                    handler
                )


class PageKindHandler:
    """The handler of one page kind."""

    def __init__(self, kind: PageKind, scraper: TemplateScraper) -> None:
        self.kind = kind
        self._scraper = scraper
        self._each = selectors.finder(kind.each, None) if kind.each else None
        context = element_language(kind.each.language) if kind.each else None
        self.record = RecordExtractor(kind.fields, context) if kind.fields else None
        self._rules = [FollowRule(rule) for rule in kind.follow]
        self._paging = PagingRule(kind.paging) if kind.paging else None

    def __call__(self, page: Page) -> Iterator[Any]:
        view = PageView(page, self.kind.kind)
        if self.record is not None:
            if self._each is None:
                yield self.record.read(view)
            else:
                found = self._each(view, None)
                if not found:
                    note_miss(view.page, str(self.kind.each))
                for here in found:
                    view.item += 1
                    yield self.record.read(view, here)
                view.item = 0
        yield from self.follows(view)
        if view.notes:
            self._note(view)

    def follows(self, view: PageView) -> Iterator[Follow]:
        """The links to visit from a page."""
        for rule in self._rules:
            yield from rule.follows(view)
        if self._paging is not None:
            yield from self._paging.follows(view)
        if self.kind.usual:
            yield from self._scraper.default_follow(view.page)

    def elements(self, view: PageView) -> list[Any]:
        """What each record of a page is read from."""
        return [None] if self._each is None else self._each(view, None)

    def _note(self, view: PageView) -> None:
        for field, message in view.notes:
            self._scraper.unread[field] += 1
            if self._scraper.unread[field] == 1:
                log.info("field_unread", extra={"url": view.page.url, "field": field, "why": message})

    def __repr__(self) -> str:
        return f"<{self.kind.kind} of {self._scraper.name}>"
