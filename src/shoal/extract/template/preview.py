"""Preview: what a template finds on one page, field by field, for people who are writing it."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import GiveUp
from shoal.extract.page import Page
from shoal.extract.template.extractors import FieldExtractor
from shoal.extract.template.follow_rules import any_pattern_matcher
from shoal.extract.template.page_view import PageView
from shoal.extract.template.scraper import PageKindHandler, TemplateScraper


class FieldPreview(msgspec.Struct, frozen=True):
    """One field of one record; `problem` says why there is no value, or that it is not the page's."""

    field: str
    value: Any = None
    problem: str = ""
    fatal: bool = False  # a page like this is a failed one


class KindPreview(msgspec.Struct, frozen=True):
    kind: str
    records: tuple[tuple[FieldPreview, ...], ...] = ()
    links: tuple[str, ...] = ()  # canonical URLs it would follow, before scope and the rest
    is_first: bool = True  # whether it is the kind that such a page would get

    @property
    def failed(self) -> bool:
        return any(one.fatal for record in self.records for one in record)


def preview_page(scraper: TemplateScraper, page: Page, kind: str = "") -> list[KindPreview]:
    """Try the page kinds whose pattern matches the page's URL, or the one that is named."""
    meant = scraper.handler_for(page.url)
    if kind:
        chosen = [one for one in scraper.kinds if one.kind.kind == kind]
    else:
        chosen = [one for one in scraper.kinds if any_pattern_matcher(one.kind.match)(page.url)]
    return [_preview(one, page, meant is not None and one is meant.func) for one in chosen]


def _preview(handler: PageKindHandler, page: Page, is_first: bool) -> KindPreview:
    view = PageView(page, handler.kind.kind)
    records = []
    if handler.record is not None:
        for here in handler.elements(view):
            view.item += handler.kind.each is not None
            records.append(tuple(_read(field, view, here) for field in handler.record.fields))
    return KindPreview(handler.kind.kind, tuple(records), _links(handler, page), is_first)


def _read(field: FieldExtractor, view: PageView, here: Any) -> FieldPreview:
    view.notes.clear()
    try:
        value = field.read(view, here)
    except GiveUp as error:
        return FieldPreview(field.path, None, str(error).removeprefix(f"{field.path}: "), fatal=True)
    if view.notes:
        inner, why = view.notes[0]
        return FieldPreview(field.path, value, why if inner == field.path else f"{inner}: {why}")
    if value is None or value == []:
        return FieldPreview(field.path, value, f"{field.expected} found nothing")
    return FieldPreview(field.path, value)


def _links(handler: PageKindHandler, page: Page) -> tuple[str, ...]:
    found: dict[str, None] = {}
    view = PageView(page, handler.kind.kind)
    for follow in handler.follows(view):
        urls = map(view.absolute, follow.hrefs)
        found |= dict.fromkeys(url for url in urls if url is not None)
    return tuple(found)
