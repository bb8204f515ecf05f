"""Identity: who a site takes us for: cookies, headers, what a browser keeps; for the hosts of its session alone."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from shoal.core.host_pattern import host_matches
from shoal.core.session import identity_key
from shoal.core.session_options import SessionOptions
from shoal.fetch.cookies import Cookie, CookieJar
from shoal.fetch.shared_cookies import is_change

MAX_HEADERS = 20
MAX_ORIGINS = 20
MAX_STORAGE = 200_000  # letters of what one origin keeps in a browser

Headers = tuple[tuple[str, str], ...]
Storage = dict[str, dict[str, str]]  # by origin, what its scripts keep


class IdentityValues(msgspec.Struct, frozen=True, omit_defaults=True):
    """An identity as it is sealed."""

    id: str
    cookies: tuple[Cookie, ...] = ()
    headers: Annotated[Headers, msgspec.Meta(max_length=MAX_HEADERS)] = ()  # that the login gave
    storage: Annotated[Storage, msgspec.Meta(max_length=MAX_ORIGINS)] = {}


class Identity:
    def __init__(self, options: SessionOptions, values: IdentityValues, now: float) -> None:
        self.options = options
        self.id = values.id
        self.headers: Headers = values.headers
        self.storage: Storage = dict(values.storage)
        self._jar = CookieJar()
        self._changed: dict[tuple[str, str, str], Cookie] = {}  # not shared yet
        self._jar.put((one for one in values.cookies if self._is_ours(one)), now)

    @classmethod
    def new(cls, options: SessionOptions) -> Identity:
        return cls(options, IdentityValues(secrets.token_hex(8)), 0.0)

    @property
    def key(self) -> str:
        """What keeps something for it knows it by: its connections, its proxy or circuit, its browser context."""
        return identity_key(self.options.name, self.id)

    def values(self) -> IdentityValues:
        return IdentityValues(self.id, tuple(self._jar), self.headers, self.storage)

    def headers_for(self, url: str) -> Headers:
        """Of every request to one of its hosts."""
        return self.options.headers + self.headers if self.options.covers(url) else ()

    def refresh(self, values: IdentityValues, now: float) -> None:
        """What others have heard; what is not shared yet stays."""
        self.headers, self.storage = values.headers, dict(values.storage)
        self._jar = CookieJar()
        self._jar.put((one for one in values.cookies if self._is_ours(one)), now)
        self._jar.put(self._changed.values(), now)

    @property
    def has_news(self) -> bool:
        return bool(self._changed)

    def take_news(self) -> tuple[Cookie, ...]:
        news, self._changed = tuple(self._changed.values()), {}
        return news

    def bring_back(self, news: Iterable[Cookie]) -> None:
        """They could not be shared now."""
        self._changed = {_key(one): one for one in news} | self._changed

    # As a jar

    def header(self, url: str, now: float) -> str:
        return self._jar.header(url, now) if self.options.covers(url) else ""

    def store(self, url: str, lines: Iterable[str], now: float) -> None:
        if self.options.covers(url):
            self._add((self._jar.parse_set_cookie(url, line, now) for line in lines), now)

    def all(self) -> Iterable[Cookie]:
        return self._jar

    def put(self, cookies: Iterable[Cookie], now: float) -> None:
        self._add((one for one in cookies if self._is_ours(one)), now)

    def _add(self, cookies: Iterable[Cookie | None], now: float) -> None:
        for cookie in cookies:
            if cookie is not None and is_change(cookie, self._jar.existing(cookie)):
                self._jar.set_cookie(cookie, now)
                self._changed[_key(cookie)] = cookie

    def _is_ours(self, cookie: Cookie) -> bool:
        """Whether one of its hosts may have set it: cookies know no ports, and those of a domain are for all below."""
        patterns = [_without_port(pattern) for pattern in self.options.hosts]
        return any(
            host_matches(pattern, cookie.domain) or pattern.removeprefix("*").endswith(f".{cookie.domain}")
            for pattern in (*patterns, *(f".{pattern}" for pattern in patterns))
        )


def with_news(values: IdentityValues, news: Iterable[Cookie], now: float) -> IdentityValues:
    """What is kept of an identity, with what one worker has heard since."""
    jar = CookieJar()
    jar.put(values.cookies, now)
    jar.put(news, now)
    return msgspec.structs.replace(values, cookies=tuple(jar))


def storage_within(storage: Mapping[str, Mapping[str, str]], options: SessionOptions) -> Storage:
    """What a browser keeps for the hosts of a session, as far as there is room for it."""
    found: Storage = {}
    for origin, items in storage.items():
        size = sum(len(name) + len(value) for name, value in items.items())
        if items and size <= MAX_STORAGE and len(found) < MAX_ORIGINS and options.covers(f"{origin}/"):
            found[origin] = dict(items)
    return found


def _without_port(pattern: str) -> str:
    host, colon, port = pattern.rpartition(":")
    return host if colon and port.isdecimal() else pattern


def _key(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name
