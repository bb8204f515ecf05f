"""Where a broker is: amqp://user:password@host:5672/vhost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

PORT, TLS_PORT = 5672, 5671


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    host: str = "127.0.0.1"
    port: int = PORT
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tls: bool = False

    def __str__(self) -> str:
        """For people: never with the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}{vhost}"

    @classmethod
    def parse(cls, url: str) -> BrokerAddress:
        """ValueError for what is no URL of a broker; its query is the caller's."""
        parts = urlsplit(url)
        if parts.scheme not in ("amqp", "amqps"):
            raise ValueError("it does not begin with amqp:// or amqps://")
        host = parts.hostname or "127.0.0.1"
        if not re.fullmatch(r"[\w.:%-]+", host):
            raise ValueError("its host has letters that no host has")
        if parts.fragment:
            raise ValueError("it has a # that is not written as %23")
        if parts.path.count("/") > 1:
            raise ValueError("its path is the virtual host: a / in its name is written as %2F")
        tls = parts.scheme == "amqps"
        vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"
        return cls(
            host=host,
            port=parts.port or (TLS_PORT if tls else PORT),
            user=unquote(parts.username) if parts.username else "guest",  # a password alone is that of guest
            password="guest" if parts.password is None else unquote(parts.password),
            vhost=vhost,
            tls=tls,
        )
