"""Cookies: too many, too big, and meant for others."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, html, links

group = Group("cookies")
SECOND = html("cookies", links("/second"))


group.says(
    "cookies-100000", "too_large", "100,000 cookies", answer(SECOND, *[f"Set-Cookie: c{n}=1" for n in range(100_000)])
)


def _picky(name: str, why: str, *lines: str, most: int = 4_200) -> None:
    @group.does(name, "done", why, rest="done")
    async def set_cookie(connection: ClientConnection, request: Request) -> None:
        if len(request.header("cookie")) > most:
            await connection.send(answer("", status="400 Cookies Too Large"))
        else:
            await connection.send(answer(SECOND, *lines))


_picky("cookie-100k", "a cookie of 100 KB; the next request must not carry it", "Set-Cookie: big=" + "x" * 100_000)
_picky(
    "cookies-400",
    "400 cookies of 500 bytes; the next request must stay small",
    *[f"Set-Cookie: c{n}={'x' * 500}" for n in range(400)],
    most=64_000,
)
_picky("cookie-control", "a cookie with control characters", "Set-Cookie: odd=\x01\x1f; Path=/", most=0)
_picky(
    "cookie-for-all",
    "cookies for every host there is",
    "Set-Cookie: spy=1; Domain=127.0.2.1; Path=/",
    "Set-Cookie: spy=2; Domain=.1; Path=/",
    "Set-Cookie: spy=3; Domain=1",
    "Set-Cookie: spy=4; Domain=0.2.1",
    most=0,
)
_picky(
    "cookie-dates",
    "cookies with dates beyond all calendars",
    "Set-Cookie: a=1; Expires=Thu, 99 Foo 99999 99:99:99 GMT",
    "Set-Cookie: b=1; Max-Age=" + "9" * 400,
    "Set-Cookie: c=1; Max-Age=-" + "9" * 400,
)
