"""Next links: how one page of a list leads to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.core.url import path_of
from shoal.extract.page import Page

_SELECTORS = (
    "a[rel=next]", ".next a", "a.next", ".pagination-next a", "a.pagination-next", "a.next-page", ".pager-next a",
    "li.next a", "a[aria-label='Next page' i]", "a[aria-label=Next i]",
)  # fmt: skip

_numbers = re.compile("[0-9]+").findall


def next_selector(pages: Sequence[Page]) -> str:
    """The selector of the link to the next page, where one of the pages has such a link; else nothing."""
    for selector in _SELECTORS:
        if any(next_url(page, selector) for page in pages):
            return selector
    return ""


def next_url(page: Page, selector: str) -> str:
    """Where a selector leads to from a page, if that has another number in its URL; else nothing.

    Chapters of a book have next links, too, but one chapter is no list of the others.
    """
    for url in page.links(selector)[:1]:
        numbers = _numbers(path_of(url))
        if numbers and numbers != _numbers(path_of(page.url)):
            return url
    return ""
