"""Redirects: loops, chains, places that are none."""

from __future__ import annotations

import asyncio

from hostile.behaviour import Group
from hostile.client_connection import CHUNKED, PIECE, ClientConnection, Request, answer, chunk, head, html, links

group = Group("redirects")
PAGE = html("arrived")


def moved(location: str, *lines: str, status: str = "302 Found", body: str = "") -> bytes:
    return answer(body, f"Location: {location}", *lines, status=status)


@group.does("redirect-loop", "redirects", "two pages that lead to each other")
async def redirect_loop(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/b" if request.path != "/b" else "/"))


group.says("redirect-self", "redirects", "leads to itself", moved("/"), close=False)


@group.does("redirect-chain-50", "redirects", "fifty steps to a page")
async def redirect_chain(connection: ClientConnection, request: Request) -> None:
    step = int(request.path[1:] or 0)
    await connection.send(moved(f"/{step + 1}") if step < 50 else answer(PAGE))


@group.does("redirect-chain-9", "done", "nine steps to a page, with every status there is for it")
async def redirect_short(connection: ClientConnection, request: Request) -> None:
    step = int(request.path[1:] or 0)
    status = ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent")[step % 5]
    await connection.send(moved(f"/{step + 1}", status=status) if step < 9 else answer(PAGE))


@group.does("redirect-cookie", "done", "leads to itself with a cookie, then there is a page")
async def redirect_cookie(connection: ClientConnection, request: Request) -> None:
    known = "seen=1" in request.header("cookie")
    await connection.send(answer(PAGE) if known else moved("/", "Set-Cookie: seen=1; Path=/"))


@group.does("redirect-cookie-loop", "redirects", "leads to itself with a new cookie each time, for ever")
async def redirect_cookies(connection: ClientConnection, request: Request) -> None:
    count = len(request.header("cookie"))
    await connection.send(moved("/", f"Set-Cookie: c{count}=1; Path=/"))


@group.does("redirect-counting", "redirects", "leads to itself with another query each time")
async def redirect_counting(connection: ClientConnection, request: Request) -> None:
    count = int(request.query.partition("=")[2] or 0)
    await connection.send(moved(f"/?n={count + 1}"))


@group.does("redirect-growing", "redirects", "leads deeper each time")
async def redirect_growing(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved(f"{request.path}deeper/"))


for _scheme, _target in {
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:{canary}/_GET",
    "javascript": "javascript:alert(1)",
    "data": "data:text/html,<title>data</title>",
    "ftp": "ftp://127.0.0.1:{canary}/",
    "ws": "ws://127.0.0.1:{canary}/",
    "unix": "unix:/var/run/docker.sock",
}.items():

    @group.does(f"redirect-{_scheme}", "redirects|blocked.scheme", f"leads to a {_scheme}: address")
    async def redirect_scheme(
        connection: ClientConnection, request: Request, target: str = _target, name: str = f"redirect-{_scheme}"
    ) -> None:
        await connection.send(moved(target.format(canary=connection.site.canary_port(name))))


group.says("location-missing", "http.302", "a redirect that leads nowhere", answer("", status="302 Found"))
group.says("location-empty", "http.302|redirects", "a redirect with an empty Location", moved(""))
group.says("location-garbage", "redirects", "a Location that is none", moved("http://[::bad/%zz"))
group.says("location-spaces", "redirects|http.302", "a Location of blanks", moved("   \t "))
group.says("location-port", "redirects", "a port that does not exist", moved("http://127.0.1.1:99999/"))
group.says("location-nul", "bad_response|redirects", "a NUL within the Location", moved("/a\x00b"))
group.says("location-twice", "redirects|done|bad_response", "two Locations that differ", moved("/", "Location: /other"))


@group.does("location-8k", "done", "a Location of 8 KB")
async def location_8k(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/" + "long/" * 1_600) if request.path == "/" else answer(PAGE))


@group.does("location-200k", "redirects|too_large|bad_url", "a Location of 90 KB")
async def location_200k(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/" + "l" * 90_000) if request.path == "/" else answer("", status="414 URI Too Long"))


@group.does("location-not-ascii", "done", "a Location with letters of many languages, as bytes")
async def location_not_ascii(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/café/日本?q=ß") if request.path == "/" else answer(PAGE))


@group.does("redirect-body-5mb", "done", "a redirect with a body of 5 MB")
async def redirect_body(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved("/there", body="x" * 5_000_000) if request.path == "/" else answer(PAGE))


@group.does("redirect-body-endless", "done|too_large", "a redirect with a body without end")
async def redirect_endless(connection: ClientConnection, request: Request) -> None:
    if request.path != "/":
        await connection.send(answer(PAGE))
        return
    await connection.send(head("Location: /there", CHUNKED, status="302 Found"))
    await connection.send_endlessly(chunk(b"x" * PIECE))


@group.does("redirect-slow", "redirects", "a chain of steps, each of which takes a second")
async def redirect_slow(connection: ClientConnection, request: Request) -> None:
    await asyncio.sleep(1.0)
    await connection.send(moved(f"/{int(request.path[1:] or 0) + 1}"))


@group.does("redirect-with-secret", "done", "a login that must not go along to another host", rest="done")
async def redirect_secret(connection: ClientConnection, request: Request) -> None:
    if request.path == "/":
        await connection.send(answer(html("arrived", '<a class="secret" href="/in">x</a>')))
        return
    connection.site.count("secret_at_home", "letmein" in request.header("authorization"))
    await connection.send(
        moved(f"http://{connection.site.address('collector')}/collected", "Set-Cookie: mine=1; Path=/")
    )


@group.does("collector", "done", "a host that looks for secrets of others", path="/collected", rest="done")
async def collector(connection: ClientConnection, request: Request) -> None:
    leaked = [name for name, value in request.headers if "letmein" in value or "mine=1" in value]
    for name in leaked:
        connection.site.count(f"leaked_{name}", True)
    await connection.send(answer(PAGE))


@group.does("meta-refresh", "done", "a page that asks in its markup to go elsewhere, for ever")
async def meta_refresh(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(html("arrived", '<meta http-equiv="refresh" content="0; url=/">', links("/"))))
