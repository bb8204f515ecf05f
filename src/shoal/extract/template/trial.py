"""Trial: what a template finds on one page, field by field, for people who are writing it."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import GiveUp
from shoal.extract.page import Page
from shoal.extract.template.following import matcher
from shoal.extract.template.record import FieldReader
from shoal.extract.template.scraper import KindHandler, TemplateScraper
from shoal.extract.template.sight import Sight


class Tried(msgspec.Struct, frozen=True):
    """One field of one record; `problem` says why there is no value, or that it is not the page's."""

    field: str
    value: Any = None
    problem: str = ""
    fatal: bool = False  # a page like this is a failed one


class Trial(msgspec.Struct, frozen=True):
    kind: str
    records: tuple[tuple[Tried, ...], ...] = ()
    links: tuple[str, ...] = ()  # canonical addresses it would follow, before scope and the rest
    first: bool = True  # whether it is the kind that such a page would get

    @property
    def failed(self) -> bool:
        return any(one.fatal for record in self.records for one in record)


def try_page(scraper: TemplateScraper, page: Page, kind: str = "") -> list[Trial]:
    """Try the page kinds whose pattern matches the page's address, or the one that is named."""
    meant = scraper.handler_for(page.url)
    if kind:
        chosen = [one for one in scraper.kinds if one.kind.kind == kind]
    else:
        chosen = [one for one in scraper.kinds if matcher(one.kind.match)(page.url)]
    return [_try(one, page, meant is not None and one is meant.func) for one in chosen]


def _try(handler: KindHandler, page: Page, first: bool) -> Trial:
    sight = Sight(page, handler.kind.kind)
    records = []
    if handler.record is not None:
        for here in handler.elements(sight):
            sight.item += handler.kind.each is not None
            records.append(tuple(_read(field, sight, here) for field in handler.record.fields))
    return Trial(handler.kind.kind, tuple(records), _links(handler, page), first)


def _read(field: FieldReader, sight: Sight, here: Any) -> Tried:
    sight.notes.clear()
    try:
        value = field.read(sight, here)
    except GiveUp as error:
        return Tried(field.path, None, str(error).removeprefix(f"{field.path}: "), fatal=True)
    if sight.notes:
        inner, why = sight.notes[0]
        return Tried(field.path, value, why if inner == field.path else f"{inner}: {why}")
    if value is None or value == []:
        return Tried(field.path, value, f"{field.expected} found nothing")
    return Tried(field.path, value)


def _links(handler: KindHandler, page: Page) -> tuple[str, ...]:
    found: dict[str, None] = {}
    sight = Sight(page, handler.kind.kind)
    for follow in handler.follows(sight):
        urls = map(sight.absolute, follow.hrefs)
        found |= dict.fromkeys(url for url in urls if url is not None)
    return tuple(found)
