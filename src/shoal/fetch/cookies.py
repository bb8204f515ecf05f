"""CookieJar: a bounded jar by RFC 6265bis, and one per session. Pure: the caller brings the time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from shoal.fetch.cookie_date import parse_cookie_date

MAX_COOKIE = 4_096  # bytes of name and value together
MAX_ATTRIBUTE = 1_024
MAX_PER_DOMAIN = 50
MAX_COOKIES = 3_000
MAX_SESSIONS = 1_000
MAX_LIFETIME = 400 * 86_400  # seconds that a cookie may ask to be kept
_WHITESPACE = " \t"
_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search  # all but the tab
_integer = re.compile(r"-?[0-9]+").fullmatch
_Key = tuple[str, str]  # name and path; those of one domain are kept together


class Cookie(msgspec.Struct, frozen=True):
    name: str
    value: str
    domain: str
    path: str
    host_only: bool
    secure: bool
    expires: float | None  # None: as long as the run
    order: int  # of its first coming

    def matches_request(self, host: str, path: str, secure: bool, now: float) -> bool:
        return (
            (not self.host_only or host == self.domain)
            and (secure or not self.secure)
            and (self.expires is None or self.expires > now)
            and _path_matches(path, self.path)
        )

    @property
    def text(self) -> str:
        return f"{self.name}={self.value}" if self.name else self.value


class CookieJar:
    """The cookies of one session."""

    def __init__(self) -> None:
        self._domains: dict[str, dict[_Key, Cookie]] = {}
        self._count = 0
        self._order = 0

    def __len__(self) -> int:
        return self._count

    def header(self, url: str, now: float) -> str:
        """What to send in the Cookie header of a request for `url`; empty if nothing."""
        if not self._domains:
            return ""
        secure, host, path = _request_parts(url)
        found = [
            cookie
            for domain in _domain_and_parents(host)
            if domain in self._domains
            for cookie in self._domains[domain].values()
            if cookie.matches_request(host, path, secure, now)
        ]
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.order))
        return "; ".join(cookie.text for cookie in found)

    def store(self, url: str, lines: Iterable[str], now: float) -> None:
        """Keep what the Set-Cookie values of an answer from `url` ask for, as far as they may."""
        for line in lines:
            cookie = self.parse_set_cookie(url, line, now)
            if cookie is not None:
                self.set_cookie(cookie, now)

    def parse_set_cookie(self, url: str, line: str, now: float) -> Cookie | None:
        """The cookie that a Set-Cookie value asks for, None where it must be left out."""
        secure, host, path = _request_parts(url)
        cookie = _parse(line, secure, host, path, now)
        return cookie if cookie is not None and not self._shadows_secure(cookie, secure) else None

    def existing(self, cookie: Cookie) -> Cookie | None:
        """The one that it would replace."""
        return self._domains.get(cookie.domain, {}).get((cookie.name, cookie.path))

    def all(self) -> Iterable[Cookie]:
        return self

    def put(self, cookies: Iterable[Cookie], now: float) -> None:
        for cookie in cookies:
            self.set_cookie(cookie, now)

    def __iter__(self) -> Iterator[Cookie]:
        """All of them, the oldest first."""
        found = [cookie for cookies in self._domains.values() for cookie in cookies.values()]
        return iter(sorted(found, key=lambda cookie: cookie.order))

    def set_cookie(self, cookie: Cookie, now: float) -> None:
        """Put it in the place of one like it; one that has expired only takes that away."""
        key = (cookie.name, cookie.path)
        before = self._remove(cookie.domain, key)
        if cookie.expires is not None and cookie.expires <= now:
            return
        self._order += 1
        order = before.order if before is not None else self._order
        self._domains.setdefault(cookie.domain, {})[key] = msgspec.structs.replace(cookie, order=order)
        self._count += 1
        if len(self._domains[cookie.domain]) > MAX_PER_DOMAIN:
            self._evict(cookie.domain, now)
        if self._count > MAX_COOKIES:
            self._evict("", now)

    def _remove(self, domain: str, key: _Key) -> Cookie | None:
        kept = self._domains.get(domain, {})
        cookie = kept.pop(key, None)
        if cookie is not None:
            self._count -= 1
            if not kept:
                del self._domains[domain]
        return cookie

    def _evict(self, domain: str, now: float) -> None:
        """Drop what has expired; if that is nothing, the oldest. Of one domain, or of all."""
        domains = [domain] if domain else list(self._domains)
        cookies = [cookie for name in domains for cookie in self._domains[name].values()]
        gone = [cookie for cookie in cookies if cookie.expires is not None and cookie.expires <= now]
        for cookie in gone or [min(cookies, key=lambda cookie: cookie.order)]:
            self._remove(cookie.domain, (cookie.name, cookie.path))

    def _shadows_secure(self, cookie: Cookie, secure: bool) -> bool:
        """Over plain http nobody may replace or hide a cookie that was set to be secure."""
        if secure:
            return False
        return any(
            kept.secure and kept.name == cookie.name and _path_matches(cookie.path, kept.path)
            for domain, cookies in self._domains.items()
            if _domain_matches(domain, cookie.domain) or _domain_matches(cookie.domain, domain)
            for kept in cookies.values()
        )


class CookieJars:
    """Jars by name; the one not asked for longest is forgotten first. The nameless one always stays."""

    def __init__(self) -> None:
        self._default = CookieJar()
        self._named: dict[str, CookieJar] = {}

    def jar(self, name: str) -> CookieJar:
        if not name:
            return self._default
        jar = self._named.pop(name, None)
        if jar is None:
            jar = CookieJar()
        self._named[name] = jar  # the most recent stands last
        if len(self._named) > MAX_SESSIONS:
            del self._named[next(iter(self._named))]
        return jar

    def items(self) -> Iterator[tuple[str, CookieJar]]:
        yield "", self._default
        yield from list(self._named.items())


def _parse(line: str, secure: bool, host: str, path: str, now: float) -> Cookie | None:
    """The cookie of a Set-Cookie value, None where it must be left out."""
    if _control(line):
        return None
    pair, _, rest = line.partition(";")
    name, equals, value = pair.partition("=")
    if not equals:
        name, value = "", pair
    name, value = name.strip(_WHITESPACE), value.strip(_WHITESPACE)
    if not (name or value) or len(name.encode()) + len(value.encode()) > MAX_COOKIE:
        return None
    attributes = _attributes(rest)
    domain, host_only = _domain(attributes.get("domain", ""), host)
    has_path = attributes.get("path", "").startswith("/")
    cookie = Cookie(
        name=name,
        value=value,
        domain=domain,
        path=attributes["path"] if has_path else _default_path(path),
        host_only=host_only,
        secure="secure" in attributes,
        expires=_expiry(attributes, now),
        order=0,
    )
    allowed = domain and (secure or not cookie.secure) and _prefix_rules_met(cookie, has_path)
    return cookie if allowed else None


def _attributes(text: str) -> dict[str, str]:
    """Attributes by name in lower case; the last of a kind counts."""
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        value = value.strip(_WHITESPACE)
        if len(value) <= MAX_ATTRIBUTE:
            found[name.strip(_WHITESPACE).lower()] = value
    return found


def _domain(wanted: str, host: str) -> tuple[str, bool]:
    """The domain of a cookie and whether it is for that host alone; an empty one is refused."""
    wanted = wanted.removeprefix(".").lower()
    if not wanted or wanted == host:
        # A host that is a public suffix itself may have cookies, but only for itself.
        return host, not wanted or _is_ip_address(host) or _is_public_suffix(host)
    if not wanted.isascii():
        wanted = _ascii(wanted)
    if not _domain_matches(host, wanted) or _is_public_suffix(wanted):
        return "", True
    return wanted, False


def _ascii(domain: str) -> str:
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain


def _expiry(attributes: dict[str, str], now: float) -> float | None:
    age = attributes.get("max-age", "")
    if _integer(age):
        seconds = int(age) if len(age) < 20 else 0 if age[0] == "-" else MAX_LIFETIME
        return now + min(seconds, MAX_LIFETIME) if seconds > 0 else 0.0
    expires = parse_cookie_date(attributes.get("expires", "")) if "expires" in attributes else None
    return None if expires is None else min(expires, now + MAX_LIFETIME)


def _prefix_rules_met(cookie: Cookie, has_path: bool) -> bool:
    """Names that promise something: browsers read them in any case."""
    name = (cookie.name or cookie.value).lower()
    if not name.startswith(("__host-", "__secure-")):
        return True
    if not cookie.name or not cookie.secure:
        return False
    return name.startswith("__secure-") or (cookie.host_only and has_path and cookie.path == "/")


def _request_parts(url: str) -> tuple[bool, str, str]:
    """Whether it is secure, the host and the path of a URL."""
    parts = urlsplit(url)
    return parts.scheme == "https", (parts.hostname or "").rstrip("."), parts.path or "/"


def _domain_and_parents(host: str) -> list[str]:
    """The host and the domains above it."""
    if _is_ip_address(host):
        return [host]
    labels = host.split(".")
    return [".".join(labels[first:]) for first in range(len(labels))]


def _domain_matches(host: str, domain: str) -> bool:
    return host == domain or (host.endswith("." + domain) and not _is_ip_address(host))


def _path_matches(path: str, wanted: str) -> bool:
    if path == wanted:
        return True
    return path.startswith(wanted) and (wanted.endswith("/") or path[len(wanted)] == "/")


def _default_path(path: str) -> str:
    return path[: path.rindex("/")] or "/" if path.startswith("/") else "/"


def _is_ip_address(host: str) -> bool:
    if ":" in host:
        return True
    if not host[-1:].isdigit():
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_public_suffix(domain: str) -> bool:
    return bool(_public_suffix_list().is_public(domain))


@cache
def _public_suffix_list() -> Any:
    from publicsuffixlist import PublicSuffixList  # late: reading the list takes a moment

    return PublicSuffixList()
