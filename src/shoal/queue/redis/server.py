"""Server: what it says of itself, and whether it will do."""

from __future__ import annotations

from shoal.errors import QueueRefused
from shoal.queue.redis.server_url import RedisUrl

OLDEST = (6, 2)
LAYOUT = 2  # the version of how our keys are laid out; lua/claim.lua refuses what is newer, too
EVICTION_FIX = "CONFIG SET maxmemory-policy noeviction, and the same line in redis.conf"


def parse(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def version(about: dict[str, str]) -> tuple[int, ...]:
    """Of Redis; a Valkey says with which Redis it agrees."""
    return tuple(int(part) for part in about.get("redis_version", "0.0").split(".")[:2])


def name(about: dict[str, str]) -> str:
    if "valkey_version" in about:
        return f"Valkey {about['valkey_version']}"
    return f"Redis {about.get('redis_version', '?')}"


def evicts(about: dict[str, str]) -> str:
    """The policy by which it evicts data when its memory is full; empty if it does not."""
    policy = about.get("maxmemory_policy", "noeviction")
    return policy if policy != "noeviction" and about.get("maxmemory", "0") != "0" else ""


def check(server_url: RedisUrl, about: dict[str, str]) -> None:
    """Refuse what cannot keep the promises."""
    if version(about) < OLDEST:
        raise QueueRefused(
            f"{server_url} is {name(about)}, shoal needs Redis 6.2 or newer, or Valkey", hint="upgrade the server"
        )
    if policy := evicts(about):
        raise QueueRefused(
            f"{server_url} evicts data when its memory is full (maxmemory-policy {policy}): tasks would be lost",
            hint=EVICTION_FIX,
        )


def check_layout(server_url: RedisUrl, have: int) -> None:
    if have > LAYOUT:
        raise newer_layout(server_url, have)


def newer_layout(server_url: RedisUrl, have: object) -> QueueRefused:
    return QueueRefused(
        f"{server_url} was written by a newer shoal (layout {have}, this one knows {LAYOUT})",
        hint="upgrade this installation, or use another namespace (?namespace=…)",
    )
