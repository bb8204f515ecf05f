"""Overheard in the shop: many records on one page, with paging."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from shoal.demo import words
from shoal.demo.answer import Answer, Ask, html, redirect
from shoal.demo.dice import Dice
from shoal.demo.layout import numbered, page, page_number, pager

COUNT = 60
PER_PAGE = 10
LAST = COUNT // PER_PAGE


class Quotes:
    def __init__(self, seed: int) -> None:
        self.all = [self._quote(seed, number) for number in range(COUNT)]

    def _quote(self, seed: int, number: int) -> tuple[str, str]:
        dice = Dice(seed, "quote", number)
        text = words.fill(dice, words.SAYINGS[number % len(words.SAYINGS)])
        return text, f"{dice.pick(words.FIRST)} {dice.pick(words.LAST)}"

    def answer(self, ask: Ask) -> Answer | None:
        if not ask.parts:
            return redirect("/quotes/", 301)
        number = page_number(ask.parts[0]) if len(ask.parts) == 1 else 0
        if not 1 <= number <= LAST:
            return None
        items = "\n".join(
            f'<blockquote class="quote"><p class="text">{escape(text)}</p><p class="author">{who}</p>'
            f"</blockquote>"
            for text, who in self.all[(number - 1) * PER_PAGE : number * PER_PAGE]
        )
        main = f"<h1>Overheard in the shop</h1>\n{items}\n{pager('/quotes/', number, LAST)}"
        return html(
            page("Overheard" if number == 1 else f"Overheard, page {number}", main, crumbs=[("/", "Home")])
        )

    def paths(self) -> Iterator[str]:
        return (numbered("/quotes/", number) for number in range(1, LAST + 1))
