"""Proxy: the URL of a proxy, and what may be asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from shoal.core.url import canonical, host_of, lane_of
from shoal.errors import FetchRefused, InvalidUrl, UsageError
from shoal.fetch.guard import PrivateNetworkPolicy, private_hint, private_name_reason

SCHEMES = ("http", "https", "socks5h")
_SCHEME_HINTS = {
    "socks5": "socks5h://…, with which the proxy resolves the names",
    "socks4": "socks5h://…",
    "socks4a": "socks5h://…",
    "socks": "socks5h://…",
}
_USUAL_PORTS = {"https": 443}  # as libcurl has them
_USUAL_PORT = 1080


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """A proxy as one connects to it."""

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    shown: str = ""  # as it may be shown to people


@lru_cache(maxsize=256)
def validate_proxy(proxy: str) -> str:
    """The proxy as it may be shown to people; raises Usage where it is not one."""
    hint = "Write it like http://user:password@proxy.example:3128 or socks5h://127.0.0.1:1080."
    scheme, mark, rest = proxy.partition("://")
    if not mark or any(char <= " " or char == "\x7f" for char in proxy):
        raise UsageError("the URL of the proxy cannot be read", hint=hint)
    if scheme not in SCHEMES:
        instead = _SCHEME_HINTS.get(scheme.lower())
        raise UsageError(f"proxies of the kind {scheme}:// are not supported", hint=instead or hint)
    try:
        parts = urlsplit("//" + rest)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UsageError(f"the URL of the {scheme} proxy cannot be read", hint=hint)
    if any("\r" in part or "\n" in part or "\0" in part for part in _login(parts.username, parts.password)):
        raise UsageError(f"the login of the {scheme} proxy cannot be sent", hint=hint)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}" if port else f"{scheme}://{shown}"


def _login(*parts: str | None) -> list[str]:
    return [unquote(part) for part in parts if part]


def redact_proxy(proxy: str) -> str:
    """The proxy without its login; a refusal if it is not one that can be used."""
    try:
        return validate_proxy(proxy)
    except UsageError as error:
        raise FetchRefused("blocked.proxy", f"{error}; {error.hint}") from error


def proxy_address(proxy: str) -> ProxyAddress:
    """Its parts; a refusal if it is not one that can be used."""
    shown = redact_proxy(proxy)
    parts = urlsplit(proxy)
    user, password = (unquote(part or "") for part in (parts.username, parts.password))
    port = parts.port or _USUAL_PORTS.get(parts.scheme, _USUAL_PORT)
    return ProxyAddress(parts.scheme, parts.hostname or "", port, user, password, shown)


def check_proxy_target(url: str, private_policy: PrivateNetworkPolicy) -> None:
    """Refuse to ask a proxy for a private place, as far as its name or number gives it away.

    The proxy resolves the name: what it finds cannot be seen from here.
    """
    try:
        plain = canonical(url)
    except InvalidUrl as error:
        raise FetchRefused("bad_url", str(error)) from error
    host, lane = host_of(plain).strip("[]"), lane_of(plain)
    port = int(lane.rpartition(":")[2]) if lane != host_of(plain) else 443 if plain[4] == "s" else 80
    why = private_name_reason(host, port)
    if why and not private_policy.permits(plain, host, port):
        raise FetchRefused("blocked.private", f"{why}; {private_hint(host)}")
