"""Keys: to which hosts a secret may be shown, and who may ask for that.

A secret that is bound to hosts goes to those and no others. One that is not goes where the command or the
code on this machine says; a run that somebody else sent cannot have it shown to hosts of their choice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from shoal.config import Settings
from shoal.errors import Usage

Sent = Literal["code", "template", None]
_THEIRS = ("run ", "template ")  # how sources begin that came with the queue


class Keys:
    def __init__(self, settings: Settings, home: Collection[str], sent: Sent) -> None:
        self._bound = settings.bound
        self._auth = settings.auth.lower()
        self._home = home
        self._sent = sent
        self._theirs = sent == "template" or (
            sent is not None and settings.sources.get("auth", "").startswith(_THEIRS)
        )

    def check(self) -> None:
        """Refuse a run whose login would go to hosts that it is not for."""
        if not self._auth:
            return
        if self._theirs and self._auth not in self._bound:
            raise Usage(
                f"the secret {self._auth} is bound to no host, and this run was sent by somebody else",
                hint=f"bind it in shoal.toml of this machine: {_line(self._auth, self._home)}",
            )
        for origin in sorted(self._home):
            if not self.may(self._auth, origin):
                raise Usage(
                    f"the secret {self._auth} is not for {_host_of(origin)}",
                    hint=f"if it should be, in shoal.toml: {_line(self._auth, [origin])}",
                )

    def may(self, name: str, origin: str) -> bool:
        """Whether a secret may be shown to an origin such as https://shop.example."""
        patterns = self._bound.get(name.lower())
        if patterns is not None:
            return any(matches(pattern, _host_of(origin)) for pattern in patterns)
        return self._sent is None or (self._sent == "code" and origin in self._home)


def matches(pattern: str, place: str) -> bool:
    """Whether "shop.example", "*.shop.example" or "shop.example:8443" means this host and port."""
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal():
        host = place
    wanted = place if pattern.rpartition(":")[2].isdecimal() and ":" in pattern else host
    if pattern.startswith("*."):
        return wanted.endswith(pattern[1:])
    return wanted == pattern


def _host_of(origin: str) -> str:
    return origin.partition("://")[2]


def _line(name: str, origins: Collection[str]) -> str:
    hosts = ", ".join(f'"{_host_of(origin)}"' for origin in sorted(origins))
    return f'[secrets] {name} = {{value = "…", hosts = [{hosts}]}}'
