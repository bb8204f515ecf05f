"""Signing keys: what the messages of a webhook are signed with.

Usually a key of its own, derived from what the hook is, so that it is kept nowhere and fits no other. Or a secret
of the server that several hooks share: it signs for the hosts that it is bound to; one that is not, only for URLs
that an admin chose, which a seal made with the secret itself proves. So nobody who can write to the queue, or
submit runs, has messages signed with it for a place of theirs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from shoal.core.host_pattern import host_matches
from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl, ShoalError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

SIGNING_NAME_PREFIX = "hook"  # how the names of secrets begin that messages may be signed with


class SigningRefused(ShoalError):
    """A secret does not sign for this URL, or is not here."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class SharedSecrets:
    """The secrets of this server that webhooks may share."""

    def __init__(self, values: Mapping[str, str], hosts: Mapping[str, tuple[str, ...]]) -> None:
        """hosts: those that a secret is bound to, by its name."""
        self._values = values
        self._hosts = hosts

    def key(self, name: str, url: str, seal: str) -> str:
        """The secret, if it signs for this URL; raises SigningRefused."""
        value = self._value(name)
        if not self._is_bound_to(name, url) and not hmac.compare_digest(seal.encode(), _seal(value, url).encode()):
            raise SigningRefused(
                f"the secret {name} is not bound to a host, and no admin chose this URL for it", _bind_hint(name, url)
            )
        return value

    def seal(self, name: str, url: str, *, by_admin: bool) -> str:
        """What proves that this secret may sign for a URL, "" where its hosts say so; raises SigningRefused."""
        value = self._value(name)
        if self._is_bound_to(name, url):
            return ""
        if not by_admin:
            raise SigningRefused(
                f"the secret {name} is not bound to a host, so it signs only for webhooks that an admin creates",
                f"leave it out: a key is created; or {_bind_hint(name, url)}",
            )
        return _seal(value, url)

    def _value(self, name: str) -> str:
        # Logins and the like do not sign: whoever gets the message could try out what they are.
        if not name.lower().startswith(SIGNING_NAME_PREFIX):
            raise SigningRefused(
                f"{name} is not a secret for webhooks",
                "those are named hook…: a long random one in [secrets] of shoal.toml; or leave it out",
            )
        if not (value := self._values.get(name.lower(), "")):
            raise SigningRefused(
                f"this server has no secret {name}",
                "name it in [secrets] of shoal.toml here, or leave it out: one is created",
            )
        return value

    def _is_bound_to(self, name: str, url: str) -> bool:
        """False for a secret without hosts; raises SigningRefused where it has others."""
        patterns = self._hosts.get(name.lower())
        if patterns is None:
            return False
        host = _host_of(url)
        if not host or not any(host_matches(pattern, host) for pattern in patterns):
            raise SigningRefused(f"the secret {name} is not for {host or 'this URL'}", _bind_hint(name, url))
        return True


async def derived_key(queue: Queue, id: str) -> str:
    """The key of one hook, by its id: derived, so kept nowhere."""
    document = await queue.document(kinds.WEBHOOK_KEY, "master")
    if document is None:
        await queue.compare_and_swap(kinds.WEBHOOK_KEY, "master", secrets.token_hex(32), 0)
        document = await queue.document(kinds.WEBHOOK_KEY, "master")
    assert document is not None
    return "whsec_" + hmac.new(document.text.encode(), id.encode(), hashlib.sha256).hexdigest()


def _seal(value: str, url: str) -> str:
    # Messages that are signed begin with a number, so no signature can be taken for a seal.
    return hmac.new(value.encode(), b"webhook\0" + url.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _host_of(url: str) -> str:
    try:
        return lane_of(canonical(url))
    except InvalidUrl:
        return ""


def _bind_hint(name: str, url: str) -> str:
    return f'bind it in shoal.toml of the server: [secrets] {name} = {{value = "…", hosts = ["{_host_of(url)}"]}}'
