"""Block pages: pages that a site gives in place of those that were asked for, with status 200. Pure.

A page is remembered when it is odd, and again each time that it comes under another URL.

seen      odd, but that may be all: its URL is asked for a second time before anything is decided
block     it came for several URLs, and is not what such pages give
content   it came again for the same URLs while others were fine: that is what is at those URLs, such as "not found"
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec

from shoal.core.page_print import NEARLY_IDENTICAL, RELATED, PageLook, likeness
from shoal.core.usual_page import ASKS, MAX_COUNT, MAX_SIGNS, STRANGE_BUILD, PageSeen, Piece, Pieces

BLOCK_PAGE: Final = "block_page"  # the cause
MIN_URLS = 3  # that gave one page, before it is a block
MIN_URLS_UNKNOWN = 5  # of a host of which nothing usual is known
MAX_SIGHTINGS = 8  # URLs that are kept of each
MAX_LOOKS = 3  # at one URL, while nothing else comes to compare with
CONTENT_AFTER = 3  # URLs that gave it twice while others were fine

Status = Literal["seen", "block", "content"]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class Sighting(msgspec.Struct, array_like=True):
    """One URL that gave it."""

    url: Piece
    at: _Count  # the first time, in seconds
    again: bool = False  # it gave it once more while other pages were fine
    gone: bool = False  # later it gave its own page
    looks: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1


class BlockPage(msgspec.Struct, omit_defaults=True):
    id: Piece
    title: Piece
    landed: Piece
    sketch: Pieces
    signs: Annotated[int, msgspec.Meta(ge=0, le=MAX_SIGNS)]
    asks: Annotated[int, msgspec.Meta(ge=0, le=31)]
    size: _Count
    example: Annotated[str, msgspec.Meta(max_length=300)] = ""  # a URL that gave it
    is_compared: bool = False  # there was something usual to compare it with
    first_at: _Count = 0
    last_at: _Count = 0
    pages: _Count = 0  # that were kept out for it
    leaked: _Count = 0  # that were taken for good before
    is_content: bool = False  # so a person says
    sightings: Annotated[list[Sighting], msgspec.Meta(max_length=MAX_SIGHTINGS)] = []

    def status(self) -> Status:
        if self.is_content or (self._is_of_its_urls and not self.signs & ASKS):
            return "content"
        needed = MIN_URLS if self.is_compared else MIN_URLS_UNKNOWN
        return "block" if self.signs and len(self.sightings) >= needed else "seen"

    @property
    def is_for_good(self) -> bool:
        """Its URLs give it and will give it, whoever asks: such as pages for which one must be logged in."""
        return self.status() == "block" and self._is_of_its_urls

    @property
    def _is_of_its_urls(self) -> bool:
        if any(one.gone for one in self.sightings):
            return False
        return sum(one.again for one in self.sightings) >= CONTENT_AFTER

    def sighting(self, url: int) -> Sighting | None:
        return next((one for one in self.sightings if one.url == url), None)

    def is_same(self, seen: PageSeen, look: PageLook, signs: int, *, has_titles: bool) -> bool:
        """Whether this is what came before. A page in the site's usual layout is much like all others of the site.

        has_titles: pages of the site usually have titles of their own.
        """
        return _is_same(self, seen.title if has_titles else 0, seen.landed, look.sketch, signs)

    def is_identical(self, seen: PageSeen, look: PageLook) -> bool:
        """Whether this is what came before, where nothing is known of the site."""
        return self.title == seen.title and likeness(self.sketch, look.sketch) >= NEARLY_IDENTICAL


def _is_same(known: BlockPage, title: int, landed: int, sketch: tuple[int, ...], signs: int) -> bool:
    is_related = (title != 0 and title == known.title) or (landed != 0 and landed == known.landed)
    if not is_related and not signs & (STRANGE_BUILD | ASKS):
        return False
    return likeness(known.sketch, sketch) >= (RELATED if is_related else NEARLY_IDENTICAL)


def merged_pages(stored: Iterable[BlockPage], own: Iterable[BlockPage], most: int) -> list[BlockPage]:
    """What others have seen together with what this process has; the latest, if there are too many."""
    made = {one.id: one for one in stored}
    for one in own:
        known = made.get(one.id) or next((it for it in made.values() if _is_one(it, one)), None)
        if known is None:
            made[one.id] = one
        else:
            made[known.id] = _merged(known, one)
    # What is known for sure is kept for longer than what was merely odd.
    latest = sorted(made.values(), key=lambda one: (one.status() != "seen", one.last_at))
    return latest[-most:]


def _is_one(stored: BlockPage, own: BlockPage) -> bool:
    """Whether two processes have seen the same page: tokens in it differ from time to time."""
    return own.is_compared == stored.is_compared and _is_same(stored, own.title, own.landed, own.sketch, own.signs)


def _merged(stored: BlockPage, own: BlockPage) -> BlockPage:
    found = {one.url: one for one in stored.sightings}
    for one in own.sightings:
        known = found.get(one.url)
        if known is not None:
            again, gone, looks = one.again or known.again, one.gone or known.gone, max(one.looks, known.looks)
            one = Sighting(one.url, min(one.at, known.at), again, gone, looks)
        found[one.url] = one
    return msgspec.structs.replace(
        stored,
        signs=own.signs | stored.signs,
        asks=own.asks | stored.asks,
        is_content=own.is_content or stored.is_content,
        first_at=min(own.first_at, stored.first_at) or own.first_at,
        last_at=max(own.last_at, stored.last_at),
        pages=max(own.pages, stored.pages),
        leaked=max(own.leaked, stored.leaked),
        sightings=list(found.values())[:MAX_SIGHTINGS],
    )
