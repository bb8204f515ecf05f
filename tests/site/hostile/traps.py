"""Traps: sites without end, and pages with more links than anybody needs."""

from __future__ import annotations

import asyncio
import random

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, html, links

group = Group("traps")
PAUSE = 0.02  # one page of a trap after the other: a fast one would only show who has more of the machine
_dice = random.Random(3)
_turns: dict[str, asyncio.Lock] = {}


async def _say(connection: ClientConnection, title: str, *targets: str) -> None:
    async with _turns.setdefault(connection.home, asyncio.Lock()):
        await asyncio.sleep(PAUSE)
    await connection.send(answer(html(title, links(*targets))))


@group.does("calendar", "done", "a calendar without end", path="/calendar/2026/1", rest="done")
async def calendar(connection: ClientConnection, request: Request) -> None:
    _, _, year, month = request.path.split("/")
    at = int(year) * 12 + int(month) - 1
    await _say(connection, f"{year}-{month}", *(f"/calendar/{n // 12}/{n % 12 + 1}" for n in (at - 1, at + 1)))


@group.does("session-maze", "done", "every link has a session number of its own", path="/maze", rest="done")
async def session_maze(connection: ClientConnection, request: Request) -> None:
    await _say(connection, "maze", *(f"/maze?sid={_dice.getrandbits(64):x}" for _ in range(5)))


@group.does("facets", "done", "filters that can be put together without end", rest="done")
async def facets(connection: ClientConnection, request: Request) -> None:
    query = f"{request.query}&" if request.query else ""
    await _say(connection, f"facets {request.query}", *(f"/?{query}filter={_dice.randrange(1000)}" for _ in range(3)))


@group.does("deeper", "done", "relative links that make the path longer each time", path="/x/", rest="done")
async def deeper(connection: ClientConnection, request: Request) -> None:
    await _say(connection, request.path, "x/", "x/y/")


async def _no_numbers(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer("User-agent: *\nDisallow: /n/", "Content-Type: text/plain"))


_MANY = html("many", links(*(f"/n/{n}" for n in range(50_000))))


@group.does("links-50000", "done|too_complex", "50,000 links, to where robots.txt lets nobody go", robots=_no_numbers)
async def links_50000(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(_MANY))


group.says(
    "links-of-100k", "done", "links of 100 KB each", answer(html("long", links(*("/" + c * 100_000 for c in "abcdef"))))
)
group.says(
    "links-odd",
    "done",
    "links that are none",
    answer(
        html(
            "odd",
            links(
                "http://",
                "http://[",
                "//",
                "http://a:b:c/",
                "\x00",
                "http://%00/",
                "mailto:x",
                "javascript:void(0)",
                "http:///",
                "?" * 5_000,
                "#" * 5_000,
                "http://1.2.3.4.5/",
            ),
        )
    ),
)
