"""Why a text is not a URL that can be fetched, in a few words for the person who wrote it."""

from __future__ import annotations

import re

_STRIPPED_CHARACTERS = "".join(map(chr, range(33)))  # what WHATWG strips from both ends
_IGNORED_CHARACTERS = {9: None, 10: None, 13: None}  # and what it ignores anywhere
_web = re.compile(r"https?:[/\\]*([^/\\?#]*)", re.IGNORECASE).match
_host_like = re.compile(r"/|\?|[^\s/?#:@]+\.[^\s.]|localhost(?=[:/?#]|$)", re.IGNORECASE).match
_number_last = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE | re.DOTALL).fullmatch
_forbidden_character = re.compile(r"[\x00-\x20\"#%<>\[\\\]^`{|}\x7f]").search
_BRACKETS = "\"'<([{`“‘«"

NO_SCHEME = "no http:// or https://"


def explain_invalid_url(text: str, parsed: str | None) -> str:
    """The reason; `parsed` is what the parser made of the text, None if it made nothing of it."""
    text = text.strip(_STRIPPED_CHARACTERS).translate(_IGNORED_CHARACTERS)
    if not text:
        return "empty"
    if parsed is None:
        found = _web(text)
        return _explain_no_url(text) if found is None else _explain_unparsable(text, found[1])
    scheme = parsed.partition(":")[0]
    if scheme in ("http", "https"):
        return "carries a user name or password"
    # "example.com:8080/x" is, by the letter, a URL of the scheme "example.com".
    return NO_SCHEME if "." in scheme or scheme == "localhost" else f"{scheme}: is not http or https"


def _explain_no_url(text: str) -> str:
    if text[0] in _BRACKETS:
        return "quotes or brackets around it"
    return NO_SCHEME if _host_like(text) and " " not in text else "not a URL"


def _explain_unparsable(text: str, authority: str) -> str:
    if "@" in text:  # it may hold a password, and who knows where: nothing of it is repeated
        return "its user name, host or port cannot be read"
    host, port = _split(authority)
    if not host:
        return "no host"
    if host[0] == "[":
        return "not an IPv6 address in its [ ]" if host[-1] == "]" else "no ] after its IPv6 address"
    if " " in host:
        return "its host contains a space"
    if port and not (port.isascii() and port.isdigit()):
        return f"{port[:20]!r} is not a port"
    if port and len(port) < 20 and int(port) > 65_535:
        return f"port {port} does not exist"
    if odd := _forbidden_character(host):
        return f"its host contains {odd[0]!r}"
    return f"{host[:60]} is not an IP address" if _number_last(host) else "not a host name that can exist"


def _split(authority: str) -> tuple[str, str]:
    """Host and port; an IPv6 address keeps its brackets."""
    if authority[:1] == "[":
        host, bracket, rest = authority.partition("]")
        return host + bracket, rest.removeprefix(":")
    host, _, port = authority.partition(":")
    return host, port
