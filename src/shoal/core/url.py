"""Canonical URLs: the one spelling under which a URL is fetched, compared and remembered.

URLs are parsed as browsers do (WHATWG, by ada). Most links on real pages are plain already, so
each entry point first tries a string path that answers only what ada would have answered; anything
with an escape, a dot segment or an odd character goes to ada.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from ipaddress import ip_address

import msgspec

from shoal.core.task import RequestOptions, digest
from shoal.core.url_problem import explain_invalid_url
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
_STRIPPED_CHARACTERS = "".join(map(chr, range(33)))  # what WHATWG strips from both ends

# Beginnings of links that are not relative to the directory of a page.
_NOT_RELATIVE = "/?\\" + _STRIPPED_CHARACTERS
_MAY_NAME_HOST = frozenset("/\\" + _STRIPPED_CHARACTERS)  # after a "/"; tabs and newlines count as not there

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
        raise InvalidUrl(f"{_display(url)}: {problem(url + mark)}", hint=_hint(url))
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
    return explain_invalid_url(url, parsed)


def resolve(base: str, href: str) -> str | None:
    """The canonical URL a link leads to, or None where it leads nowhere fetchable."""
    return Resolver(base).resolve(href)


class Resolver:
    """Resolves the links of one page; raises InvalidUrl if `base` is not a fetchable URL."""

    __slots__ = ("_page", "_parent_directories", "base", "directory", "origin")

    def __init__(self, base: str) -> None:
        self.base = base = canonical(base)
        self.origin = base[: base.index("/", 8)]
        self._page = base.partition("?")[0]
        self.directory = self._page[: self._page.rindex("/") + 1]
        self._parent_directories: list[str] | None = None

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
        return self._parsed(href, mark)

    def _plain(self, href: str) -> str | None:
        """The answer for hrefs that need no parsing, None for all others."""
        first = href[:1]
        if first == "." and href.startswith("../"):
            return self._plain_parent_link(href)
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
        return (self._page if first == "?" else self.directory) + href

    def paths(self, hrefs: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each link that stays on the page's origin, and the same as a rooted link.

        Nothing is parsed: this is for looking links up among rooted links known before. A path
        that would name a host if written as a link ("//x") is left out.
        """
        root = len(self.origin)
        here = self.directory[root:]
        whole = self.origin + "/"
        for href in hrefs:
            if href[:1] == "/":
                path = href
            elif href[:3] == "../":
                directory, rest = self._resolve_parent(href)
                path = directory[root:] + rest
            elif href[:1] not in _NOT_RELATIVE and ":" not in href:
                path = here + href
            elif href.startswith(whole):
                path = href[root:]
            else:
                continue
            if path[1:2] not in _MAY_NAME_HOST:
                yield href, path

    def _resolve_parent(self, href: str) -> tuple[str, str]:
        """The directory that a link beginning with "../" climbs to, and what is left of the link."""
        if self._parent_directories is None:
            self._parent_directories = _parent_directories(self.directory, len(self.origin) + 1)
        steps = 0
        while href.startswith("../", 3 * steps):
            steps += 1
        return self._parent_directories[min(steps, len(self._parent_directories) - 1)], href[3 * steps :]

    def _plain_parent_link(self, href: str) -> str | None:
        directory, rest = self._resolve_parent(href)
        if rest[:1] == "." or "/." in rest or not _plain(rest):
            return None
        return directory + rest

    def _parsed(self, href: str, mark: str = "") -> str | None:
        return _fetchable(_read(href + mark, self.base)) if href.strip(_STRIPPED_CHARACTERS) else None


def host_of(url: str) -> str:
    """The host of a canonical URL, IPv6 in brackets."""
    lane = lane_of(url).rpartition("@")[2]
    return lane if lane[-1:] == "]" or ":" not in lane else lane[: lane.rindex(":")]


def is_loopback_host(host: str) -> bool:
    """Whether a host is this machine for certain; names below .localhost are not: some resolvers ask the network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def lane_of(url: str) -> str:
    """The lane of a canonical URL: its host, with the port where it is not the scheme's own."""
    start = 8 if url[4] == "s" else 7
    return url[start : url.index("/", start)]


def path_of(url: str) -> str:
    """Path and query of a canonical URL."""
    return url[url.index("/", 8) :]


def request_digest(url: str, request_options: RequestOptions | None = None) -> bytes:
    """The identity of fetching a canonical URL: who asks counts, and how, but not by which way."""
    if request_options is None:
        return digest("GET " + url)
    method = request_options.method.upper()
    headers = sorted((name.lower(), value) for name, value in request_options.headers if name.lower() != "referer")
    options, steps = request_options, request_options.steps
    if method == "GET" and not (headers or options.body or options.session or options.auth or steps):
        return digest("GET " + url)
    identity = (method, url, options.session, options.auth, headers, options.body or b"", *([steps] if steps else []))
    return digest(msgspec.json.encode(identity).decode())


def has_other_scheme(href: str) -> bool:
    """True for links that are not web URLs by their own word (mailto:, javascript:, tel: …)."""
    href = href.lstrip(_STRIPPED_CHARACTERS)
    found = _scheme(href)
    return found is not None and found.group().lower() not in ("http:", "https:")


class UrlNormalizer(msgspec.Struct, frozen=True):
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
                parts.sort(key=lambda part: part.partition("=")[0])
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

    The "#" is parsed along: a space before it is part of the URL, one at the end is not.
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


def _parent_directories(directory: str, root: int) -> list[str]:
    """A directory and those above it, up to the root of the site."""
    steps = [directory]
    while len(directory) > root:
        directory = directory[: directory.rindex("/", 0, -1) + 1]
        steps.append(directory)
    return steps


def _display(url: str) -> str:
    if _may_contain_password(url):
        return "a URL with a user name"
    return repr(url if len(url) <= 200 else url[:200] + "…")


def _hint(url: str) -> str:
    if len(url) > MAX_LENGTH:
        return "Shorten it; servers may refuse longer ones."
    if _may_contain_password(url):
        return "Remove user name and password: URLs are stored and shown. Name a secret with auth."
    return "Write the URL in full, like https://example.com/page."


def _may_contain_password(url: str) -> bool:
    """Whether a password may stand in it."""
    return "@" in url and not has_other_scheme(url)
