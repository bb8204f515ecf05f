"""The secret policy: to which hosts a secret may be sent, and who may ask for that.

A secret that is bound to hosts goes to those and no others. One that is not goes where the command or the
code on this machine says; a run that somebody else sent cannot have it shown to hosts of their choice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from shoal.config.load import Settings
from shoal.errors import UsageError

SubmittedAs = Literal["code", "template", None]
_QUEUE_SOURCES = ("run ", "template ")  # how sources begin that came with the queue


class SecretPolicy:
    def __init__(self, settings: Settings, home_origins: Collection[str], sent: SubmittedAs) -> None:
        self._bound = settings.secret_hosts
        self._auth = settings.auth.lower()
        self._home_origins = home_origins
        self._sent = sent
        self._is_foreign = sent == "template" or (
            sent is not None and settings.sources.get("auth", "").startswith(_QUEUE_SOURCES)
        )

    def check(self) -> None:
        """Refuse a run whose login would go to hosts that it is not for."""
        if not self._auth:
            return
        if self._is_foreign and self._auth not in self._bound:
            raise UsageError(
                f"the secret {self._auth} is not bound to a host, and this run was sent by somebody else",
                hint=f"bind it in shoal.toml of this machine: {_toml_line(self._auth, self._home_origins)}",
            )
        for origin in sorted(self._home_origins):
            if not self.allows(self._auth, origin):
                raise UsageError(
                    f"the secret {self._auth} is not for {_host_of(origin)}",
                    hint=f"if it should be, write in shoal.toml: {_toml_line(self._auth, [origin])}",
                )

    def allows(self, name: str, origin: str) -> bool:
        """Whether a secret may be shown to an origin such as https://shop.example."""
        patterns = self._bound.get(name.lower())
        if patterns is not None:
            return any(host_matches(pattern, _host_of(origin)) for pattern in patterns)
        return self._sent is None or (self._sent == "code" and origin in self._home_origins)


def host_matches(pattern: str, netloc: str) -> bool:
    """Whether "shop.example", "*.shop.example" or "shop.example:8443" means this host and port."""
    host, colon, port = netloc.rpartition(":")
    if not colon or not port.isdecimal():
        host = netloc
    wanted = netloc if pattern.rpartition(":")[2].isdecimal() and ":" in pattern else host
    if pattern.startswith("*."):
        return wanted.endswith(pattern[1:])
    return wanted == pattern


def _host_of(origin: str) -> str:
    return origin.partition("://")[2]


def _toml_line(name: str, origins: Collection[str]) -> str:
    hosts = ", ".join(f'"{_host_of(origin)}"' for origin in sorted(origins))
    return f'[secrets] {name} = {{value = "…", hosts = [{hosts}]}}'
