"""TemplateScraper: a template at work, as the scraper that every other part knows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from shoal.extract.page import Follow, Page
from shoal.extract.scraper import Scraper
from shoal.extract.template import find
from shoal.extract.template.following import FollowRule, PagingRule
from shoal.extract.template.model import PageKind, Template
from shoal.extract.template.record import Record, element_language
from shoal.extract.template.sight import Sight

log = logging.getLogger("shoal.template")


class TemplateScraper(Scraper):
    """A scraper whose handlers are the page kinds of a template."""

    def __init__(self, template: Template) -> None:
        super().__init__(template.name, template.start, hosts=template.hosts)
        self.settings = dict(template.settings)
        self.template = template
        self.unread: Counter[str] = Counter()  # values that were not of their type, by field
        self.kinds = [KindHandler(kind, self) for kind in template.pages]
        for handler in self.kinds:
            for pattern in handler.kind.match:
                self.page(pattern)(handler)


class KindHandler:
    """The handler of one page kind."""

    def __init__(self, kind: PageKind, scraper: TemplateScraper) -> None:
        self.kind = kind
        self._scraper = scraper
        self._each = find.finder(kind.each, None) if kind.each else None
        context = element_language(kind.each.language) if kind.each else None
        self.record = Record(kind.fields, context) if kind.fields else None
        self._rules = [FollowRule(rule) for rule in kind.follow]
        self._paging = PagingRule(kind.paging) if kind.paging else None

    def __call__(self, page: Page) -> Iterator[Any]:
        sight = Sight(page, self.kind.kind)
        if self.record is not None:
            if self._each is None:
                yield self.record.read(sight)
            else:
                for here in self._each(sight, None):
                    sight.item += 1
                    yield self.record.read(sight, here)
                sight.item = 0
        yield from self.follows(sight)
        if sight.notes:
            self._note(sight)

    def follows(self, sight: Sight) -> Iterator[Follow]:
        """The links to visit from a page."""
        for rule in self._rules:
            yield from rule.follows(sight)
        if self._paging is not None:
            yield from self._paging.follows(sight)
        if self.kind.usual:
            yield from self._scraper.default_follow(sight.page)

    def elements(self, sight: Sight) -> list[Any]:
        """What each record of a page is read from."""
        return [None] if self._each is None else self._each(sight, None)

    def _note(self, sight: Sight) -> None:
        for field, message in sight.notes:
            self._scraper.unread[field] += 1
            if self._scraper.unread[field] == 1:
                log.info("field_unread", extra={"url": sight.page.url, "field": field, "why": message})

    def __repr__(self) -> str:
        return f"<{self.kind.kind} of {self._scraper.name}>"
