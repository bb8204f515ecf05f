"""Overheard in the shop: many records on one page, with paging."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from shoal.demo import words
from shoal.demo.layout import numbered, page, page_number, pager
from shoal.demo.messages import SiteRequest, SiteResponse, html_response, redirect_response
from shoal.demo.seeded_random import SeededRandom

COUNT = 60
PER_PAGE = 10
LAST = COUNT // PER_PAGE


class Quotes:
    def __init__(self, seed: int) -> None:
        self.all = [self._quote(seed, number) for number in range(COUNT)]

    def _quote(self, seed: int, number: int) -> tuple[str, str]:
        rng = SeededRandom(seed, "quote", number)
        text = words.fill(rng, words.SAYINGS[number % len(words.SAYINGS)])
        return text, f"{rng.choice(words.FIRST)} {rng.choice(words.LAST)}"

    def answer(self, request: SiteRequest) -> SiteResponse | None:
        if not request.parts:
            return redirect_response("/quotes/", 301)
        number = page_number(request.parts[0]) if len(request.parts) == 1 else 0
        if not 1 <= number <= LAST:
            return None
        items = "\n".join(
            f'<blockquote class="quote"><p class="text">{escape(text)}</p><p class="author">{who}</p></blockquote>'
            for text, who in self.all[(number - 1) * PER_PAGE : number * PER_PAGE]
        )
        main = f"<h1>Overheard in the shop</h1>\n{items}\n{pager('/quotes/', number, LAST)}"
        return html_response(
            page("Overheard" if number == 1 else f"Overheard, page {number}", main, crumbs=[("/", "Home")])
        )

    def paths(self) -> Iterator[str]:
        return (numbered("/quotes/", number) for number in range(1, LAST + 1))
