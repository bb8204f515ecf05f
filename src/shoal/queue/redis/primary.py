"""Primary: where the server is that takes changes, for each kind of URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal.queue.redis.cluster import ClusterFinder
from shoal.queue.redis.connection import RedisConnection
from shoal.queue.redis.sentinel import SentinelFinder
from shoal.queue.redis.server_url import Address, Kind, RedisUrl


class PrimaryFinder(Protocol):
    async def find(self) -> Address | str:
        """Its address, or the path of its socket; OSError if nobody can be asked."""
        ...

    async def check(self, connection: RedisConnection) -> None:
        """Raise PrimaryMissing if what answers there is not the primary."""
        ...


class FixedServer:
    """The one server that the URL names."""

    def __init__(self, server_url: RedisUrl) -> None:
        self._place: Address | str = server_url.path or server_url.nodes[0]

    async def find(self) -> Address | str:
        return self._place

    async def check(self, connection: RedisConnection) -> None:
        """A replica refuses changes by itself, and may be read."""


def primary_finder(server_url: RedisUrl) -> PrimaryFinder:
    kinds: dict[Kind, Callable[[RedisUrl], PrimaryFinder]] = {
        "server": FixedServer,
        "sentinel": SentinelFinder,
        "cluster": ClusterFinder,
    }
    return kinds[server_url.kind](server_url)
