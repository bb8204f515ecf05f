"""Canonical URLs: the one spelling under which an address is fetched, compared and remembered.

Addresses are read as browsers do (WHATWG, by ada). Most links on real pages are plain already, so
each entry point first tries a string path that answers only what ada would have answered; anything
with an escape, a dot segment or an odd character goes to ada.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from shoal.core.task import digest
from shoal.errors import InvalidUrl

MAX_LENGTH = 8_192

_LABEL = r"(?!xn--)[a-z0-9_-]+"
_NAME = rf"(?:{_LABEL}\.)*(?!xn--)[a-z][a-z0-9_-]*"  # a last label of digits would be an IPv4 address
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HOST = rf"(?:{_NAME}|{_OCTET}(?:\.{_OCTET}){{3}})"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4})"
_ROOT = rf"(?:http://{_HOST}(?::(?!80/){_PORT})?|https://{_HOST}(?::(?!443/){_PORT})?)/"
# Exactly the characters that WHATWG leaves alone; "%" is missing because escapes are normalised.
_PLAIN = r"[A-Za-z0-9\-._~!$&()*+,;=:@/\[\]|']*(?:\?[A-Za-z0-9\-._~!$&()*+,;=:@/\[\]|?]*)?"

_plain = re.compile(_PLAIN).fullmatch
_plain_absolute = re.compile(_ROOT + _PLAIN).fullmatch
_escape = re.compile(r"%([0-9A-Fa-f]{2})")
_stray_percent = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:").match
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_EDGES = "".join(map(chr, range(33)))  # what WHATWG strips from both ends

_NOT_HERE = "/?\\" + _EDGES  # beginnings of links that are not relative to the directory of a page
_MAY_NAME_HOST = frozenset("/\\" + _EDGES)  # after a "/"; tabs and newlines count as not there

_IN_FULL = "Write the address in full, like https://example.com/page."


def canonical(url: str) -> str:
    """The canonical form of an absolute http or https URL; raises InvalidUrl."""
    url = url.partition("#")[0]
    if len(url) > MAX_LENGTH:
        raise _too_long(url)
    if "/." not in url and _plain_absolute(url):
        return url
    parsed = _parse(url)
    if parsed is None:
        raise _unreadable(url)
    if not parsed.startswith(("http://", "https://")):
        scheme = parsed.partition(":")[0]
        raise InvalidUrl(f"cannot fetch {_shown(url)}: {scheme}: is not http or https", hint=_IN_FULL)
    if "@" in parsed[: parsed.index("/", 8)]:
        raise InvalidUrl(
            f"the address of {host_of(parsed)} carries a user name or password",
            hint="Take them out: addresses are stored and shown to people. Send an Authorization header.",
        )
    parsed = _normal_escapes(parsed)
    if len(parsed) > MAX_LENGTH:
        raise _too_long(parsed)
    return parsed


def resolve(base: str, href: str) -> str | None:
    """The canonical URL a link leads to, or None where it leads nowhere fetchable."""
    return Resolver(base).resolve(href)


class Resolver:
    """Resolves the links of one page; raises InvalidUrl if `base` is not a fetchable address."""

    __slots__ = ("_directory", "_ladder", "_page", "base", "origin")

    def __init__(self, base: str) -> None:
        self.base = base = canonical(base)
        self.origin = base[: base.index("/", 8)]
        self._page = base.partition("?")[0]
        self._directory = self._page[: self._page.rindex("/") + 1]
        self._ladder: list[str] | None = None

    def __repr__(self) -> str:
        return f"Resolver({self.base!r})"

    def resolve(self, href: str) -> str | None:
        """The canonical URL of a link, or None (fragment only, other scheme, invalid)."""
        if "#" in href:
            href = href.partition("#")[0]
        url = self._plain(href)
        if url is not None and len(url) <= MAX_LENGTH and len(href) <= MAX_LENGTH:
            return url
        return self._any(href)

    def _plain(self, href: str) -> str | None:
        """The answer for hrefs that need no parsing, None for all others."""
        first = href[:1]
        if first == "." and href.startswith("../"):
            return self._upwards(href)
        if "/." in href:
            return None
        if first == "/":
            if href[1:2] != "/":
                return self.origin + href if _plain(href) else None
            href = self.origin[: self.origin.index("/")] + href
            return href if _plain_absolute(href) else None
        if ":" in href:
            return href if first == "h" and _plain_absolute(href) else None
        if not first or first == "." or not _plain(href):
            return None
        return (self._page if first == "?" else self._directory) + href

    def paths(self, hrefs: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each link that stays on the page's origin, and the same as a rooted link.

        Nothing is parsed: this is for looking links up among rooted links known before. A path
        that would name a host if written as a link ("//x") is left out.
        """
        root = len(self.origin)
        here = self._directory[root:]
        whole = self.origin + "/"
        for href in hrefs:
            if href[:1] == "/":
                path = href
            elif href[:3] == "../":
                directory, rest = self._climb(href)
                path = directory[root:] + rest
            elif href[:1] not in _NOT_HERE and ":" not in href:
                path = here + href
            elif href.startswith(whole):
                path = href[root:]
            else:
                continue
            if path[1:2] not in _MAY_NAME_HOST:
                yield href, path

    def _climb(self, href: str) -> tuple[str, str]:
        """The directory that a link beginning with "../" climbs to, and what is left of the link."""
        if self._ladder is None:
            self._ladder = _ladder(self._directory, len(self.origin) + 1)
        steps = 0
        while href.startswith("../", 3 * steps):
            steps += 1
        return self._ladder[min(steps, len(self._ladder) - 1)], href[3 * steps :]

    def _upwards(self, href: str) -> str | None:
        directory, rest = self._climb(href)
        if rest[:1] == "." or "/." in rest or not _plain(rest):
            return None
        return directory + rest

    def _any(self, href: str) -> str | None:
        if len(href) > MAX_LENGTH or not href.strip(_EDGES):
            return None
        url = _parse(href, self.base)
        if url is None or not url.startswith(("http://", "https://")):
            return None
        url = _normal_escapes(url)
        return None if len(url) > MAX_LENGTH or "@" in url[: url.index("/", 8)] else url


def host_of(url: str) -> str:
    """The host of a canonical URL, IPv6 in brackets."""
    lane = lane_of(url).rpartition("@")[2]
    return lane if lane[-1:] == "]" or ":" not in lane else lane[: lane.rindex(":")]


def lane_of(url: str) -> str:
    """The lane of a canonical URL: its host, with the port where it is not the scheme's own."""
    start = 8 if url[4] == "s" else 7
    return url[start : url.index("/", start)]


def path_of(url: str) -> str:
    """Path and query of a canonical URL."""
    return url[url.index("/", 8) :]


def request_digest(url: str) -> bytes:
    """The identity of fetching a canonical URL."""
    return digest("GET " + url)


def other_scheme(href: str) -> bool:
    """True for links that are no web addresses by their own word (mailto:, javascript:, tel: …)."""
    href = href.lstrip(_EDGES)
    found = _scheme(href)
    return found is not None and found.group().lower() not in ("http:", "https:")


@cache
def _ada() -> Callable[..., str]:
    from ada_url import URL  # late: most runs of most commands never need it

    def parse(*args: str) -> str:
        href: str = URL(*args).href
        return href

    return parse


def _parse(*args: str) -> str | None:
    try:
        return _ada()(*args)
    except ValueError:  # also UnicodeEncodeError: half a surrogate pair is no text
        return None


def _normal_escapes(url: str) -> str:
    """Decode escapes of unreserved characters and write the others in upper case."""
    # Next to a stray "%", decoding could make a new escape out of two halves; leave such URLs alone.
    if "%" not in url or _stray_percent(url):
        return url
    return _escape.sub(_normal_escape, url)


def _normal_escape(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _ladder(directory: str, root: int) -> list[str]:
    """A directory and those above it, up to the root of the site."""
    steps = [directory]
    while len(directory) > root:
        directory = directory[: directory.rindex("/", 0, -1) + 1]
        steps.append(directory)
    return steps


def _shown(url: str) -> str:
    return repr(url if len(url) <= 200 else url[:200] + "…")


def _too_long(url: str) -> InvalidUrl:
    return InvalidUrl(
        f"the address {url[:80]!r}… has {len(url):,} characters, at most {MAX_LENGTH:,} are allowed",
        hint="Shorten it; no server can be relied on to take longer ones.",
    )


def _unreadable(url: str) -> InvalidUrl:
    text = url.strip(_EDGES)
    if not text:
        return InvalidUrl("an empty address", hint=_IN_FULL)
    if not _scheme(text):
        return InvalidUrl(f"{_shown(text)} has no http:// or https:// in front", hint=_IN_FULL)
    if "@" in text:  # it may hold a password: do not repeat it
        return InvalidUrl("not an address: its user name, host or port cannot be read", hint=_IN_FULL)
    return InvalidUrl(f"not an address: {_shown(text)}", hint="Check its host name and port.")
