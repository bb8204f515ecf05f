"""Proxy: the address of a proxy, and what may be asked of it."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote, urlsplit

from shoal.core.url import canonical, host_of, lane_of
from shoal.errors import FetchRefused, InvalidUrl, Usage
from shoal.fetch.guard import AllowPrivate, private_by_name, way_out

SCHEMES = ("http", "https", "socks5h")
_ELSEWHERE = {
    "socks5": "socks5h://…, with which the proxy resolves the names",
    "socks4": "socks5h://…",
    "socks4a": "socks5h://…",
    "socks": "socks5h://…",
}


@lru_cache(maxsize=256)
def check(proxy: str) -> str:
    """The proxy as it may be shown to people; raises Usage where it is not one."""
    hint = "Write it like http://user:password@proxy.example:3128 or socks5h://127.0.0.1:1080."
    scheme, mark, rest = proxy.partition("://")
    if not mark or any(sign <= " " or sign == "\x7f" for sign in proxy):
        raise Usage("the address of the proxy cannot be read", hint=hint)
    if scheme not in SCHEMES:
        instead = _ELSEWHERE.get(scheme.lower())
        raise Usage(f"proxies of the kind {scheme}:// are not spoken", hint=instead or hint)
    try:
        parts = urlsplit("//" + rest)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise Usage(f"the address of the {scheme} proxy cannot be read", hint=hint)
    if any("\r" in part or "\n" in part or "\0" in part for part in _login(parts.username, parts.password)):
        raise Usage(f"the login of the {scheme} proxy cannot be sent", hint=hint)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}" if port else f"{scheme}://{shown}"


def _login(*parts: str | None) -> list[str]:
    return [unquote(part) for part in parts if part]


def shown(proxy: str) -> str:
    """The proxy without its login; a refusal if it is not one that can be used."""
    try:
        return check(proxy)
    except Usage as error:
        raise FetchRefused("blocked.proxy", f"{error}; {error.hint}") from error


def guard_target(url: str, allow: AllowPrivate) -> None:
    """Refuse to ask a proxy for a private place, as far as its name or number gives it away.

    The proxy resolves the name: what it finds cannot be seen from here.
    """
    try:
        plain = canonical(url)
    except InvalidUrl as error:
        raise FetchRefused("bad_url", str(error)) from error
    host, lane = host_of(plain).strip("[]"), lane_of(plain)
    port = int(lane.rpartition(":")[2]) if lane != host_of(plain) else 443 if plain[4] == "s" else 80
    why = private_by_name(host, port)
    if why and not allow.permits(plain, host, port):
        raise FetchRefused("blocked.private", f"{why}; {way_out(host)}")
