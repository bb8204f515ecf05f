"""Host patterns: a host as lanes are written, "*.example.com" for all below it, or "*" for every host."""

from __future__ import annotations

from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl


def host_pattern(text: str) -> str:
    """A pattern in its canonical form; raises InvalidUrl for what is none."""
    if text == "*":
        return text
    star = "*." if text.startswith("*.") else ""
    name = text.removeprefix("*.")
    if not name or set(name) & set("/?#@*\\"):
        raise InvalidUrl(f"{text!r} is not a host name", hint='Write "example.com", "*.example.com" or "*".')
    return star + lane_of(canonical(f"{'https' if name.endswith(':443') else 'http'}://{name}/"))


def covers_host(pattern: str, other: str) -> bool:
    """Whether a pattern matches every host that another matches; a host is a pattern of itself alone."""
    return pattern in ("*", other) or (pattern[:2] == "*." and other != "*" and other.endswith(pattern[1:]))


def host_matches(pattern: str, netloc: str) -> bool:
    """Whether "shop.example", "*.shop.example" or "shop.example:8443" means this host and port."""
    host, colon, port = netloc.rpartition(":")
    if not colon or not port.isdecimal():
        host = netloc
    wanted = netloc if pattern.rpartition(":")[2].isdecimal() and ":" in pattern else host
    if pattern.startswith("*."):
        return wanted.endswith(pattern[1:])
    return wanted == pattern
