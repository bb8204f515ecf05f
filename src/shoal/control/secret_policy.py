"""The secret policy: to which hosts a secret may be sent, and who may ask for that.

A secret that is bound to hosts goes to those and no others. One that is not goes where the command or the
code on this machine says. What stands in a queue that others write to, a run or a single task, says neither
which of them is used nor where it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from shoal.config.load import Settings
from shoal.core.host_pattern import host_matches
from shoal.errors import UsageError

SubmittedAs = Literal["code", "template", None]
_QUEUE_SOURCES = ("run ", "template ")  # how sources begin that came with the queue


class SecretPolicy:
    def __init__(
        self, settings: Settings, home_origins: Collection[str], sent: SubmittedAs, proxy_origins: Iterable[str] = ()
    ) -> None:
        """home_origins: where the run starts, as its command or code says; of a template, as the queue says.

        proxy_origins: of the proxies that the settings name.
        """
        self._bound = settings.secret_hosts
        self._auth = settings.auth.lower()
        self._home_origins = home_origins
        # Whoever gives a command a login and a proxy lets the one go through the other.
        self._believed_origins = {*home_origins, *(proxy_origins if sent is None else ())}
        self._is_template = sent == "template"  # of somebody else: where it starts is theirs to say
        self._is_foreign = self._is_template or (sent is not None and _is_from_queue(settings, "auth"))
        # Nobody but the owner of an embedded queue's file writes to it; tasks in any other may be a stranger's.
        self._are_tasks_own = sent is None and settings.state_file is not None
        # Credentials in headers of this machine do not go where a template says that came with the queue.
        self.shows_headers = not self._is_template or _is_from_queue(settings, "header")

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
        """Whether a secret that a task names may be shown to an origin such as https://shop.example."""
        if name.lower() in self._bound or self._are_tasks_own or (name.lower() == self._auth and not self._is_foreign):
            return self.allows_code(name, origin)
        return False

    def allows_code(self, name: str, origin: str) -> bool:
        """The same where code of this machine names it, though maybe for a page that a stranger's task led it to."""
        patterns = self._bound.get(name.lower())
        if patterns is not None:
            return any(host_matches(pattern, _host_of(origin)) for pattern in patterns)
        return self._are_tasks_own or (not self._is_template and origin in self._believed_origins)


def _is_from_queue(settings: Settings, name: str) -> bool:
    return settings.sources.get(name, "").startswith(_QUEUE_SOURCES)


def _host_of(origin: str) -> str:
    return origin.partition("://")[2]


def _toml_line(name: str, origins: Collection[str]) -> str:
    hosts = ", ".join(f'"{_host_of(origin)}"' for origin in sorted(origins))
    return f'[secrets] {name} = {{value = "…", hosts = [{hosts}]}}'
