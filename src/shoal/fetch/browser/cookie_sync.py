"""CookieSync: the cookies of a browser context and of the session that plain requests share with it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shoal.fetch.base import SessionCookies
from shoal.fetch.cookies import Cookie

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

_Key = tuple[str, str, str]  # domain, path, name


class CookieSync:
    """Only what has changed since the last time is passed on, either way."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._known: dict[_Key, Cookie] = {}  # as both had them after the last time

    async def to_browser(self, cookies: SessionCookies) -> None:
        from playwright.async_api import Error

        now = time.time()
        ours = {_key(one): one for one in cookies.all() if one.name and (one.expires is None or one.expires > now)}
        changed = [one for key, one in ours.items() if not _same(one, self._known.get(key))]
        for key in self._known.keys() - ours.keys():
            gone = self._known[key]
            await self._context.clear_cookies(name=gone.name, path=gone.path, domain=_shown_domain(gone))
        for one in changed:
            with contextlib.suppress(Error):  # browsers are stricter than we are: one that they refuse is left out
                await self._context.add_cookies([_to_playwright(one)])  # type: ignore[list-item]
        self._known = ours

    async def to_session(self, cookies: SessionCookies) -> None:
        theirs = {_key(one): one for one in map(_from_playwright, await self._context.cookies())}
        changed = [one for key, one in theirs.items() if not _same(one, self._known.get(key))]
        changed += [replace(self._known[key], expires=0.0) for key in self._known.keys() - theirs.keys()]
        if changed:
            cookies.put(changed, time.time())
        self._known = theirs


def _key(cookie: Cookie) -> _Key:
    return cookie.domain, cookie.path, cookie.name


def _same(one: Cookie, other: Cookie | None) -> bool:
    if other is None or (one.value, one.secure, one.host_only) != (other.value, other.secure, other.host_only):
        return False
    if one.expires is None or other.expires is None:
        return one.expires == other.expires
    return abs(one.expires - other.expires) < 2.0  # browsers round it


def _shown_domain(cookie: Cookie) -> str:
    return cookie.domain if cookie.host_only else f".{cookie.domain}"


def _to_playwright(cookie: Cookie) -> dict[str, Any]:
    found: dict[str, Any] = {"name": cookie.name, "value": cookie.value, "domain": _shown_domain(cookie)}
    found |= {"path": cookie.path, "secure": cookie.secure}
    return found if cookie.expires is None else found | {"expires": cookie.expires}


def _from_playwright(cookie: Any) -> Cookie:
    domain, expires = cookie["domain"], cookie.get("expires", -1)
    return Cookie(
        name=cookie["name"],
        value=cookie["value"],
        domain=domain.removeprefix("."),
        path=cookie["path"],
        host_only=not domain.startswith("."),
        secure=bool(cookie.get("secure")),
        expires=None if expires < 0 else float(expires),
        order=0,
    )
