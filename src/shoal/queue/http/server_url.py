"""The URL of a shoal server, with the token for it."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

import msgspec

from shoal.core.url import is_loopback_host
from shoal.errors import UsageError

TOKEN = re.compile(r"[!-~]*")  # what can stand in a header


class HttpServerUrl(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: bool
    prefix: str  # of every path, without a slash at its end
    token: str

    @property
    def display_url(self) -> str:
        """For people: never with the token."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def is_unencrypted(self) -> bool:
        """Whether whoever is on the way can read along."""
        return not self.tls and not is_loopback_host(self.host)


def parse_server_url(url: str, token: str = "") -> HttpServerUrl:
    """Of https://host, https://token@host:8443/behind/nginx and the like."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if host and not host.isascii():
            host = host.encode("idna").decode("ascii")
    except ValueError as error:
        raise _invalid(error) from None
    if parts.scheme not in ("http", "https") or not host or not re.fullmatch(r"[\w.:%-]+", host):
        raise _invalid("it has no host")
    if parts.query or parts.fragment:
        raise _invalid("nothing may follow the path")
    tls = parts.scheme == "https"
    token_given = unquote(parts.password or parts.username or "") or token.strip()
    if not TOKEN.fullmatch(token_given):
        raise _invalid("its token has letters that no token has")
    prefix = quote(parts.path.rstrip("/"), safe="/%~!$&'()*+,;=:@")
    return HttpServerUrl(host, port or (443 if tls else 80), tls, prefix, token_given)


def _invalid(why: object) -> UsageError:
    return UsageError(
        f"the URL of the server is not understood: {why}", hint="https://shoal.example, with its token in SHOAL_TOKEN"
    )
