"""Engine: scripts on the server, a connection that comes back, and errors in our words.

Every verb is one script, and every script may be repeated: a reply that was lost with its connection
is asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
import time
from collections.abc import Callable, Collection
from typing import Any
from uuid import uuid4

import hiredis

from shoal.errors import ActionRequired
from shoal.queue.redis import server
from shoal.queue.redis.connection import RedisConnection
from shoal.queue.redis.failure import closed, is_replica, is_transient, translate_error, unreachable
from shoal.queue.redis.script import script
from shoal.queue.redis.server_url import RedisUrl

TIMEOUT = 20.0  # seconds to wait for a server that was there before


class Engine:
    def __init__(self, server_url: RedisUrl, *, clock: Callable[[], int] | None = None) -> None:
        self.server_url = server_url
        self.prefix = f"{{{server_url.namespace}}}:"
        self.clock = clock
        self.serves: Collection[str] | None = None  # as the last claim said
        self.aof = ""  # how often the server's log reaches its disk; empty: it keeps none
        self._connection: RedisConnection | None = None
        self._connecting = asyncio.Lock()
        self._requests = itertools.count()
        self._name = uuid4().hex[:20]
        self._started = self._closed = False

    async def start(self) -> None:
        """Connect once, and refuse a server that cannot keep the promises."""
        try:
            layout = await self.read("HGET", "meta", "version")
            if layout is None:
                await self.read("HSETNX", "meta", "version", server.LAYOUT)
            server.check_layout(self.server_url, int(layout or server.LAYOUT))
            if layout is not None and int(layout) < server.LAYOUT:
                await self.read("HSET", "meta", "version", server.LAYOUT)
            self.aof = await self._fsync()
        except (OSError, TimeoutError) as error:
            raise unreachable(self.server_url, error) from error
        self._started = True

    async def _fsync(self) -> str:
        about = server.parse(await self.plain("INFO", "persistence"))
        if about.get("aof_enabled") != "1":
            return ""
        told = await self.try_command("CONFIG", "GET", "appendfsync")
        return told[1].decode() if told else "everysec"

    async def run(self, verb: str, *arguments: Any) -> Any:
        """The answer of a verb's script; asked for again where the connection was lost on the way."""
        text, digest = script(verb)
        now = "" if self.clock is None else self.clock()
        command = ("EVALSHA", digest, 1, f"{self.prefix}meta", now, *arguments)
        answer = await self._send(command)
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
            answer = await self._send(("EVAL", text, *command[2:]))
        return self._checked(answer)

    async def run_cached(self, verb: str, *arguments: Any, cache_reply: bool = True) -> Any:
        """As run, for verbs whose answer would differ the second time: the server keeps it for a while."""
        return await self.run(verb, self.request() if cache_reply else "", *arguments)

    def request(self) -> str:
        """A name that no other request has."""
        return f"{self._name}{next(self._requests):x}"

    async def read(self, command: str, key: str, *arguments: Any) -> Any:
        """A plain command on one key of the namespace."""
        return self._checked(await self._send((command, self.prefix + key, *arguments)))

    async def plain(self, *command: Any) -> Any:
        """A plain command that is about no key."""
        return self._checked(await self._send(command))

    async def try_command(self, *command: Any) -> Any:
        """As plain; None where the server does not allow it."""
        answer = await self._send(command)
        return None if isinstance(answer, hiredis.ReplyError) else answer

    async def now(self) -> int:
        if self.clock is not None:
            return self.clock()
        seconds, micros = await self.plain("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def _send(self, command: tuple[Any, ...]) -> Any:
        began: float | None = None
        while True:
            try:
                connection = self._connection
                if connection is None or not connection.is_open:
                    connection = await self._reconnect()
                answer = await connection.send(*command)
                if not isinstance(answer, hiredis.ReplyError) or not is_transient(answer):
                    return answer
                problem: Exception = answer
                if is_replica(answer):
                    connection.close()  # another server may answer at this address by now
            except hiredis.ReplyError as error:
                problem = error
            except (OSError, TimeoutError) as error:
                if not self._started:
                    raise
                problem = error
            began = began or time.monotonic()
            hopeless = isinstance(problem, hiredis.ReplyError) and self._is_final(problem)
            if hopeless or time.monotonic() - began > TIMEOUT:
                raise self._final_error(problem) from problem
            await asyncio.sleep(0.02 + 0.1 * random.random())

    def _is_final(self, error: Exception) -> bool:
        return not is_transient(error) or (is_replica(error) and not self._started)

    def _final_error(self, problem: Exception) -> ActionRequired:
        if isinstance(problem, hiredis.ReplyError):
            return translate_error(self.server_url, problem)
        return unreachable(self.server_url, problem)

    async def _reconnect(self) -> RedisConnection:
        async with self._connecting:
            if self._closed:
                raise closed()
            if self._connection is None or not self._connection.is_open:
                self._connection = await self.connect(self._detect_restart)
            return self._connection

    async def connect(self, on_connect: Callable[[RedisConnection], Any] | None = None) -> RedisConnection:
        """A connection that has said who we are."""
        to = self.server_url
        connection = await RedisConnection.open(
            to.host, to.port, path=to.path, tls=ssl.create_default_context() if to.tls else None
        )
        try:
            if to.password:
                words = (to.user, to.password) if to.user else (to.password,)
                self._checked(await connection.send("AUTH", *words))
            if to.database:
                self._checked(await connection.send("SELECT", to.database))
            if on_connect is not None:
                await on_connect(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _detect_restart(self, connection: RedisConnection) -> None:
        """Before anything else: a server that was restarted may have forgotten numbers it gave."""
        about = server.parse(self._checked(await connection.send("INFO")))
        server.check(self.server_url, about)
        text, _ = script("detect_restart")
        now = "" if self.clock is None else self.clock()
        answer = await connection.send("EVAL", text, 1, f"{self.prefix}meta", now, about.get("run_id", ""))
        if isinstance(answer, hiredis.ReplyError):
            raise answer

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, hiredis.ReplyError):
            raise translate_error(self.server_url, answer) from answer
        return answer

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
