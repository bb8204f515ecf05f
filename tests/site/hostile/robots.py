"""Robots: the one file that is read of every site, made as bad as can be."""

from __future__ import annotations

from hostile.behaviour import Group, Respond
from hostile.client_connection import CHUNKED, ClientConnection, Request, answer, chunk, head, html
from hostile.codings import ready
from hostile.redirects import moved

group = Group("robots")
TEXT = "Content-Type: text/plain"


def _site(name: str, expect: str, why: str) -> object:
    def declare(robots: Respond) -> Respond:
        @group.does(name, expect, why, robots=robots)
        async def page(connection: ClientConnection, request: Request) -> None:
            await connection.send(answer(html("robots")))

        return robots

    return declare


def _says(name: str, expect: str, why: str, data: bytes) -> None:
    async def say(connection: ClientConnection, request: Request) -> None:
        await connection.send(data)

    _site(name, expect, why)(say)  # type: ignore[operator]


@_site("robots-endless", "done|robots_unreachable", "a robots.txt of 50 MB and more: the first part counts")  # type: ignore[operator]
async def robots_endless(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(TEXT, CHUNKED), chunk(b"User-agent: *\nAllow: /\n"))
    await connection.send_endlessly(chunk(b"Disallow: /nothing-of-ours\n" * 2_000))


@_site("robots-slow", "timeout.slow|robots_unreachable", "a robots.txt that comes one byte a second")  # type: ignore[operator]
async def robots_slow(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(TEXT, "Content-Length: 10000"))
    await connection.send_slowly(b"#")


@_site("robots-silent", "timeout.headers|robots_unreachable", "a robots.txt that never comes")  # type: ignore[operator]
async def robots_silent(connection: ClientConnection, request: Request) -> None:
    await connection.wait_silently()


@_site("robots-loop", "done", "a robots.txt that leads to itself")  # type: ignore[operator]
async def robots_loop(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/robots.txt"))


_WILD = "".join(f"Disallow: /{'*a' * 30}{n}$\n" for n in range(8_000))
_says("robots-wildcards", "done", "half a megabyte of wildcards", answer(f"User-agent: *\n{_WILD}", TEXT))
_says(
    "robots-one-pattern",
    "done",
    "one pattern of 500 KB of wildcards",
    answer("User-agent: *\nDisallow: /" + "*a" * 250_000 + "$", TEXT),
)
_says(
    "robots-agents",
    "done",
    "100,000 names of crawlers",
    answer("".join(f"User-agent: bot{n}\n" for n in range(25_000)) + "Disallow: /", TEXT),
)
_says(
    "robots-5xx",
    "robots_unreachable",
    "a robots.txt that cannot be had now",
    answer("", "Retry-After: 120", status="503 Busy"),
)
_says("robots-429", "robots_unreachable", "a robots.txt that asks for patience", answer("", status="429 Slow down"))
_says("robots-403", "done", "a robots.txt that is forbidden", answer("", status="403 Forbidden"))
_says("robots-binary", "done", "a robots.txt of noise", answer(bytes(range(256)) * 400, TEXT))
_says("robots-html", "done", "a page where robots.txt should be", answer(html("not robots")))


@_site("robots-bomb", "done|robots_unreachable", "a robots.txt that is a gzip bomb: the first part counts")  # type: ignore[operator]
async def robots_bomb(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(ready()["bomb-gzip"], TEXT, "Content-Encoding: gzip"))


_says("robots-forbids", "robots", "a robots.txt that forbids everything", answer("User-agent: *\nDisallow: /", TEXT))
_says(
    "robots-cut",
    "bad_response|robots_unreachable",
    "a robots.txt that ends too early",
    head(TEXT, CHUNKED) + b"5\r\nhello\r\nzz",
)
