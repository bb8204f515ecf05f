"""Canonical URLs: the one spelling under which an address is fetched, compared and remembered.

Addresses are read as browsers do (WHATWG, by ada). Most links on real pages are plain already, so
each entry point first tries a string path that answers only what ada would have answered; anything
with an escape, a dot segment or an odd character goes to ada.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import msgspec

from shoal.core.refusal import why
from shoal.core.task import Ask, digest
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

_TRACKING_GROUPS = ("utm_", "mtm_", "hsa_", "pk_campaign", "pk_kwd", "aspsessionid")
_TRACKING = frozenset((
    "_branch_match_id", "_ga", "_gac", "_gl", "_hsenc", "_hsmi", "_openstat", "asp.net_sessionid",
    "cftoken", "dclid", "ef_id", "epik", "fbclid", "gad_source", "gbraid", "gclid", "gclsrc",
    "guce_referrer", "guce_referrer_sig", "hsctatracking", "igsh", "igshid", "irclickid", "irgwc",
    "jsessionid", "li_fat_id", "mc_cid", "mc_eid", "mkt_tok", "msclkid", "oly_anon_id", "oly_enc_id",
    "oscsid", "phpsessid", "rb_clickid", "ref_src", "ref_url", "s_kwcid", "spm", "srsltid", "ttclid",
    "twclid", "vero_conv", "vero_id", "wbraid", "wickedid", "yclid", "ysclid", "zenid",
))  # fmt: skip
_SESSION = frozenset(("sid", "sess", "sessid", "session", "sessionid", "session_id"))
_random = re.compile(r"[0-9A-Fa-f]{16,}|(?=\D*\d)[0-9A-Za-z_-]{20,}").fullmatch
_session_path = re.compile(
    r";(?:jsessionid|phpsessid)=[^/;]*|;s(?:ess(?:ion)?)?_?id=[0-9a-f]{16,}(?=[/;]|$)|/\((?:[a-z]\([0-9a-z]+\))+\)(?=/)",
    re.IGNORECASE,
).sub


def canonical(url: str) -> str:
    """The canonical form of an absolute http or https URL; raises InvalidUrl."""
    url, mark, _ = url.partition("#")
    if "/." not in url and len(url) <= MAX_LENGTH and _plain_absolute(url):
        return url
    found = _fetchable(_read(url + mark))
    if found is None:
        raise InvalidUrl(f"{_shown(url)}: {problem(url + mark)}", hint=_hint(url))
    return found


def problem(text: str) -> str:
    """What keeps a text from being fetched, in a few words; empty if nothing does."""
    url, mark, _ = text.partition("#")
    parsed = _read(url + mark)
    if _fetchable(parsed) is not None:
        return ""
    size = max(len(url), len(parsed or ""))
    if size > MAX_LENGTH:
        return f"{size:,} characters long, at most {MAX_LENGTH:,} are allowed"
    return why(url, parsed)


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
        mark = ""
        if "#" in href:
            href, mark, _ = href.partition("#")
        url = self._plain(href)
        if url is not None and len(url) <= MAX_LENGTH and len(href) <= MAX_LENGTH:
            return url
        return self._any(href, mark)

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

    def _any(self, href: str, mark: str = "") -> str | None:
        return _fetchable(_read(href + mark, self.base)) if href.strip(_EDGES) else None


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


def request_digest(url: str, ask: Ask | None = None) -> bytes:
    """The identity of fetching a canonical URL: who asks counts, and how, but not by which way."""
    if ask is None:
        return digest("GET " + url)
    method = ask.method.upper()
    headers = sorted((name.lower(), value) for name, value in ask.headers if name.lower() != "referer")
    if method == "GET" and not (headers or ask.body or ask.session or ask.auth):
        return digest("GET " + url)
    told = (method, url, ask.session, ask.auth, headers, ask.body or b"")
    return digest(msgspec.json.encode(told).decode())


def other_scheme(href: str) -> bool:
    """True for links that are no web addresses by their own word (mailto:, javascript:, tel: …)."""
    href = href.lstrip(_EDGES)
    found = _scheme(href)
    return found is not None and found.group().lower() not in ("http:", "https:")


class Rewrite(msgspec.Struct, frozen=True):
    """Makes one of several canonical URLs that lead to the same page; false if it has nothing to do."""

    sort_query: bool = False  # by name; what has the same name keeps its order
    drop_tracking: bool = False  # also session ids

    def __bool__(self) -> bool:
        return self.sort_query or self.drop_tracking

    def __call__(self, url: str) -> str:
        # Again until nothing changes: without its neighbour an escape may become readable.
        while (changed := self._once(url)) != url:
            url = canonical(changed)
        return url

    def _once(self, url: str) -> str:
        at = url.index("/", 8)
        path, mark, query = url[at:].partition("?")
        if self.drop_tracking and (";" in path or "/(" in path):
            path = _session_path("", path)
        if query:
            parts = query.split("&")
            if self.drop_tracking:
                parts = [part for part in parts if not is_tracking(part)]
            if self.sort_query:
                parts.sort(key=_name_of)
            query = "&".join(parts)
            mark = "?" if parts else ""
        return url[:at] + path + mark + query


def is_tracking(part: str) -> bool:
    """Whether a part of a query says who follows a link, or from where, but not where to."""
    name, _, value = part.partition("=")
    name = name.lower()
    if name in _TRACKING or name.startswith(_TRACKING_GROUPS):
        return True
    return name in _SESSION and _random(value) is not None


@cache
def _ada() -> Callable[..., str]:
    from ada_url import URL  # late: most runs of most commands never need it

    def parse(*args: str) -> str:
        href: str = URL(*args).href
        return href

    return parse


def _read(text: str, *base: str) -> str | None:
    """What the parser makes of a text that ends where its fragment begins, if it has one.

    The "#" is parsed along: a space before it is part of the address, one at the end is not.
    """
    if len(text.removesuffix("#")) > MAX_LENGTH:
        return None
    found = _parse(text, *base)
    return found and found.removesuffix("#")


def _parse(*args: str) -> str | None:
    try:
        return _ada()(*args)
    except UnicodeEncodeError:
        # Halves of surrogate pairs are joined, or replaced where they stand alone, as browsers do.
        return _parse(*(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in args))
    except ValueError:
        return None


def _fetchable(parsed: str | None) -> str | None:
    """The canonical form of a parsed URL, None for what is not to be fetched."""
    if parsed is None or not parsed.startswith(("http://", "https://")):
        return None
    if "@" in parsed[: parsed.index("/", 8)]:
        return None
    parsed = _normal_escapes(parsed)
    return parsed if len(parsed) <= MAX_LENGTH else None


def _normal_escapes(url: str) -> str:
    """Decode escapes of unreserved characters and write the others in upper case."""
    # Next to a stray "%", decoding could make a new escape out of two halves; leave such URLs alone.
    if "%" not in url or _stray_percent(url):
        return url
    return _escape.sub(_normal_escape, url)


def _normal_escape(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _name_of(part: str) -> str:
    return part.partition("=")[0]


def _ladder(directory: str, root: int) -> list[str]:
    """A directory and those above it, up to the root of the site."""
    steps = [directory]
    while len(directory) > root:
        directory = directory[: directory.rindex("/", 0, -1) + 1]
        steps.append(directory)
    return steps


def _shown(url: str) -> str:
    if _may_tell(url):
        return "an address with a user name"
    return repr(url if len(url) <= 200 else url[:200] + "…")


def _hint(url: str) -> str:
    if len(url) > MAX_LENGTH:
        return "Shorten it; no server can be relied on to take longer ones."
    if _may_tell(url):
        return "Take user name and password out: addresses are stored and shown. Name a secret by auth."
    return "Write the address in full, like https://example.com/page."


def _may_tell(url: str) -> bool:
    """Whether a password may stand in it."""
    return "@" in url and not other_scheme(url)
