"""Usual pages: how big, how full and how built the good pages of one shape are. Pure.

`learn` is called for each good page and is cheap; how pages are built is looked at only now and then.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from shoal.core.page_print import SKETCH, PageLook

MIN_PAGES = 5  # good pages before there is anything usual
MIN_SAMPLES = 2  # of these, how they are built
SAMPLE_EVERY = 128
FAR_FEWER = 4  # poor: less than this part of what is usual
LESS_FILLED = 0.7  # likewise, of the share of fields that have a value
HOLLOW_SHARE = 0.5  # likewise: then its records are hardly any
MIN_RECORDS, MIN_LINKS = 0.5, 4.0  # where fewer are usual, less says nothing
OTHER_SIZE = 2.0  # times smaller or larger than any was lately
STRANGE = 0.5  # of the pieces that such pages have in common, less than this part of what is usual
MIN_CORE = 5  # pieces in common, before a page without them is strange
WEIGHT = 0.1  # of the last page in what is usual
MAX_COUNT = 2**53

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Piece = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Pieces = Annotated[tuple[Piece, ...], msgspec.Meta(max_length=SKETCH)]

# Signs that a page is another than the one asked for; bits.
POOR, STRANGE_BUILD, ASKS, LED_AWAY, HOLLOW = 1, 2, 4, 8, 16
MAX_SIGNS = 31


class PageSeen(msgspec.Struct, frozen=True, gc=False):
    """What is known of a page at no cost."""

    url: int
    size: int
    title: int
    landed: int  # where redirects led to; 0: nowhere else
    records: int
    links: int
    filled: float = 1.0
    is_failed: bool = False  # its handler failed on it


class Usual(msgspec.Struct, omit_defaults=True):
    """Of the pages of one shape that one handler reads."""

    pages: _Count = 0
    epoch: _Count = 0  # how often the site was made anew
    records: _Number = 0.0
    links: _Number = 0.0
    filled: _Share = 0.0
    low: _Number = 0.0  # sizes of the smallest and the largest of late
    high: _Number = 0.0
    landed: _Share = 0.0  # of them that redirects led to
    titles: _Share = 0.0  # of them with another title than the page before
    title: _Count = 0
    samples: _Count = 0
    core: Pieces = ()  # pieces that they have in common
    last: Pieces = ()  # some of the pieces of the last one that was looked at
    alike: _Share = 0.0  # how much of the core they have
    asks: Annotated[int, msgspec.Meta(ge=0, le=31)] = 0

    @property
    def is_known(self) -> bool:
        return self.pages >= MIN_PAGES and self.samples >= MIN_SAMPLES

    @property
    def has_titles(self) -> bool:
        """Whether each page usually has a title of its own."""
        return self.titles >= 0.5

    @property
    def wants_sample(self) -> bool:
        return self.pages < MIN_PAGES or self.pages % SAMPLE_EVERY == 0

    def is_ordinary(self, seen: PageSeen) -> bool:
        """A page that gave what such pages give, in their size: there is no need to look at how it is built."""
        return (
            self.is_known
            and not seen.is_failed
            and not self.is_poor(seen)
            and not self.is_other_size(seen.size)
            and not (seen.landed and self.landed < 0.2)
            and not (seen.title == self.title and self.titles >= 0.5)
        )

    def is_other_size(self, size: int) -> bool:
        return size * OTHER_SIZE < self.low or size > self.high * OTHER_SIZE

    def is_poor(self, seen: PageSeen) -> bool:
        if seen.is_failed or (self.links >= MIN_LINKS and seen.links * FAR_FEWER < self.links):
            return True
        if self.records < MIN_RECORDS:
            return False
        return seen.records * FAR_FEWER < self.records or seen.filled < LESS_FILLED * self.filled

    def is_strange(self, look: PageLook) -> bool:
        return len(self.core) >= MIN_CORE and self._share_of_core(look) < STRANGE * self.alike

    def signs(self, seen: PageSeen, look: PageLook, *, of_reader: bool = True) -> int:
        """What speaks against a page. of_reader: the same code read it as those that are usual."""
        found = POOR if (self.is_poor(seen) if of_reader else seen.is_failed) else 0
        if of_reader and seen.records and seen.filled < HOLLOW_SHARE * self.filled:
            found |= HOLLOW
        if self.is_strange(look):
            found |= STRANGE_BUILD
        if look.asks & ~self.asks:
            found |= ASKS
        if seen.landed and self.landed < 0.2:
            found |= LED_AWAY
        return found

    def learn(self, seen: PageSeen, look: PageLook | None) -> None:
        """One more good page."""
        weight = max(WEIGHT, 1.0 / (self.pages + 1))
        self.records += (seen.records - self.records) * weight
        self.links += (seen.links - self.links) * weight
        self.filled = min(1.0, max(0.0, self.filled + (seen.filled - self.filled) * weight))
        size = seen.size
        # What was once small or large is forgotten slowly: a site grows.
        self.low = min(size, self.low + (size - self.low) * 0.01) if self.pages else size
        self.high = max(size, self.high + (size - self.high) * 0.01) if self.pages else size
        if self.pages:
            self.titles = min(1.0, max(0.0, self.titles + ((seen.title != self.title) - self.titles) * weight))
            self.landed = min(1.0, max(0.0, self.landed + (bool(seen.landed) - self.landed) * weight))
        else:
            self.titles, self.landed = 1.0, float(bool(seen.landed))
        self.title = seen.title
        self.pages = min(self.pages + 1, MAX_COUNT)
        if look is not None:
            self._learn_look(look)

    def _learn_look(self, look: PageLook) -> None:
        sketch, core = look.sketch, self.core
        if self.samples:
            common = {piece for piece in (*core, *self.last) if piece in look.pieces}
            share = self._share_of_core(look) if core else 1.0
            self.alike = self.alike + (share - self.alike) * max(WEIGHT, 1.0 / self.samples)
            self.core = tuple(sorted(common)[:SKETCH])
        self.last = sketch
        self.asks |= look.asks
        self.samples = min(self.samples + 1, MAX_COUNT)

    def _share_of_core(self, look: PageLook) -> float:
        return sum(piece in look.pieces for piece in self.core) / len(self.core) if self.core else 1.0
