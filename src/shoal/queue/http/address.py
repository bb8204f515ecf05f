"""Address: where a shoal server is, and the token that opens it."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import quote, unquote, urlsplit

import msgspec

from shoal.errors import Usage

TOKEN = re.compile(r"[!-~]*")  # what can stand in a header


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: bool
    prefix: str  # of every path, without a slash at its end
    token: str

    @property
    def place(self) -> str:
        """For people: never with the token."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def in_the_clear(self) -> bool:
        """Whether whoever is on the way can read along."""
        return not self.tls and not _is_here(self.host)


def read_address(url: str, token: str = "") -> Address:
    """Of https://host, https://token@host:8443/behind/nginx and the like."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if host and not host.isascii():
            host = host.encode("idna").decode("ascii")
    except ValueError as error:
        raise _odd(error) from None
    if parts.scheme not in ("http", "https") or not host or not re.fullmatch(r"[\w.:%-]+", host):
        raise _odd("it has no host")
    if parts.query or parts.fragment:
        raise _odd("nothing may follow the path")
    tls = parts.scheme == "https"
    given = unquote(parts.password or parts.username or "") or token.strip()
    if not TOKEN.fullmatch(given):
        raise _odd("its token has letters that no token has")
    prefix = quote(parts.path.rstrip("/"), safe="/%~!$&'()*+,;=:@")
    return Address(host, port or (443 if tls else 80), tls, prefix, given)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _odd(why: object) -> Usage:
    return Usage(
        f"the address of the server is not understood: {why}",
        hint="https://shoal.example, with its token in SHOAL_TOKEN",
    )
