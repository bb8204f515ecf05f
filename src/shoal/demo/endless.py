"""Places without end: a calendar that robots.txt forbids, and a maze that it does not."""

from __future__ import annotations

from shoal.demo import words
from shoal.demo.layout import link, page
from shoal.demo.messages import SiteRequest, SiteResponse, html_response
from shoal.demo.seeded_random import SeededRandom

MAX_MAZE_PATH = 4000  # characters of a maze path; beyond them the walls are solid


def calendar(parts: list[str]) -> SiteResponse | None:
    """/trap/calendar/<yyyy>/<mm>, with a link to the month before and the month after."""
    if len(parts) != 3 or parts[0] != "calendar":
        return None
    year, month = parts[1], parts[2]
    if not ((year + month).isascii() and year.isdigit() and month.isdigit() and len(year) < 7 and len(month) < 3):
        return None
    at = int(year) * 12 + int(month) - 1
    if not 1 <= int(month) <= 12:
        return None
    before, after = (f"/trap/calendar/{n // 12:04}/{n % 12 + 1:02}" for n in (max(at - 1, 0), at + 1))
    main = (
        f"<h1>Events in {int(year):04}-{int(month):02}</h1>\n<p>No events this month. Try another one.</p>\n"
        f'<ul class="pager"><li class="previous">{link(before, "month before")}</li>'
        f'<li class="next">{link(after, "month after")}</li></ul>'
    )
    return html_response(page(f"Events {year}-{month}", main))


def maze(request: SiteRequest, seed: int) -> SiteResponse | None:
    """/maze/<token>/…: every room has four doors, and every door makes the path longer."""
    if not request.path.endswith("/") or len(request.path) > MAX_MAZE_PATH:
        return None
    rng = SeededRandom(seed, "maze", request.path)
    doors = rng.sample(words.NOUNS, 4)
    items = "\n".join(f"<li>{link(f'{request.path}{door.lower()}/', f'The {door} door')}</li>" for door in doors)
    depth = request.path.count("/") - 2
    main = (
        f'<h1>Room {rng.between(100, 999)}</h1>\n<p>You are <span class="depth">{depth}</span> '
        f"doors deep.</p>\n"
        f'<ul class="doors">\n{items}\n</ul>'
    )
    return html_response(page("The maze", main))
