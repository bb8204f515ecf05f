"""Sentinel: asks Redis Sentinels which server is the primary just now."""

from __future__ import annotations

from typing import Any

import hiredis

from shoal.errors import QueueRefused
from shoal.queue.redis.connection import QUICK_TIMEOUT, RedisConnection
from shoal.queue.redis.failure import PrimaryMissing, is_refused_login, translate_error
from shoal.queue.redis.server_url import Address, RedisUrl


class SentinelFinder:
    """Every sentinel is asked in turn, beginning with the one that answered last."""

    def __init__(self, server_url: RedisUrl) -> None:
        self._server_url = server_url
        self._sentinels = list(server_url.nodes)
        self._was_found = False

    async def find(self) -> Address:
        """Where the primary is, as the first sentinel says that knows; it may be on its way out."""
        problem: Exception | None = None
        for sentinel in tuple(self._sentinels):
            try:
                found = await self._ask(sentinel)
            except (OSError, TimeoutError) as error:
                problem = error
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            if found is not None:
                self._was_found = True
                return found
            problem = self._unknown_service()
        assert problem is not None
        raise problem

    def _unknown_service(self) -> Exception:
        """A wrong name, unless it was known before: a sentinel that begins anew learns it from others."""
        words = f"the sentinels know no server called {self._server_url.service}"
        if self._was_found:
            return PrimaryMissing(words)
        return QueueRefused(words, hint="`sentinel monitor NAME …` in their configuration names it")

    async def _ask(self, sentinel: Address) -> Address | None:
        to = self._server_url
        connection = await RedisConnection.open(sentinel, tls=to.tls, silence=QUICK_TIMEOUT)
        try:
            if words := to.sentinel_login.words:
                self._checked(await connection.send("AUTH", *words), sentinel)
            told = self._checked(await connection.send("SENTINEL", "GET-MASTER-ADDR-BY-NAME", to.service), sentinel)
        finally:
            connection.close()
        return _address(told)

    def _checked(self, answer: Any, sentinel: Address) -> Any:
        if not isinstance(answer, hiredis.ReplyError):
            return answer
        if is_refused_login(answer):
            raise QueueRefused(
                f"the sentinel at {sentinel} refuses the login: {answer}",
                hint="?sentinel_password=… in the queue's URL, and sentinel_user if it has users",
            )
        if "unknown command" in str(answer).lower():
            raise QueueRefused(
                f"{sentinel} is not a sentinel", hint="name sentinels, whose port usually is 26379, or use redis://"
            )
        raise translate_error(self._server_url, answer) from answer

    async def check(self, connection: RedisConnection) -> None:
        """A server that was the primary may still believe it, or may have become a replica."""
        role = await connection.send("ROLE")
        if isinstance(role, hiredis.ReplyError):
            if is_refused_login(role):  # a user that may not ask: a replica refuses changes by itself
                return
            raise role
        if not isinstance(role, list) or not role or role[0] != b"master":
            raise PrimaryMissing("the server that the sentinels name is not the primary yet")


def _address(told: Any) -> Address | None:
    if not isinstance(told, list) or len(told) != 2 or not all(isinstance(word, bytes) for word in told):
        return None
    host, port = told[0].decode("utf-8", "replace"), told[1]
    return Address(host, int(port)) if host and port.isdigit() and 0 < int(port) < 65_536 else None
