"""Cluster: the node of a Redis Cluster that keeps this queue, all of which is in one slot."""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Iterable, Iterator
from typing import Any

import hiredis

from shoal.queue.redis.connection import QUICK_TIMEOUT, RedisConnection
from shoal.queue.redis.failure import PrimaryMissing, translate_error
from shoal.queue.redis.server_url import MAX_NODES, Address, RedisUrl

SLOTS = 16_384
_REDIRECT = re.compile(r"(MOVED|ASK) \d+ (.*):(\d{1,5})")


def slot_of(tag: str) -> int:
    return crc_hqx(tag.encode(), 0) % SLOTS


def redirect(error: Exception) -> tuple[str, Address] | None:
    """MOVED or ASK, and the node that is to be asked instead; its host is empty where it is the same."""
    found = _REDIRECT.fullmatch(str(error))
    return (found[1], Address(found[2], int(found[3]))) if found else None


class ClusterFinder:
    """Nodes are asked in turn, beginning with the one that answered last; those that it names are asked later on."""

    def __init__(self, server_url: RedisUrl) -> None:
        self._server_url = server_url
        self._slot = slot_of(server_url.namespace)
        self._nodes = list(server_url.nodes)
        self._moved_to: Address | None = None

    def moved(self, node: Address) -> None:
        """A node has said where the slot is now, which it knows better than others."""
        self._moved_to = node

    async def find(self) -> Address:
        if self._moved_to is not None:
            found, self._moved_to = self._moved_to, None
            return found
        problem: Exception | None = None
        for node in tuple(self._nodes):
            try:
                ranges = await self._ask(node)
            except (OSError, TimeoutError) as error:
                problem = error
                continue
            self._remember([node, *(each for _, _, nodes in ranges for each in nodes)])
            owner = next((nodes[0] for first, last, nodes in ranges if first <= self._slot <= last and nodes), None)
            if owner is not None:
                return owner
            problem = PrimaryMissing(f"no node of the cluster serves slot {self._slot}")
        assert problem is not None
        raise problem

    async def check(self, connection: RedisConnection) -> None:
        """A node that does not serve the slot says so by itself."""

    async def _ask(self, node: Address) -> list[tuple[int, int, list[Address]]]:
        to = self._server_url
        connection = await RedisConnection.open(node, tls=to.tls, silence=QUICK_TIMEOUT)
        try:
            if words := to.login.words:
                self._checked(await connection.send("AUTH", *words))
            told = self._checked(await connection.send("CLUSTER", "SLOTS"))
        finally:
            connection.close()
        return list(_ranges(told, node))

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, hiredis.ReplyError):
            raise translate_error(self._server_url, answer) from answer
        return answer

    def _remember(self, nodes: Iterable[Address]) -> None:
        """Those of the URL stay known: they may come back after all others have gone."""
        known = dict.fromkeys([*nodes, *self._server_url.nodes])
        self._nodes = list(known)[: 4 * MAX_NODES]


def _ranges(told: Any, asked: Address) -> Iterator[tuple[int, int, list[Address]]]:
    """First and last slot, and the nodes that serve them, the primary first; what is not understood is left out."""
    for entry in told if isinstance(told, list) else ():
        if isinstance(entry, list) and len(entry) > 2 and isinstance(entry[0], int) and isinstance(entry[1], int):
            yield entry[0], entry[1], [node for words in entry[2:] if (node := _node(words, asked))]


def _node(words: Any, asked: Address) -> Address | None:
    if not isinstance(words, list) or len(words) < 2 or not isinstance(words[1], int) or not 0 < words[1] < 65_536:
        return None
    host = words[0].decode("utf-8", "replace") if isinstance(words[0], bytes) else ""
    if host == "?":  # a node that has not been told its own name
        return None
    return Address(host or asked.host, words[1])
